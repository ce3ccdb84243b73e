from __future__ import annotations

import io
import resource
import stat
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.formats.archives import ArchiveLimits
from habitus.skills.formats.base import IncomingSkill, SkippedEntry
from habitus.skills.formats.detect import read_entries
from tests.skills.formats.made import law, of_kind, only, reason_of

pytestmark = pytest.mark.req("SK-18")

SKILL = "---\nname: packed\ndescription: Came in an archive.\n---\n\nUnpack it.\n"


def archive(tmp_path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], name: str = "skills.zip") -> Path:
    path = tmp_path / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for member, content in members:
            out.writestr(member, content)
    return path


def member(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize("name", ["packed.zip", "packed.skill", "no-suffix"])
def test_a_skill_in_an_archive(tmp_path: Path, name: str) -> None:
    path = archive(
        tmp_path, ("packed/SKILL.md", SKILL.encode()), (member("packed/scripts/run.sh", 0o100755), b"x"), name=name
    )
    entry = only(read_entries(path))
    assert (entry.name, entry.origin) == ("packed", name)
    assert entry.tree["scripts/run.sh"].executable
    assert entry.format == "skill"


def test_an_archive_whose_root_is_the_skill_is_named_by_its_file(tmp_path: Path) -> None:
    path = archive(tmp_path, ("SKILL.md", SKILL.encode()), ("__MACOSX/._x", b""), name="download (3).zip")
    assert only(read_entries(path)).name == "packed"
    wrapped = archive(tmp_path, ("repo-main/SKILL.md", SKILL.encode()), name="repo-main.zip")
    assert only(read_entries(wrapped)).name == "packed"
    nameless = archive(tmp_path, ("SKILL.md", SKILL.replace("name: packed\n", "").encode()), name="My Skill.zip")
    assert only(read_entries(nameless)).name == "my-skill"


def test_other_layouts_are_found_in_an_archive(tmp_path: Path) -> None:
    path = archive(tmp_path, ("a_b/declarative.md", b"Do."), ("c/SKILL.md", SKILL.encode()))
    assert [(entry.name, entry.format) for entry in of_kind(read_entries(path), IncomingSkill)] == [
        ("a-b", "anton"),
        ("c", "skill"),
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../evil", "leads out of the archive"),
        ("a/../../evil", "leads out of the archive"),
        ("/etc/passwd", "has an absolute path"),
        ("\\\\host\\share", "has an absolute path"),
        ("C:\\evil", "names a drive"),
        ("c:evil", "names a drive"),
        ("a\\..\\b", "has a backslash"),
        ("a//b", "has an empty part"),
        ("./a", "has an empty part"),
        ("a/./b", "has an empty part"),
        ("docs/NUL", "has the name of a device"),
        ("com1.txt", "has the name of a device"),
        ("a/lpt9.tar.gz", "has the name of a device"),
        ("a\x01b", "has control characters"),
        ("a\nb", "has control characters"),
        ("x" * 300, "has too long a name"),
        ("a/" * 1200 + "b", "has too long a name"),
    ],
)
def test_a_path_that_is_none_inside(tmp_path: Path, name: str, reason: str) -> None:
    info = zipfile.ZipInfo("x")
    info.filename = name
    assert reason in reason_of(archive(tmp_path, ("good/SKILL.md", SKILL.encode()), (info, b"x")))


def test_a_nul_in_a_name(tmp_path: Path) -> None:
    path = archive(tmp_path, ("aXb.md", b"x"))
    path.write_bytes(path.read_bytes().replace(b"aXb.md", b"a\0b.md"))
    assert "has a NUL in its name" in reason_of(path)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (stat.S_IFLNK | 0o777, "is a link"),
        (stat.S_IFCHR | 0o666, "is a device, a socket or a pipe"),
        (stat.S_IFIFO | 0o666, "is a device, a socket or a pipe"),
        (stat.S_IFSOCK | 0o666, "is a device, a socket or a pipe"),
    ],
)
def test_a_member_that_is_no_file(tmp_path: Path, mode: int, reason: str) -> None:
    assert reason in reason_of(archive(tmp_path, (member("a/x", mode), b"/etc/passwd")))


