"""Documents made by hand, so that tests need no library that writes them: a spreadsheet and a PDF."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def xlsx(sheets: Mapping[str, Sequence[Sequence[str | float]]]) -> bytes:
    """A workbook with these sheets, each a list of rows."""
    numbers = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Default '
        'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>',
        "_rels/.rels": _relations([("rId1", f"{_OFFICE}/officeDocument", "xl/workbook.xml")]),
        "xl/_rels/workbook.xml.rels": _relations(
            [(f"rId{n}", f"{_OFFICE}/worksheet", f"worksheets/sheet{n}.xml") for n in numbers]
        ),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(
            f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="rId{n}"/>'
            for n, name in zip(numbers, sheets, strict=True)
        )
        + "</sheets></workbook>",
    }
    for n, rows in zip(numbers, sheets.values(), strict=True):
        lines = "".join(f'<row r="{r}">{"".join(map(_cell, row))}</row>' for r, row in enumerate(rows, 1))
        parts[f"xl/worksheets/sheet{n}.xml"] = f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return held.getvalue()


def swelling_xlsx(*, gigabytes: int) -> bytes:
    """A workbook of a few megabytes with one cell of so many gigabytes."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(xlsx({"Bomb": [["|"]]}))) as small, zipfile.ZipFile(held, "w") as archive:
        for name in small.namelist():
            before, bar, after = small.read(name).partition(b"|")
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry._compresslevel = zipfile.ZIP_DEFLATED, 1  # type: ignore[attr-defined]
            with archive.open(entry, "w", force_zip64=True) as part:
                part.write(before)
                for _ in range(1024 * gigabytes if bar else 0):
                    part.write(b"x" * 1024**2)
                part.write(after)
    return held.getvalue()


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f"<c><v>{value}</v></c>"


def _relations(found: Sequence[tuple[str, str, str]]) -> str:
    rows = "".join(f'<Relationship Id="{id}" Type="{kind}" Target="{target}"/>' for id, kind, target in found)
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{rows}</Relationships>'


def pdf(pages: Sequence[str]) -> bytes:
    """A document with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * n} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    written, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF\n"
    return written + f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()
