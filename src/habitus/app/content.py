"""What content from outside may hold that a person should see first."""

from __future__ import annotations

from habitus.skills.scan import Risk, scan
from habitus.skills.trees import Tree


def high_findings(tree: Tree) -> list[str]:
    """What a person must see before content from outside is used, one line each."""
    found = (f"{one.path}:{one.line}: {one.why.rstrip('.')}" for one in scan(tree) if one.severity is Risk.HIGH)
    return list(dict.fromkeys(found))
