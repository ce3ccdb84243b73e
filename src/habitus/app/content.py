"""What content from outside may hold that a person should see first."""

from __future__ import annotations

from habitus.files import Tree


def high_findings(tree: Tree) -> list[str]:
    """What a person must see before content from outside is used, one line each."""
    from habitus.screening.findings import Risk
    from habitus.screening.scanner import scan  # a quarter of a second of patterns, for those who look at content

    found = (f"{one.path}:{one.line}: {one.why.rstrip('.')}" for one in scan(tree) if one.severity is Risk.HIGH)
    return list(dict.fromkeys(found))
