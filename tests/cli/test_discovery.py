"""Skills that a site publishes: found by its index, checked by digest, followed by `update`; and publishing them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from habitus.errors import Invalid, Refused, StorageFailed
from habitus.skills.sources import discovery, fetching
from habitus.skills.sources.discovery import DownloadBudget, DownloadPolicy, download_url, resolve_public_address
from habitus.skills.sources.fetching import fetch_source
from habitus.skills.sources.lockfiles import compute_npx_hash
from tests.cli.conftest import Direct
from tests.homes import furnish

pytestmark = pytest.mark.req("CL-10")

INDEX = ".well-known/agent-skills/index.json"
# NAT64, 6to4, Teredo and mapped addresses lead to an IPv4 address; multicast to whoever listens.
TRANSLATED = (
    "64:ff9b::a01:203",
    "2002:a01:203::1",
    "2001::1",
    "::ffff:10.1.2.3",
    "::10.1.2.3",
    "224.0.0.251",
    "ff0e::1",
)


class Quiet(SimpleHTTPRequestHandler):
    moved = ""  # where everything is instead

    def do_GET(self) -> None:
        if self.moved:
            self.send_response(302)
            self.send_header("Location", f"{self.moved}{self.path}")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path, moved: str = "") -> Iterator[str]:
    handler = type("Handler", (Quiet,), {"moved": moved})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def other(direct: Direct, tmp_path: Path) -> Direct:
    """Somebody with a home of their own."""
    cli = replace(direct.cli, home=furnish(tmp_path / "elsewhere"), user_home=tmp_path / "her")
    return replace(direct, cli=cli)


@pytest.fixture
def published(direct: Direct, tmp_path: Path) -> Path:
    """A site with one skill of one file and one of two."""
    direct.ok("skills", "new", "tidy-inbox", "--description", "Tidies an inbox.")
    direct.ok("skills", "new", "csv-sum", "--description", "Sums a CSV file.", "--tags", "shared")
    (direct.home / "skills/csv-sum/references").mkdir()
    (direct.home / "skills/csv-sum/references/notes.md").write_text("Read the header first.\n")
    said = direct.ok("skills", "publish", str(tmp_path / "site"), "tidy-inbox", "--tag", "shared")
    assert "2 skills in" in said
    return tmp_path / "site"


def rows(site: Path) -> dict[str, Any]:
    return {row["name"]: row for row in json.loads((site / INDEX).read_text())["skills"]}


def test_what_is_published_is_added_elsewhere_locked_and_followed(
    direct: Direct, other: Direct, published: Path
) -> None:
    index = rows(published)
    assert {name: row["type"] for name, row in index.items()} == {"csv-sum": "archive", "tidy-inbox": "skill-md"}
    with serving(published) as address:
        taken = other.json("skills", "add", address)
        assert {one["name"]: one["verdict"] for one in taken["results"]} == dict.fromkeys(index, "imported")
        locked = json.loads((other.home / "habitus-lock.json").read_text())["skills"]
        assert {name: one["digest"] for name, one in locked.items()} == {n: r["digest"] for n, r in index.items()}
        assert {one["address"] for one in locked.values()} == {address}
        assert (other.home / "skills/csv-sum/references/notes.md").read_text() == "Read the header first.\n"
        direct.ok("skills", "edit", "tidy-inbox", "--append", "9. Archive what is done.")
        direct.ok("skills", "publish", str(published))
        (change,) = other.json("skills", "update")["changes"]
        assert (change["name"], "+9. Archive what is done." in change["diff"]) == ("tidy-inbox", True)
    direct.ok("skills", "publish", str(published), "csv-sum", "--remove")
    assert list(rows(published)) == ["tidy-inbox"]
    assert not list(published.rglob("*.tar.gz"))


@pytest.mark.req("CL-11")
@pytest.mark.parametrize("scope", ["project", "global"])
@pytest.mark.parametrize("named", ["", "/.well-known/agent-skills/tidy-inbox/SKILL.md"])
def test_what_npx_skills_took_from_a_site_is_updated(
    direct: Direct, other: Direct, published: Path, named: str, scope: str
) -> None:
    folder = (other.cli.cwd if scope == "project" else other.cli.user_home) / ".agents/skills"
    (folder / "tidy-inbox").mkdir(parents=True)
    shutil.copy(published / ".well-known/agent-skills/tidy-inbox/SKILL.md", folder / "tidy-inbox")
    with serving(published) as address:
        entry = {"source": address.partition("//")[2], "sourceUrl": f"{address}{named}", "sourceType": "well-known"}
        if scope == "project":
            (other.cli.cwd / ".git").mkdir(exist_ok=True)
            entry["computedHash"] = compute_npx_hash(folder / "tidy-inbox")
            file, version = other.cli.cwd / "skills-lock.json", 1
        else:
            at = "2026-08-01T00:00:00.000Z"
            entry |= {"skillFolderHash": "", "installedAt": at, "updatedAt": at}
            file, version = other.cli.user_home / ".agents/.skill-lock.json", 3
        file.write_text(json.dumps({"version": version, "skills": {"tidy-inbox": entry}}))
        direct.ok("skills", "edit", "tidy-inbox@user", "--append", "9. Archive what is done.")
        direct.ok("skills", "publish", str(published))
        ran = other("skills", "update", "tidy-inbox")
        assert (ran.code, "updated   tidy-inbox" in ran.out) == (0, True), ran
    assert (folder / "tidy-inbox/SKILL.md").read_text().endswith("9. Archive what is done.\n")
    kept = json.loads(file.read_text())["skills"]["tidy-inbox"]
    assert (kept["sourceType"], kept["sourceUrl"]) == ("well-known", entry["sourceUrl"])


def test_what_is_not_as_the_index_says_is_not_taken(other: Direct, published: Path) -> None:
    place = published / ".well-known/agent-skills/tidy-inbox/SKILL.md"
    place.write_text(place.read_text() + "And one more thing.\n")
    with serving(published) as address:
        ran = other("skills", "add", address)
    assert (ran.code, ran.out) == (1, "")
    assert "'tidy-inbox' is not what the index says: its digest differs." in ran.err
    assert other.own() == []


def test_an_index_of_an_unknown_version_is_not_processed_and_the_first_version_is(
    other: Direct, published: Path
) -> None:
    index = published / INDEX
    said = json.loads(index.read_text())
    index.write_text(json.dumps({**said, "$schema": "https://example.org/9.9"}))
    with serving(published) as address:
        assert "of a version that is not known here" in other("skills", "add", address).err
        index.unlink()
        old = published / ".well-known/skills"
        (old / "greet").mkdir(parents=True)
        (old / "greet/SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
        (old / "index.json").write_text(json.dumps({"skills": [{"name": "greet", "files": ["SKILL.md"]}]}))
        other.ok("skills", "add", address)
    assert [one["name"] for one in other.own()] == ["greet"]


def test_an_archive_is_added_by_its_address(other: Direct, published: Path) -> None:
    with serving(published) as address:
        other.ok("skills", "add", f"{address}/.well-known/agent-skills/csv-sum.tar.gz?v=2&token=a1b2c3")
    assert [one["name"] for one in other.own()] == ["csv-sum"]
    kept = [file.read_bytes() for file in other.home.rglob("*") if file.is_file()]
    assert any(b"csv-sum.tar.gz?v=2" in content for content in kept)
    assert not any(b"a1b2c3" in content for content in kept)  # nobody else needs what opened it


def test_another_host_is_followed_only_after_a_yes(other: Direct, published: Path) -> None:
    with serving(published) as address, serving(published, moved=address.replace("127.0.0.1", "localhost")) as first:
        ran = other("skills", "add", first)
        assert "127.0.0.1 redirects to localhost." in ran.err
        found = download_url(f"{first}/{INDEX}", DownloadPolicy(may_follow=lambda here, there: there == "localhost"))
    assert discovery.compute_content_digest(found.content) == discovery.compute_content_digest(
        (published / INDEX).read_bytes()
    )


def test_an_index_that_names_another_host_is_refused_before_it_is_asked(other: Direct, published: Path) -> None:
    index = published / INDEX
    said = json.loads(index.read_text())
    said["skills"][0]["url"] = "http://localhost:9/secret"
    index.write_text(json.dumps(said))
    with serving(published) as address:
        assert "127.0.0.1 redirects to localhost." in other("skills", "add", address).err
    assert other.own() == []


@pytest.mark.parametrize("wanted", ["http://example.org/x.zip", "/etc", "ssh://host/x", "file:///etc", "../up"])
def test_over_the_web_only_public_https_is_asked(tmp_path: Path, wanted: str) -> None:
    with (
        pytest.raises(Refused),
        fetch_source(wanted, cwd=tmp_path, environ={}, policy=DownloadPolicy(is_public_only=True)),
    ):
        pass


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fec0::1", "localhost", *TRANSLATED]
)
def test_private_addresses_are_refused(host: str) -> None:
    with pytest.raises(Refused, match="not on the public internet"):
        resolve_public_address(host, 443, DownloadBudget())


def _publish_files(site: Path, files: list[str]) -> None:
    old = site / ".well-known/skills"
    (old / "greet").mkdir(parents=True, exist_ok=True)
    (old / "greet/SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    (old / "index.json").write_text(json.dumps({"skills": [{"name": "greet", "files": files}]}))


@pytest.mark.parametrize("odd", [".", "a" * 5_000, "\ud800.md", "a//b", "", "\x1b[2Jx"])
def test_an_odd_file_name_of_an_index_is_refused_in_a_line(other: Direct, tmp_path: Path, odd: str) -> None:
    _publish_files(tmp_path / "site", ["SKILL.md", odd])
    with serving(tmp_path / "site") as address:
        ran = other("skills", "add", address)
    assert (ran.code, "Traceback" in ran.err, other.own()) == (1, False, [])
    assert len(ran.err.strip().splitlines()) <= 3
    assert "\x1b" not in ran.err
    assert "has a file name that can't be used" in ran.err


@pytest.mark.parametrize("odd", ["http://[", "https://[::1", "https://\ud800/", "http://a\u2100b/"])
def test_a_text_that_is_no_url_is_refused_in_a_line(
    other: Direct, published: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    """Given as the address, in an index, and by a redirect."""
    index = published / INDEX
    said = json.loads(index.read_text())
    said["skills"][0]["url"] = odd
    index.write_text(json.dumps(said))
    moved = "http://["  # what else there is can't be sent in a header
    with serving(published) as address, serving(published, moved=moved) as redirecting:
        for source in (odd, address, redirecting):
            ran = other("skills", "add", source)
            assert (ran.code, len(ran.err.strip().splitlines())) == (1, 1)
            assert "is no address that can be fetched" in ran.err
    assert other.own() == []


def test_all_archives_of_an_index_share_one_limit_of_what_they_unpack_to(other: Direct, tmp_path: Path) -> None:
    """Each is within the limits, and packed 150 to 1."""
    noise = os.urandom(1 << 10) + bytes(150 << 10)
    large = (noise * 400)[: 55 << 20]
    text = "---\nname: {name}\ndescription: Greets.\n---\n1. Say hello.\n"
    packed = discovery.pack_reproducible_tar_gz(
        {"SKILL.md": text.encode(), **{f"{number}.bin": large for number in range(3)}}
    )
    folder = (tmp_path / "site" / INDEX).parent
    folder.mkdir(parents=True)
    (folder / "large.tar.gz").write_bytes(packed)
    row = {"type": "archive", "url": "large.tar.gz", "digest": discovery.compute_content_digest(packed)}
    listed = [{"name": f"greet-{number}", "description": "Greets.", **row} for number in range(4)]
    (folder / "index.json").write_text(json.dumps({"$schema": discovery.INDEX_SCHEMA, "skills": listed}))
    with serving(tmp_path / "site") as address:
        ran = other("skills", "add", address)
    assert ran.code == 1
    assert "The archive of 'greet-1' can't be used. It has more than" in ran.err


def test_a_file_of_an_index_that_is_a_folder_too_is_refused_in_a_line(other: Direct, tmp_path: Path) -> None:
    # The server ignores what follows the question mark, so it has both.
    _publish_files(tmp_path / "site", ["SKILL.md", "a?", "a?/x"])
    (tmp_path / "site/.well-known/skills/greet/a").write_text("x")
    with serving(tmp_path / "site") as address:
        ran = other("skills", "add", address)
    assert (ran.code, "'a?/x' can't be written" in ran.err, other.own()) == (1, True, [])


def test_everything_of_a_source_counts_towards_one_total(other: Direct, tmp_path: Path) -> None:
    _publish_files(tmp_path / "site", ["SKILL.md", *(f"{number}.bin" for number in range(4))])
    for number in range(4):
        with (tmp_path / "site/.well-known/skills/greet" / f"{number}.bin").open("wb") as file:
            file.truncate(30 << 20)
    with serving(tmp_path / "site") as address:
        ran = other("skills", "add", address)
    assert ran.code == 1
    assert "It is larger than 64 MB in all." in ran.err


@pytest.mark.parametrize("is_slow_from_the_start", [True, False])
def test_a_server_that_sends_a_byte_at_a_time_is_cut_off(is_slow_from_the_start: bool) -> None:
    gone = threading.Event()

    class Slow(Quiet):
        def do_GET(self) -> None:
            if not is_slow_from_the_start:
                self.send_response(200)
                self.end_headers()
            for _ in range(600):
                if gone.wait(0.1):
                    return
                try:
                    self.wfile.write(b"H")
                    self.wfile.flush()
                except OSError:
                    return

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        began = time.monotonic()
        policy = DownloadPolicy(budget=discovery.DownloadBudget(seconds=1))
        try:
            with pytest.raises(StorageFailed, match="It took longer than 1 s"):
                download_url(f"http://127.0.0.1:{server.server_port}/x", policy)
        finally:
            gone.set()
            server.shutdown()
            thread.join()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("sends", [b"", b"\x16\x03\x03\x40\x00"])
@pytest.mark.parametrize("is_behind_proxy", [True, False])
def test_a_server_that_never_finishes_tls_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, sends: bytes, is_behind_proxy: bool
) -> None:
    """It accepts and says nothing, or sends a byte of its handshake now and then."""
    gone = threading.Event()

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            line, _ = listener.accept()
            with line:
                if is_behind_proxy:
                    assert line.recv(100).startswith(b"CONNECT localhost:443 ")
                    line.sendall(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n")
                line.sendall(sends)
                while not gone.wait(0.1):
                    line.sendall(sends and b"\0")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (thread := threading.Thread(target=accept, args=[listener])).start()
        if is_behind_proxy:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("no_proxy", "")
        began = time.monotonic()
        try:
            url = f"https://localhost{'' if is_behind_proxy else f':{port}'}/x"
            with pytest.raises(StorageFailed, match="It took longer than 1 s"):
                download_url(url, DownloadPolicy(budget=DownloadBudget(seconds=1)))
        finally:
            gone.set()
        assert time.monotonic() - began < 10
        thread.join()


def test_a_resolver_that_hangs_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = threading.Event()

    def hang(*_: object, **__: object) -> list[Any]:
        gone.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    began = time.monotonic()
    for is_public_only in (True, False):
        policy = DownloadPolicy(is_public_only=is_public_only, budget=DownloadBudget(seconds=0.5))
        with pytest.raises(StorageFailed, match="It took longer than 0 s"):
            download_url("https://example.org/x", policy)
    with pytest.raises(StorageFailed, match="It took longer than 0 s"):
        resolve_public_address("example.org", 443, DownloadBudget(seconds=0.5))
    gone.set()
    assert time.monotonic() - began < 10


def test_all_addresses_of_a_name_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host that drops packets each address got the whole time."""
    asked: list[float] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append(timeout)
        time.sleep(timeout)
        raise TimeoutError("timed out")

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{number}", 443)) for number in range(8)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(StorageFailed, match="It took longer than 1 s"):
        download_url("https://example.org/x", DownloadPolicy(budget=DownloadBudget(seconds=0.8)))
    assert (len(asked), sum(asked) < 1) == (8, True)


