"""Skills published by a site, and bounded downloads from untrusted hosts, pinned to the checked address."""

from __future__ import annotations

import gzip
import hashlib
import html
import http.client
import io
import ipaddress
import json
import queue
import re
import shutil
import socket
import ssl
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from habitus.errors import Invalid, NotFound, Refused, StorageFailed
from habitus.skills import names
from habitus.skills.formats import archives
from habitus.skills.formats.base import UnreadableEntryError

INDEX_SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
WELL_KNOWN_PATH = ".well-known/agent-skills"
INDEX_PATH = f"{WELL_KNOWN_PATH}/index.json"
PAGE_PATH = f"{WELL_KNOWN_PATH}/index.html"
_OLD_INDEX_PATH = ".well-known/skills/index.json"
_MAX_INDEX_BYTES = 4 << 20
_MAX_SKILLS = 1_000
_MAX_PATH_CHARS = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteIndexEntry:
    """A skill in a site's index: its name, and the URLs of its files or of one archive."""

    name: str
    urls: Mapping[str, str]  # path in the skill → URL; an archive has the empty path
    digest: str = ""


def read_site_index(address: str, policy: DownloadPolicy) -> list[SiteIndexEntry] | None:
    """Return the skills that a site publishes; None if it has no index."""
    base = address if address.endswith("/") else f"{address}/"
    for place in (INDEX_PATH, _OLD_INDEX_PATH):
        try:
            found = download_url(urljoin(base, place), policy, max_bytes=_MAX_INDEX_BYTES)
        except NotFound:
            continue
        offered = _parse_site_index(found, is_old=place == _OLD_INDEX_PATH)
        for url in [url for one in offered for url in one.urls.values()]:
            refuse_forbidden_host_change(found.url, url, policy)
        return offered
    return None


def download_site_skills_and_get_digests(
    entries: Sequence[SiteIndexEntry], into: Path, policy: DownloadPolicy
) -> dict[str, str]:
    """Download each skill into a folder of its name; return the digest of each."""
    digests: dict[str, str] = {}
    unpacked = 0
    for one in entries:
        folder = into / one.name
        for path, url in one.urls.items():
            content = download_url(url, policy).content
            digest = compute_content_digest(content)
            if one.digest and digest != one.digest:
                what = f"'{one.name}' is not what the index says: its digest differs."
                raise Invalid(what, hint="Tell the publisher; nothing was imported.")
            if path:
                _write_file(folder, path, content)
            else:
                unpacked += _unpack_skill_archive_and_get_size(folder, url, content, already_unpacked=unpacked)
            digests[one.name] = digest
    return digests


def compute_content_digest(content: bytes) -> str:
    """Return the SHA-256 digest of a content, as an index states it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


EXAM_KEY = "exam"  # of a row of the index: the publisher's claim, which other tools ignore


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillToPublish:
    """A skill to publish: an archive, or its SKILL.md alone; `exam` and `claim` are its exam card."""

    name: str
    description: str
    archive: bytes | None
    text: bytes
    exam: Mapping[str, Any] | None = None
    claim: str = ""


def build_site_files(skills: Sequence[SkillToPublish]) -> dict[str, bytes]:
    """Build the files of a site, by path."""
    files: dict[str, bytes] = {}
    rows: list[dict[str, Any]] = []
    for one in sorted(skills, key=lambda skill: skill.name):
        path = f"{one.name}.tar.gz" if one.archive is not None else f"{one.name}/SKILL.md"
        content = one.text if one.archive is None else one.archive
        files[f"{WELL_KNOWN_PATH}/{path}"] = content
        kind = "skill-md" if one.archive is None else "archive"
        row = {"name": one.name, "type": kind, "description": one.description, "url": path}
        exam = {} if one.exam is None else {EXAM_KEY: dict(one.exam)}
        rows.append({**row, "digest": compute_content_digest(content), **exam})
    index = json.dumps({"$schema": INDEX_SCHEMA, "skills": rows}, indent=2, ensure_ascii=False)
    return {**files, PAGE_PATH: _render_site_page(skills).encode(), INDEX_PATH: f"{index}\n".encode()}


def _render_site_page(skills: Sequence[SkillToPublish]) -> str:
    """Return the page that lists the skills of a site for people."""
    items = [
        f"<dt>{html.escape(one.name)}</dt><dd>{html.escape(one.description)}"
        f"{f'<br><small>{html.escape(one.claim)}</small>' if one.claim else ''}</dd>"
        for one in sorted(skills, key=lambda skill: skill.name)
    ]
    return "\n".join(
        ['<!doctype html><meta charset="utf-8"><title>Skills</title><h1>Skills</h1><dl>', *items, "</dl>", ""]
    )


def pack_reproducible_tar_gz(files: Mapping[str, bytes]) -> bytes:
    """Return a reproducible tar.gz archive of the files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(files[path]), 0o644
            archive.addfile(member, io.BytesIO(files[path]))
    # mtime=0 keeps the bytes, and so the digest, equal for equal files.
    return gzip.compress(plain.getvalue(), mtime=0)