def test_members_that_clash(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = archive(tmp_path, ("a.md", b"1"), ("a.md", b"2"))
    assert reason_of(twice) == "It holds 'a.md' twice."
    assert "can't tell" in reason_of(archive(tmp_path, ("a/Read.md", b"1"), ("a/READ.md", b"2")))
    assert "can't tell" in reason_of(archive(tmp_path, ("é.md", b"1"), ("e\u0301.md", b"2")))
    assert "a file and a directory at once" in reason_of(archive(tmp_path, ("a", b"1"), ("a/b", b"2")))


def test_an_encrypted_member(tmp_path: Path) -> None:
    path = archive(tmp_path, ("a.md", b"x"))
    content = bytearray(path.read_bytes())
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + at] |= 1
    path.write_bytes(bytes(content))
    assert reason_of(path) == "'a.md' is encrypted."


def test_a_member_packed_in_a_rare_way(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as out:
        out.writestr("a.md", b"x")
    assert "packed in a way that is not read here" in reason_of(path)


def test_too_much_of_anything(tmp_path: Path) -> None:
    path = archive(tmp_path, ("a.md", b"12345"), ("b.md", b"12345"))
    assert "has 2 members" in reason_of(path, ArchiveLimits(members=1))
    assert "has 5 bytes unpacked" in reason_of(path, ArchiveLimits(file=4))
    assert "more than 9 bytes unpacked" in reason_of(path, ArchiveLimits(total=9))
    assert "table of contents" in reason_of(path, ArchiveLimits(contents=10))
    dense = archive(tmp_path, ("a.md", b"0" * 2_000_000))
    assert "packed more than 200 to 1" in reason_of(dense)


def bomb(declared: int) -> bytes:
    """Ten gigabytes of zeros in one deflated member, in an archive that declares `declared` bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    repeat = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = piece + repeat * (10 * 1024 - 1) + packer.flush()
    name = b"zeros/SKILL.md"
    fields = (20, 0, 8, 0, 0, 0, len(packed), declared, len(name))
    local = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *fields, 0) + name + packed
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 20, *fields, 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


@pytest.mark.some(2)
@pytest.mark.parametrize("declared", [10 * 2**30 % 2**32, 64 * 2**20, 1000])
def test_ten_gigabytes_of_zeros_cost_nothing(tmp_path: Path, declared: int) -> None:
    path = tmp_path / "bomb.zip"
    path.write_bytes(bomb(declared))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        (entry,) = read_entries(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(entry, SkippedEntry)
    assert entry.name == "bomb"
    assert peak < 40 * 2**20
    # In KiB; what an earlier test of this process, or of the one that started it, took is no concern of this one.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20


def test_a_table_of_contents_that_is_the_bomb(tmp_path: Path) -> None:
    path = archive(tmp_path, ("a.md", b"x"))
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x05\x06")
    struct.pack_into("<I", content, at + 12, 0xFFFFFFFF)
    path.write_bytes(bytes(content))
    assert "above 4 GB" in reason_of(path)


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flipped(content: bytes) -> bytes:
    return content.replace(b"Unpack", b"unpack")


@pytest.mark.parametrize(
    "damage", [_cut, lambda _: b"", lambda _: b"PK\x05\x06", lambda content: content[5:], _flipped]
)
def test_a_damaged_archive(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        out.writestr("packed/SKILL.md", SKILL)
    path.write_bytes(damage(path.read_bytes()))
    (entry,) = read_entries(path)
    assert isinstance(entry, SkippedEntry)


def test_a_name_that_begins_with_a_nul_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("packed/SKILL.md", SKILL)
    content = buffer.getvalue()
    at = content.rindex(b"packed/SKILL.md")
    path = tmp_path / "x.zip"
    path.write_bytes(content[:at] + b"\0" + content[at + 1 :])
    (entry,) = read_entries(path)
    assert isinstance(entry, SkippedEntry)


@given(data=st.data())
@law
def test_no_damage_raises(tmp_path: Path, data: st.DataObject) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("packed/SKILL.md", SKILL)
        out.writestr("packed/references/a.md", "a" * 500)
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "x.zip"
    path.write_bytes(bytes(content))
    assert list(read_entries(path))
