from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.formats.archives import ArchiveLimits
from habitus.skills.formats.base import SkippedEntry
from habitus.skills.formats.detect import read_entries
from tests.skills.formats.made import law, only, reason_of

pytestmark = pytest.mark.req("SK-18")

SKILL = b"---\nname: packed\ndescription: Came in an archive.\n---\n\nUnpack it.\n"
Given = tuple[str | tarfile.TarInfo, bytes]


def member(name: str, kind: bytes = tarfile.REGTYPE, **said: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in said.items():
        setattr(info, field, value)
    return info


def archive(tmp_path: Path, *members: Given, name: str = "skills.tar.gz", format: int = tarfile.PAX_FORMAT) -> Path:
    path = tmp_path / name
    with tarfile.open(path, "w:gz", format=format) as out:
        for given_member, content in members:
            info = member(given_member) if isinstance(given_member, str) else given_member
            info.size = len(content) if info.isreg() else info.size
            out.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["packed.tar.gz", "packed.tgz", "PACKED.TAR.GZ", "no-suffix"])
@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_skill_in_an_archive(tmp_path: Path, name: str, format: int) -> None:
    path = archive(
        tmp_path,
        (member("./", tarfile.DIRTYPE, mode=0o755), b""),
        ("./packed/SKILL.md", SKILL),
        (member("./packed/scripts/run.sh", mode=0o755), b"x"),
        ("./packed/" + "long/" * 20 + "name.md", b"x"),
        name=name,
        format=format,
    )
    entry = only(read_entries(path))
    assert (entry.name, entry.origin) == ("packed", name)
    assert entry.tree["scripts/run.sh"].executable
    assert not entry.tree["SKILL.md"].executable
    assert "long/" * 20 + "name.md" in entry.tree
    assert entry.format == "skill"


def test_a_nameless_skill_is_named_by_the_archive(tmp_path: Path) -> None:
    nameless = SKILL.replace(b"name: packed\n", b"")
    for name in ("My Skill.tar.gz", "My Skill.tgz"):
        assert only(read_entries(archive(tmp_path, ("SKILL.md", nameless), name=name))).name == "my-skill"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../evil", "leads out of the archive"),
        ("./../evil", "leads out of the archive"),
        ("a/../../evil", "leads out of the archive"),
        ("/etc/passwd", "has an absolute path"),
        (".//etc/passwd", "has an absolute path"),
        ("C:\\evil", "names a drive"),
        ("a\\..\\b", "has a backslash"),
        ("a//b", "has an empty part"),
        ("a/./b", "has an empty part"),
        ("docs/NUL", "has the name of a device"),
        ("a\nb", "has control characters"),
        ("a\udcffb", "has control characters"),
        ("x" * 300, "has too long a name"),
    ],
)
def test_a_path_that_is_none_inside(tmp_path: Path, name: str, reason: str) -> None:
    path = archive(tmp_path, ("good/SKILL.md", SKILL), (name, b"x"), format=tarfile.GNU_FORMAT)
    assert reason in reason_of(path)


def test_a_nul_in_a_name(tmp_path: Path) -> None:
    path = archive(tmp_path, (member("x.md", pax_headers={"path": "a\0b.md"}), b"x"))
    assert "has a NUL in its name" in reason_of(path)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.SYMTYPE, "is a link"),
        (tarfile.LNKTYPE, "is a link"),
        (tarfile.CHRTYPE, "is a device, a socket or a pipe"),
        (tarfile.BLKTYPE, "is a device, a socket or a pipe"),
        (tarfile.FIFOTYPE, "is a device, a socket or a pipe"),
        (b"Z", "is a device, a socket or a pipe"),
    ],
)
def test_a_member_that_is_no_file(tmp_path: Path, kind: bytes, reason: str) -> None:
    path = archive(tmp_path, ("a/SKILL.md", SKILL), (member("a/x", kind, linkname="SKILL.md"), b""))
    assert reason in reason_of(path)