def test_what_may_not_go_out_is_not_published(direct: Direct, tmp_path: Path) -> None:
    key = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzCaa"
    direct.ok("skills", "new", "deploy", "--description", "Deploys.")
    (direct.home / "skills/deploy/notes.md").write_text(f"token {key}\n")
    ran = direct("skills", "publish", str(tmp_path / "site"), "deploy")
    assert (ran.code, "notes.md holds what looks like a key" in ran.err) == (1, True)
    assert key not in ran.err
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("grows", [".git/pack", "unpacked.bin"])
def test_a_clone_that_grows_too_large_is_killed_with_its_helpers(tmp_path: Path, grows: str) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    script = f'for last; do :; done\nmkdir -p "$last/.git"\ntruncate -s 100M "$last/{grows}"\nsleep 5417 &\nwait\n'
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    environ = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    with (
        pytest.raises(Invalid, match="larger than 64 MB"),
        fetch_source("file:///x.git", cwd=tmp_path, environ=environ),
    ):
        pytest.fail("It was fetched.")
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x005417" in path.read_bytes()]


def test_a_clone_that_hangs_ends_at_the_deadline() -> None:
    with subprocess.Popen(["sleep", "60"], process_group=0, stdout=-1, stderr=-1, text=True) as hanging:
        with pytest.raises(StorageFailed, match="longer than 0 s"):
            fetching._wait_for_git(hanging, DownloadBudget(seconds=0.3), None)
        assert hanging.poll() == -signal.SIGKILL
