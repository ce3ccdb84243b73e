"""The rows of one layer by name, and what they amount to for whoever reads the layer."""

from __future__ import annotations

from collections.abc import Iterable

from habitus.skills.ledger import Row
from habitus.skills.model import Diagnostic, Severity, Summary
from habitus.skills.stores.base import Broken, Contents


class RowIndex:
    """Of two folders that spell one name, the first by sort loads; the other is broken."""

    def __init__(self, layer: str = "", rows: Iterable[Row] = (), revision: int = 0) -> None:
        self.taken: dict[str, Row] = {}
        self.loadable: dict[str, Row] = {}
        summaries: list[Summary] = []
        broken: list[Broken] = []
        for row in sorted(rows, key=lambda item: (item.name, item.folder)):
            first = self.taken.setdefault(row.name, row)
            if first is row and row.summary is not None:
                self.loadable[row.name] = row
                summaries.append(row.summary)
            else:
                found = row.diagnostics if first is row else (*row.diagnostics, _second_spelling(row, first))
                broken.append(Broken(name=row.name, folder=row.folder, layer=layer, diagnostics=found))
        self.contents = Contents(
            revision=revision,
            summaries=summaries,
            broken=broken,
            hashes={name: row.tree_hash for name, row in self.taken.items()},
            diagnostics={name: row.diagnostics for name, row in self.taken.items() if row.diagnostics},
        )


def _second_spelling(row: Row, first: Row) -> Diagnostic:
    return Diagnostic(
        file=row.folder,
        what=f"'{row.folder}' spells the same name as '{first.folder}', which is loaded.",
        mend="Rename or remove one of the two directories.",
        severity=Severity.ERROR,
    )
