"""Downloading over https from strangers: bounded, from the address that was checked, elsewhere only if allowed."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from habitus.errors import Invalid, NotFound, Refused, StorageFailed

LARGEST = 50 << 20
_MOST_REDIRECTS = 5
_SECONDS = 60
_REDIRECTS = (301, 302, 303, 307, 308)


def _never(here: str, there: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """How far a download may go. `is_public_only`: over https to addresses of the public internet, for whoever asks
    over the web; `may_follow` is asked before another host is."""

    is_public_only: bool = False
    may_follow: Callable[[str, str], bool] = _never


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    url: str  # where it was in the end
    content: bytes


def download(url: str, reach: Reach = Reach(), *, largest: int = LARGEST) -> Download:  # noqa: B008  # frozen
    """`NotFound` where the server has no such thing."""
    for _ in range(_MOST_REDIRECTS + 1):
        at = urlsplit(url)
        answer = _ask(at, reach, largest)
        if isinstance(answer, bytes):
            return Download(url=url, content=answer)
        following = urljoin(url, answer)
        refuse_elsewhere(url, following, reach)
        url = following
    raise StorageFailed(f"{urlsplit(url).hostname} sends from place to place.", mend="Give the last address itself.")


def refuse_elsewhere(url: str, following: str, reach: Reach) -> None:
    """Raise where an address leads to one of another host that may not be asked."""
    at, there = urlsplit(url), urlsplit(following)
    if there.hostname != at.hostname and not _follows(at, there, reach):
        mend = f"If you trust that, add it: {following[:200]}"
        raise Refused(f"{at.hostname} sends on to {there.hostname}.", mend=mend)


def public_address(host: str, port: int) -> str:
    """The address of a host, all of whose addresses are of the public internet."""
    found = _addresses(host, port)
    for address in found:
        if not ipaddress.ip_address(address.partition("%")[0]).is_global:
            raise Refused(f"{host} is not on the public internet.", mend="Only the owner may add from there.")
    return found[0]


def _follows(at: SplitResult, there: SplitResult, reach: Reach) -> bool:
    if reach.is_public_only:
        return there.scheme == "https"  # and to an address that is checked like the first
    return reach.may_follow(at.hostname or "", there.hostname or "")


def _ask(at: SplitResult, reach: Reach, largest: int) -> bytes | str:
    """What is there, or where it is instead."""
    host = at.hostname or ""
    if not host or at.scheme not in ("https", "http"):
        raise Invalid(f"'{at.geturl()[:200]}' is no address that can be fetched.", mend="Give https://….")
    if at.scheme == "http" and (reach.is_public_only or not _is_here(host)):
        raise Refused(f"{host} would be asked without encryption.", mend="Give https://….")
    connection = _connect(at, host, reach)
    try:
        path = f"{at.path or '/'}{f'?{at.query}' if at.query else ''}"
        connection.request("GET", path, headers={"User-Agent": "habitus", "Accept": "*/*"})
        answer = connection.getresponse()
        if answer.status in _REDIRECTS and (place := answer.getheader("Location")):
            return place
        if answer.status in (404, 410):
            raise NotFound(f"{host} has no {unquote(at.path) or '/'}.", mend="Check the address.")
        if answer.status != 200:
            raise StorageFailed(f"{host} answered {answer.status} {answer.reason}.", mend="Try again later.")
        content = answer.read(largest + 1)
    except (OSError, http.client.HTTPException) as error:
        raise StorageFailed(
            f"{host} can't be read: {str(error) or type(error).__name__}.", mend="Try again later."
        ) from None
    finally:
        connection.close()
    if len(content) > largest:
        raise Invalid(f"{host} sends more than {largest >> 20} MB.", mend="Fetch it yourself, and import the file.")
    return content


def _connect(at: SplitResult, host: str, reach: Reach) -> http.client.HTTPConnection:
    """A connection to the address that was looked at, whatever the name says a moment later."""
    port = at.port or (443 if at.scheme == "https" else 80)
    proxy = "" if reach.is_public_only or proxy_bypass(host) else getproxies().get(at.scheme, "")
    try:
        if proxy:
            return _through(urlsplit(proxy), at.scheme, host, port)
        address = public_address(host, port) if reach.is_public_only else host
        line = socket.create_connection((address, port), timeout=_SECONDS)
        connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
        connection.sock = _encrypt(line, host) if at.scheme == "https" else line
    except OSError as error:
        raise StorageFailed(f"{host} can't be reached: {error}.", mend="Check the address and the network.") from None
    return connection


def _through(proxy: SplitResult, scheme: str, host: str, port: int) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(proxy.hostname or "", proxy.port or 3128, timeout=_SECONDS)
    connection.set_tunnel(host, port)
    return connection


def _encrypt(line: socket.socket, host: str) -> ssl.SSLSocket:
    return ssl.create_default_context().wrap_socket(line, server_hostname=host)


def _addresses(host: str, port: int) -> list[str]:
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise StorageFailed(f"{host} is not known: {error}.", mend="Check the address.") from None


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
