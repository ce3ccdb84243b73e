"""What content from outside may hold that a person should see first."""

from __future__ import annotations

from habitus.skills.trees import Tree


def high_findings(tree: Tree) -> list[str]:
    """What a person must see before content from outside is used, one line each."""
    from habitus.skills.scan import Risk, scan  # a quarter of a second of patterns, for those who look at content

    found = (f"{one.path}:{one.line}: {one.why.rstrip('.')}" for one in scan(tree) if one.severity is Risk.HIGH)
    return list(dict.fromkeys(found))