def _parse_site_index(found: FetchedUrlContent, *, is_old: bool) -> list[SiteIndexEntry]:
    try:
        said = json.loads(found.content)
        schema, rows = said.get("$schema"), said["skills"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid(f"The index at {found.url} can't be read.", hint="Tell the publisher.") from None
    if schema not in (None, INDEX_SCHEMA):
        raise Invalid(f"The index at {found.url} is of a version that is not known here.", hint="Update Habitus.")
    if not isinstance(rows, list) or len(rows) > _MAX_SKILLS:
        raise Invalid(f"The index at {found.url} lists no or too many skills.", hint="Tell the publisher.")
    reader = _parse_old_index_row if is_old or schema is None else _parse_index_row
    return [reader(row, found.url) for row in rows]


def _parse_index_row(row: Any, index: str) -> SiteIndexEntry:
    match row:
        case {"name": str(name), "type": "skill-md" | "archive" as kind, "url": str(url), "digest": str(digest)} if (
            _DIGEST.fullmatch(digest)
        ):
            path = "SKILL.md" if kind == "skill-md" else ""
            return SiteIndexEntry(
                name=names.canonicalize_and_check_name(name), urls={path: _join_url(index, url)}, digest=digest
            )
        case _:
            raise Invalid(f"The index at {index} has an entry that can't be read.", hint="Tell the publisher.")


def _parse_old_index_row(row: Any, index: str) -> SiteIndexEntry:
    match row:
        case {"name": str(name), "files": list(files)} if files and all(isinstance(file, str) for file in files):
            name = names.canonicalize_and_check_name(name)
            odd = next((file for file in files if not _is_safe_relative_path(file)), None)
            if odd is not None:
                what = f"The index at {index} has a file name that can't be used: {odd[:80]!a}."
                raise Invalid(what, hint="Tell the publisher.")
            base = urljoin(index, f"{name}/")
            return SiteIndexEntry(name=name, urls={file: _join_url(base, file) for file in files})
        case _:
            raise Invalid(f"The index at {index} has an entry that can't be read.", hint="Tell the publisher.")


def _write_file(folder: Path, path: str, content: bytes) -> None:
    place = (folder / path).resolve()
    # The path comes from the index and may contain `..`.
    if not place.is_relative_to(folder.resolve()):
        raise Invalid(f"'{path}' would lie outside its skill.", hint="Tell the publisher.")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    # Such as `SKILL.md/x` beside `SKILL.md`.
    except OSError as error:
        raise Invalid(f"'{path}' can't be written: {error.strerror}.", hint="Tell the publisher.") from None


def _is_safe_relative_path(path: str) -> bool:
    parts = path.split("/")
    is_short = len(path) <= _MAX_PATH_CHARS and all(len(part.encode("utf-8", "replace")) <= 255 for part in parts)
    # A lone surrogate is not printable either.
    return is_short and path.isprintable() and not {"", "."} & set(parts)


def _unpack_skill_archive_and_get_size(folder: Path, url: str, content: bytes, *, already_unpacked: int) -> int:
    """Unpack an archive that has SKILL.md at its root; return its size. The archives of an index share one limit."""
    packed = folder.with_name(f"{folder.name}{_get_archive_suffix(url)}")
    packed.write_bytes(content)
    limits = archives.DEFAULT_LIMITS
    try:
        with archives.unpack_archive_to_temporary_folder(
            packed, name=folder.name, limits=replace(limits, total=limits.total - already_unpacked)
        ) as top:
            if not (top / "SKILL.md").is_file():
                raise UnreadableEntryError("There is no SKILL.md at its root.")
            size = sum(path.stat().st_size for path in top.rglob("*"))
            shutil.move(top, folder)
    except UnreadableEntryError as problem:
        raise Invalid(f"The archive of '{folder.name}' can't be used. {problem}", hint="") from None
    packed.unlink()
    return size


def _get_archive_suffix(url: str) -> str:
    path = urlsplit(url).path
    return ".zip" if path.endswith(".zip") else ".tar.gz"


MAX_DOWNLOAD_BYTES = 50 << 20
_MAX_REDIRECTS = 5
_MAX_HEAD_LINE = 1 << 16
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)


