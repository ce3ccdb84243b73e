"""The composition root: it turns settings into a working Habitus, and is the only place that names concrete classes."""

from habitus.app.habitus import Habitus
from habitus.app.home_directory import DATABASE, read_settings

__all__ = ["DATABASE", "Habitus", "read_settings"]
