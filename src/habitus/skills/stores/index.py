"""The rows of one layer by name, as every reading door of a store sees them."""

from __future__ import annotations

from collections.abc import Iterable

from habitus.skills.ledger import Row
from habitus.skills.model import Diagnostic, Severity, Summary


class Index:
    """Of two folders that spell one name, the first by sort loads; the other is broken."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.taken: dict[str, Row] = {}
        self.loadable: dict[str, Row] = {}
        self.summaries: list[Summary] = []
        self.broken: list[tuple[Row, tuple[Diagnostic, ...]]] = []
        for row in sorted(rows, key=lambda item: (item.name, item.folder)):
            first = self.taken.setdefault(row.name, row)
            if first is not row:
                self.broken.append((row, (*row.diagnostics, _second_spelling(row, first))))
            elif row.summary is None:
                self.broken.append((row, row.diagnostics))
            else:
                self.loadable[row.name] = row
                self.summaries.append(row.summary)


def _second_spelling(row: Row, first: Row) -> Diagnostic:
    return Diagnostic(
        file=row.folder,
        what=f"'{row.folder}' spells the same name as '{first.folder}', which is loaded.",
        mend="Rename or remove one of the two directories.",
        severity=Severity.ERROR,
    )
