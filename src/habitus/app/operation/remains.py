"""Looking for texts that should be gone: in every table, in every file of a home, and inside what is compressed."""

from __future__ import annotations

import bz2
import io
import lzma
import mmap
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from habitus import sql

_MOST_BYTES = 64 << 20  # of one compressed thing that are looked at
_DEEPEST = 3  # a file in an archive in a blob
_AT_A_TIME = 100


def remains(engines: Iterable[sa.Engine], home: Path, words: Sequence[str], *, apart: str) -> Iterator[str]:
    """Where one of these texts is still to be found; the folder `apart` of the home is left out."""
    if not words:
        return
    raw = [word.encode() for word in words]
    for engine in engines:
        for table in sql.metadata.sorted_tables:
            with sql.reading(engine) as connection:
                if _says(connection, table, words) or _keeps(connection, table, raw):
                    yield f"{table.name} ({engine.dialect.name})"
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.relative_to(home).parts[0] != apart and _lies(path, raw):
            yield str(path.relative_to(home))


def _says(connection: sa.Connection, table: sa.Table, words: Sequence[str]) -> bool:
    texts = [column for column in table.c if isinstance(column.type, sa.String)]
    says = [column.contains(word, autoescape=True) for column in texts for word in words]
    query = sa.select(sa.func.count()).select_from(table).where(sa.or_(sa.false(), *says))
    return bool(says and connection.execute(query).scalar())


def _keeps(connection: sa.Connection, table: sa.Table, words: Sequence[bytes]) -> bool:
    """Whether the bytes of a column hold it, however they are packed; the database itself can't tell."""
    columns = [column for column in table.c if isinstance(column.type, sa.LargeBinary)]
    if not columns:
        return False
    with connection.execute(sa.select(*columns).execution_options(yield_per=_AT_A_TIME)) as found:
        return any(_holds(bytes(content), words) for row in found for content in row if content is not None)


def _lies(path: Path, words: Sequence[bytes]) -> bool:
    mapped = partial(mmap.mmap, length=0, access=mmap.ACCESS_READ)
    with suppress(OSError, ValueError), path.open("rb") as file, mapped(file.fileno()) as content:
        return any(content.find(word) >= 0 for word in words) or (
            _is_packed(content[:6]) and _holds(content[:_MOST_BYTES], words)
        )
    return False  # an empty file can't be mapped


def _holds(content: bytes, words: Sequence[bytes], depth: int = 0) -> bool:
    if any(word in content for word in words):
        return True
    return depth < _DEEPEST and any(_holds(inner, words, depth + 1) for inner in _unpack(content))


def _unpack(content: bytes) -> Iterator[bytes]:
    """What lies in compressed bytes; nothing where they are none, or are damaged."""
    with suppress(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, NotImplementedError):
        if content.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for member in archive.infolist():
                    with archive.open(member) as file:
                        yield file.read(_MOST_BYTES)
        elif content.startswith(b"BZh"):
            yield bz2.BZ2Decompressor().decompress(content, _MOST_BYTES)
        elif content.startswith(b"\xfd7zXZ"):
            yield lzma.LZMADecompressor().decompress(content, _MOST_BYTES)
        elif _is_packed(content[:6]):
            yield zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, _MOST_BYTES)  # zlib's own or gzip


def _is_packed(begins: bytes) -> bool:
    is_zlib = len(begins) > 1 and begins[0] & 0x0F == 8 and (begins[0] << 8 | begins[1]) % 31 == 0
    return is_zlib or begins.startswith((b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ"))
