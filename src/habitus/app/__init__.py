"""The composition root: from settings to a working Habitus, the one place that names concrete classes."""

from typing import TYPE_CHECKING, Any

from habitus.app.habitus import Habitus

if TYPE_CHECKING:
    from habitus.app.home_directory import DATABASE, read_settings

__all__ = ["DATABASE", "Habitus", "read_settings"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'habitus.app' has no attribute '{name}'")
    from habitus.app import home_directory  # the settings and the database's toolkit, for those who need them

    return getattr(home_directory, name)
