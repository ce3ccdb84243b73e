"""The scanner of third-party skills: what in a directory would harm whoever trusts it, where, and how badly.

`scan(tree)` is pure and takes time in proportion to the size of the files. High findings wait for a person.
"""

from habitus.skills.scan.findings import Category, Finding, Risk, is_clean, max_severity
from habitus.skills.scan.scanner import scan

__all__ = ["Category", "Finding", "Risk", "is_clean", "max_severity", "scan"]
