"""Getting skills from where people publish them: a repository, an archive or a directory, at one exact commit."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from habitus.errors import Invalid, NotFound, StorageFailed
from habitus.files import given_path

DEFAULT_HOST = "https://github.com/"

_OWNER_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_LOGIN = re.compile(r"^(?P<scheme>\w[\w+.-]*://)?(?P<login>[^/\s]*)@")
_GIT_SECONDS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """What was fetched: a path to read from, and the address, without a password, and commit to lock."""

    path: Path
    address: str
    commit: str = ""


@contextmanager
def fetched(wanted: str, *, cwd: Path, environ: Mapping[str, str], host: str = DEFAULT_HOST) -> Iterator[Fetched]:
    """Fetch OWNER/REPO, a git address, or take a local directory or archive; what was fetched goes at the end."""
    local = (cwd / given_path(wanted)).resolve()
    if local.exists() and not (local / ".git").exists() and not _is_bare_repository(local):
        yield Fetched(path=local, address=str(local))
        return
    address = _address(wanted, local, host)
    with tempfile.TemporaryDirectory(prefix="habitus-fetch-") as scratch:
        place = Path(scratch) / _repository_name(without_login(address))
        clone = ("clone", "--quiet", "--depth", "1", "--no-recurse-submodules", "--", address, str(place))
        _git(*clone, about=address, environ=environ)
        commit = _git("-C", str(place), "rev-parse", "HEAD", about=address, environ=environ).strip()
        yield Fetched(path=place, address=without_login(address), commit=commit)


def without_login(address: str) -> str:
    """An address as it may be kept and shown. A token may stand where a user does, so both go; `git@` opens nothing."""
    found = _LOGIN.match(address)
    if found is None or (found["login"] == "git" or (found["scheme"] == "ssh://" and ":" not in found["login"])):
        return address
    return (found["scheme"] or "") + address[found.end() :]


def _address(wanted: str, local: Path, host: str) -> str:
    if local.exists():
        return str(local)
    if host != without_login(host) and wanted.startswith(without_login(host)):
        return host + wanted.removeprefix(without_login(host))
    if "://" in wanted or re.match(r"[\w.-]+@[\w.-]+:", wanted):
        if wanted.startswith(("-", "ext::")):
            raise Invalid(
                f"'{without_login(wanted)}' is no address that can be fetched.",
                mend="Give https://…, ssh://… or a path.",
            )
        return wanted
    if _OWNER_REPO.fullmatch(wanted) and not wanted.startswith((".", "-", "/")):
        return f"{host.rstrip('/')}/{wanted}"
    raise NotFound(
        f"There is no '{without_login(wanted)}' here.",
        mend="Give OWNER/REPO, a git address, an archive or a directory.",
    )


def _is_bare_repository(path: Path) -> bool:
    return path.is_dir() and (path / "HEAD").is_file() and (path / "objects").is_dir()


def _repository_name(address: str) -> str:
    name = address.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1].removesuffix(".git")
    return name or "repository"


def _git(*arguments: str, about: str, environ: Mapping[str, str]) -> str:
    """Run git without any chance to ask for a password; its last line is what went wrong."""
    quiet = {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "core.symlinks",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_KEY_1": "protocol.ext.allow",
        "GIT_CONFIG_VALUE_1": "never",
    }
    try:
        done = subprocess.run(
            ["git", *arguments],
            env=_needed(environ) | quiet,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_GIT_SECONDS,
        )
    except FileNotFoundError:
        raise StorageFailed("git is not installed.", mend="Install git, or give an archive or a directory.") from None
    except subprocess.TimeoutExpired:
        raise StorageFailed(
            f"{without_login(about)} did not answer within {_GIT_SECONDS} s.", mend="Try again later."
        ) from None
    if done.returncode != 0:
        shown, said = without_login(about), (done.stderr.strip().splitlines() or ["git failed"])[-1]
        said = said.removeprefix("fatal: ").replace(about, shown)
        mend = "Check the address."
        if "terminal prompts disabled" in done.stderr or "Authentication" in done.stderr:
            said, mend = "it asks for a password", "Set up access for git, or clone it yourself and give the path."
        raise StorageFailed(f"Can't fetch {shown}: {said}.", mend=mend)
    return done.stdout


def _needed(environ: Mapping[str, str]) -> dict[str, str]:
    """What git needs from around it: the search path, the home with its configuration, proxies and certificates."""
    wanted = ("PATH", "HOME", "USER", "LANG", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "GIT_SSL_CAINFO")
    return {name: value for name, value in environ.items() if name in wanted or name.lower().endswith("_proxy")}