@pytest.mark.parametrize(
    "sparse",
    [
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9999999", "GNU.sparse.name": "a"},
        {"GNU.sparse.map": "0,1,9999998,1", "GNU.sparse.size": "9999999"},
        {"GNU.sparse.size": "9999999", "GNU.sparse.numblocks": "1", "GNU.sparse.offset": "0"},
    ],
)
def test_a_file_with_holes(tmp_path: Path, sparse: dict[str, str]) -> None:
    content = b"1\n0\n512\n".ljust(512, b"\0") + b"x" * 512
    assert reason_of(archive(tmp_path, (member("a.md", pax_headers=sparse), content)))
    assert "with holes in it" in reason_of(archive(tmp_path, (member("a.md", tarfile.GNUTYPE_SPARSE), b"x")))


def test_members_that_clash(tmp_path: Path) -> None:
    assert reason_of(archive(tmp_path, ("a.md", b"1"), ("./a.md", b"2"))) == "It holds 'a.md' twice."
    assert "can't tell" in reason_of(archive(tmp_path, ("a/Read.md", b"1"), ("a/READ.md", b"2")))
    assert "a file and a directory at once" in reason_of(archive(tmp_path, ("a", b"1"), ("a/b", b"2")))


def test_too_much_of_anything(tmp_path: Path) -> None:
    path = archive(tmp_path, ("a.md", b"12345"), ("b.md", b"12345"))
    assert "has more than 1 members" in reason_of(path, ArchiveLimits(members=1))
    assert "has 5 bytes unpacked" in reason_of(path, ArchiveLimits(file=4))
    assert "more than 9 bytes unpacked" in reason_of(path, ArchiveLimits(total=9))
    assert "packed more than 200 to 1" in reason_of(archive(tmp_path, ("a.md", b"0" * 2_000_000)))


@pytest.mark.parametrize("field", ["path", "comment"])
def test_a_note_about_a_member_that_is_the_bomb(tmp_path: Path, field: str) -> None:
    path = archive(tmp_path, (member("a.md", pax_headers={field: "x" * 2_000_000}), b"x"))
    assert "says that 2,0" in reason_of(path, ArchiveLimits(ratio=100_000))


@pytest.mark.parametrize("size", ["-512", "-1024", "99999999999999"])
def test_a_size_that_leads_elsewhere(tmp_path: Path, size: str) -> None:
    path = archive(tmp_path, ("a/SKILL.md", SKILL), (member("a/x", pax_headers={"size": size}), b"x"), ("a/y", b"y"))
    assert reason_of(path)


def test_ten_gigabytes_of_zeros_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    piece = gzip.compress(bytes(2**20))
    path.write_bytes(piece * (10 * 1024))
    tracemalloc.start()
    try:
        (entry,) = read_entries(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(entry, SkippedEntry)
    assert entry.name == "bomb"
    assert "to 1, as in a bomb" in entry.reason
    assert peak < 40 * 2**20


def _with_a_damaged_header(content: bytes) -> bytes:
    plain = bytearray(gzip.decompress(content))
    plain[2 * 512 + 150] ^= 0xFF  # in the checksum of the second member
    return gzip.compress(bytes(plain))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda _: b"",
        lambda _: b"\x1f\x8b",
        lambda content: content[5:],
        lambda content: gzip.compress(gzip.decompress(content)[: 512 + 10]),
        lambda _: gzip.compress(b"no tar at all"),
        _with_a_damaged_header,
    ],
)
def test_a_damaged_archive(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = archive(tmp_path, ("packed/SKILL.md", SKILL), ("packed/other.md", b"x"), format=tarfile.GNU_FORMAT)
    path.write_bytes(damage(path.read_bytes()))
    (entry,) = read_entries(path)
    assert isinstance(entry, SkippedEntry)


@given(data=st.data())
@law
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    path = archive(tmp_path, ("packed/SKILL.md", SKILL), ("packed/references/" + "a" * 120, b"a" * 500))
    content = bytearray(gzip.decompress(path.read_bytes()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(gzip.compress(bytes(content)))
    assert list(read_entries(path))