MAX_TOTAL_BYTES = 64 << 20
MAX_TOTAL_SECONDS = 60.0


class DownloadBudget:
    """Bytes and seconds for everything that one source makes this machine download."""

    def __init__(self, *, max_bytes: int = MAX_TOTAL_BYTES, seconds: float = MAX_TOTAL_SECONDS) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._seconds, self._until = seconds, time.monotonic() + seconds

    def get_seconds_left(self) -> float:
        """Return the seconds until the deadline; raise `StorageFailed` after it."""
        if (left := self._until - time.monotonic()) <= 0:
            hint = "Fetch it yourself, and import the file."
            raise StorageFailed(f"It took longer than {self._seconds:.0f} s to download.", hint=hint)
        return left

    def spend(self, count: int) -> None:
        """Count bytes as they arrive; raise `Invalid` if the total is exceeded."""
        self._bytes += count
        if self._bytes > self._max_bytes:
            hint = "Fetch it yourself, and import the file."
            raise Invalid(f"It is larger than {self._max_bytes >> 20} MB in all.", hint=hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadPolicy:
    """Limits of a download. `is_public_only` allows only https to the public internet, for requests from the web;
    `may_follow` is asked before another host.
    """

    is_public_only: bool = False
    # Whether git signs in with what it finds in the owner's home.
    uses_sign_ins: bool = True
    may_follow: Callable[[str, str], bool] = lambda here, there: False
    # Shared by all downloads from one source.
    budget: DownloadBudget = field(default_factory=DownloadBudget)


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedUrlContent:
    """The content of a URL."""

    url: str  # after redirects
    content: bytes


def download_url(url: str, policy: DownloadPolicy, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> FetchedUrlContent:
    """Download a URL, following allowed redirects; raise `NotFound` if the server doesn't have it."""
    for _ in range(_MAX_REDIRECTS + 1):
        at = urlsplit(url)
        answer = _get_body_or_redirect_location(at, policy, max_bytes)
        if isinstance(answer, bytes):
            return FetchedUrlContent(url=url, content=answer)
        following = _join_url(url, answer)
        refuse_forbidden_host_change(url, following, policy)
        url = following
    raise StorageFailed(f"{urlsplit(url).hostname} redirects too often.", hint="Give the final address.")


def _join_url(base: str, reference: str) -> str:
    """Return the URL that a server's reference leads to; raise `Invalid` if it is none."""
    refuse_malformed_url(reference)
    return urljoin(base, reference)


def refuse_malformed_url(text: str) -> None:
    """Raise `Invalid` for a text that can't be parsed as a URL, such as `http://[`."""
    try:
        urlsplit(text.encode().decode())
    # A lone surrogate is a ValueError, too.
    except ValueError:
        raise Invalid(f"{text[:80]!a} is no address that can be fetched.", hint="Give https://….") from None


def refuse_forbidden_host_change(url: str, following: str, policy: DownloadPolicy) -> None:
    """Raise `Refused` if a URL leads to another host that may not be followed."""
    at, there = urlsplit(url), urlsplit(following)
    if there.hostname != at.hostname and not _may_follow_redirect(at, there, policy):
        hint = f"If you trust that, add it: {following[:200]}"
        raise Refused(f"{at.hostname} redirects to {there.hostname}.", hint=hint)


def resolve_public_address(host: str, port: int, budget: DownloadBudget) -> str:
    """Return an IP address of a host; raise `Refused` unless all its addresses are public."""
    found = _resolve_addresses(host, port, budget)
    for address in found:
        # All addresses, because the connection could use any; the zone id of IPv6 doesn't parse.
        if not _is_public_address(address.partition("%")[0]):
            hint = "Only the owner adds from there, with 'habitus skills add' where Habitus runs."
            raise Refused(f"{host} is not on the public internet.", hint=hint)
    return found[0]


# Addresses that carry an IPv4 address inside, which a gateway may lead to a private one: NAT64, 6to4, Teredo, and
# compatible or mapped ones.
_TRANSLATED_NETWORKS = tuple(
    map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::ffff:0:0/96", "::/96"))
)


def _is_public_address(text: str) -> bool:
    address = ipaddress.ip_address(text)
    is_translated = any(address in network for network in _TRANSLATED_NETWORKS)
    is_site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not is_translated and not is_site_local


def _may_follow_redirect(at: SplitResult, there: SplitResult, policy: DownloadPolicy) -> bool:
    if policy.is_public_only:
        # The new address is checked like the first.
        return there.scheme == "https"
    return policy.may_follow(at.hostname or "", there.hostname or "")


def _get_body_or_redirect_location(at: SplitResult, policy: DownloadPolicy, max_bytes: int) -> bytes | str:
    """Return the response body, or the location of a redirect."""
    host = at.hostname or ""
    if not host or at.scheme not in ("https", "http"):
        raise Invalid(f"'{at.geturl()[:200]}' is no address that can be fetched.", hint="Give https://….")
    if at.scheme == "http" and (policy.is_public_only or not _is_loopback(host)):
        raise Refused(f"{host} would be asked without encryption.", hint="Give https://….")
    budget = policy.budget
    lines: list[socket.socket] = []
    # A server that sends one byte at a time, of its handshake too, would pass every time-out of a single read.
    deadline = threading.Timer(budget.get_seconds_left(), _cut_connections, [lines])
    deadline.start()
    try:
        connection = _open_connection(at, host, policy, budget, lines)
        path = f"{at.path or '/'}{f'?{at.query}' if at.query else ''}"
        connection.request("GET", path, headers={"User-Agent": "habitus", "Accept": "*/*"})
        answer = connection.getresponse()
        if answer.status in _REDIRECT_STATUSES and (place := answer.getheader("Location")):
            return place
        if answer.status in (404, 410):
            raise NotFound(f"{host} has no {unquote(at.path) or '/'}.", hint="Check the address.")
        if answer.status != 200:
            raise StorageFailed(f"{host} answered {answer.status} {answer.reason}.", hint="Try again later.")
        return _read_body(answer, host, max_bytes, budget)
    # ValueError: a URL that can't be encoded.
    except (OSError, ValueError, http.client.HTTPException) as error:
        budget.get_seconds_left()
        raise StorageFailed(
            f"{host} can't be read: {ascii(str(error))[1:-1] or type(error).__name__}.", hint="Try again later."
        ) from None
    finally:
        deadline.cancel()
        for line in lines:
            line.close()


def _read_body(answer: http.client.HTTPResponse, host: str, max_bytes: int, budget: DownloadBudget) -> bytes:
    """Read a response in pieces, within its own limit and the budget."""
    content = bytearray()
    while piece := answer.read1(1 << 16):
        budget.spend(len(piece))
        content += piece
        if len(content) > max_bytes:
            hint = "Fetch it yourself, and import the file."
            raise Invalid(f"{host} sends more than {max_bytes >> 20} MB.", hint=hint)
    budget.get_seconds_left()
    if answer.length:
        raise http.client.IncompleteRead(bytes(content[:80]), answer.length)
    return bytes(content)


def _cut_connections(lines: Sequence[socket.socket]) -> None:
    for line in lines:
        with suppress(OSError):
            # Not the method of a TLS socket, which forgets its state while another thread reads.
            socket.socket.shutdown(line, socket.SHUT_RDWR)


def _open_connection(
    at: SplitResult, host: str, policy: DownloadPolicy, budget: DownloadBudget, lines: list[socket.socket]
) -> http.client.HTTPConnection:
    """Connect to the checked address, whatever the name resolves to a moment later; `lines` gets what is opened."""
    port = at.port or (443 if at.scheme == "https" else 80)
    # Behind a proxy the address can't be pinned, so public-only requests go direct.
    proxy = urlsplit("" if policy.is_public_only or proxy_bypass(host) else getproxies().get(at.scheme, ""))
    try:
        if proxy.hostname:
            proxy_port = proxy.port or 3128
            line = _connect_to_first_answering_address(
                _resolve_addresses(proxy.hostname, proxy_port, budget), proxy_port, budget, lines
            )
            _open_tunnel(line, host, port)
        elif policy.is_public_only:
            line = _connect_to_first_answering_address(
                [resolve_public_address(host, port, budget)], port, budget, lines
            )
        else:
            line = _connect_to_first_answering_address(_resolve_addresses(host, port, budget), port, budget, lines)
        connection = http.client.HTTPConnection(host, port)
        connection.sock = _wrap_tls(line, host, lines) if at.scheme == "https" else line
    except OSError as error:
        budget.get_seconds_left()
        raise StorageFailed(f"{host} can't be reached: {error}.", hint="Check the address and the network.") from None
    return connection


def _connect_to_first_answering_address(
    addresses: Sequence[str], port: int, budget: DownloadBudget, lines: list[socket.socket]
) -> socket.socket:
    """Connect to the first address that answers; all share the time that is left."""
    for left in range(len(addresses), 0, -1):
        timeout = budget.get_seconds_left() / left
        try:
            lines.append(socket.create_connection((addresses[-left], port), timeout=timeout))
        except OSError:
            if left == 1:
                raise
            continue
        lines[-1].settimeout(budget.get_seconds_left())
        break
    return lines[-1]


def _open_tunnel(line: socket.socket, host: str, port: int) -> None:
    """Ask a proxy for a connection to the host."""
    line.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    # Unbuffered, because what follows the head belongs to the host.
    with line.makefile("rb", buffering=0) as answer:
        status = answer.readline(_MAX_HEAD_LINE)
        while answer.readline(_MAX_HEAD_LINE).strip():
            pass
    if status.split()[1:2] != [b"200"]:
        raise OSError(f"the proxy answers {status.decode('latin-1').strip()!a}")


def _wrap_tls(line: socket.socket, host: str, lines: list[socket.socket]) -> ssl.SSLSocket:
    wrapped = ssl.create_default_context().wrap_socket(line, server_hostname=host, do_handshake_on_connect=False)
    lines.append(wrapped)
    wrapped.do_handshake()
    return wrapped


def _resolve_addresses(host: str, port: int, budget: DownloadBudget) -> list[str]:
    """Return the addresses of a host, waiting for the resolver until the deadline."""
    answers: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()

    def ask_resolver() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put([str(info[4][0]) for info in found])
        except (OSError, UnicodeError) as error:
            answers.put(error)

    # Nothing ends a call of the resolver, so it is left behind.
    threading.Thread(target=ask_resolver, daemon=True).start()
    while True:
        with suppress(queue.Empty):
            answer = answers.get(timeout=budget.get_seconds_left())
            break
    if isinstance(answer, Exception):
        raise StorageFailed(f"{host} is not known: {answer}.", hint="Check the address.")
    return answer


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
