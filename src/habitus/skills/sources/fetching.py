"""Fetch skills from where they are published: a repository at an exact commit, a site with an index, an archive on
the web, or a local path.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from habitus import operating_system
from habitus.errors import Invalid, NotFound, Refused, StorageFailed
from habitus.files import parse_user_path
from habitus.skills.sources import discovery
from habitus.skills.sources.discovery import DownloadBudget, DownloadPolicy, download_url, resolve_public_address
from habitus.skills.sources.lockfiles import remove_credentials

DEFAULT_HOST = "https://github.com/"

_OWNER_REPO = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<folder>.+))?")
_TREE_URL = re.compile(
    r"(?P<repo>(?:https?|file)://.+?)/tree/(?P<branch>[^/]+)(?:/(?P<folder>.+))?"
)  # as sites write it
_DEFAULT_BRANCH = "HEAD"
_ARCHIVE_SUFFIXES = (".zip", ".tar.gz", ".tgz", ".skill")
_GIT_SITES = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org")
_MEASURE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedSource:
    """A fetched source: the path to read from, and the address (without credentials) and commit to lock."""

    path: Path
    address: str
    commit: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)  # by skill, for a site with an index
    repository: str = ""  # without credentials, if it is a repository
    branch: str = ""  # or tag, if one was requested
    folder: str = ""  # the folder of the repository at `path`

    @property
    def origin(self) -> str:
        """Its display name, with the owner, because many repositories are called `skills`."""
        owner = self.address.partition("/tree/")[0].rstrip("/").split("/")[-2:-1]
        return "/".join([*(owner if self.commit else ()), self.path.name])

    @property
    def location(self) -> str:
        """Its exact location, independent of the branch."""
        return "/".join(filter(None, (self.repository or self.address, self.folder))).rstrip("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class _RepositorySource:
    """A repository, optionally a folder of it on a branch; `address` names all of it."""

    repository: str
    branch: str = _DEFAULT_BRANCH
    folder: str = ""

    @property
    def address(self) -> str:
        is_whole = self.branch == _DEFAULT_BRANCH and not self.folder
        return self.repository if is_whole else f"{self.repository}/tree/{self.branch}/{self.folder}".rstrip("/")


@contextmanager
def fetch_source(
    address: str,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    host: str = DEFAULT_HOST,
    branch: str = "",
    policy: DownloadPolicy = DownloadPolicy(),  # noqa: B008  # frozen
) -> Iterator[FetchedSource]:
    """Fetch OWNER/REPO[/FOLDER], an address or a local path; downloads are deleted when the block ends."""
    policy = replace(policy, budget=DownloadBudget())
    discovery.refuse_malformed_url(address)
    if policy.is_public_only:
        _refuse_private_address(address)
    environ = _build_git_environment(environ, policy)
    host = host if policy.uses_sign_ins else remove_credentials(host)
    local = (cwd / parse_user_path(address)).resolve()
    is_repository = (local / ".git").exists() or _is_bare_repository(local)
    if not policy.is_public_only and local.exists() and not is_repository:
        yield FetchedSource(path=local, address=str(local))
        return
    with tempfile.TemporaryDirectory(prefix="habitus-fetch-") as scratch:
        if found := _fetch_archive_or_site_skills(address, Path(scratch), policy):
            yield found
            return
        source = _parse_source(address, None if policy.is_public_only else local, host)
        source = replace(source, branch=branch or source.branch)
        yield _clone_repository(source, Path(scratch), environ, policy)


def _clone_repository(
    repo: _RepositorySource, scratch: Path, environ: Mapping[str, str], policy: DownloadPolicy
) -> FetchedSource:
    """Clone the newest commit of a repository, or of one branch."""
    about, is_newest = repo.repository, repo.branch == _DEFAULT_BRANCH
    place = scratch / _extract_repository_name(remove_credentials(about))
    branch = () if is_newest else (f"--branch={repo.branch}",)
    # Submodules would fetch from further hosts that were never checked.
    clone = ("clone", "--quiet", "--depth", "1", "--no-recurse-submodules", *branch, "--", about, str(place))
    budget, pinned = policy.budget, _build_address_pinning_options(about, policy)
    _run_git(*pinned, *clone, about=about, environ=environ, budget=budget, grows=place)
    commit = _run_git("-C", str(place), "rev-parse", "HEAD", about=about, environ=environ, budget=budget).strip()
    return FetchedSource(
        path=_find_folder_in_clone(place, repo),
        address=remove_credentials(repo.address),
        commit=commit,
        repository=remove_credentials(about),
        branch="" if is_newest else repo.branch,
        folder=repo.folder,
    )


def _fetch_archive_or_site_skills(address: str, scratch: Path, policy: DownloadPolicy) -> FetchedSource | None:
    """Fetch an archive or the skills of a site's index; None if the address is a repository's."""
    at = urlsplit(address)
    if at.scheme not in ("https", "http") or at.username or _TREE_URL.fullmatch(address.rstrip("/")):
        return None
    name = at.path.rstrip("/").rsplit("/", 1)[-1]
    if name.lower().endswith(_ARCHIVE_SUFFIXES):
        path = scratch / name
        path.write_bytes(download_url(address, policy).content)
        return FetchedSource(path=path, address=remove_credentials(address))
    if name.endswith(".git") or (at.hostname in _GIT_SITES and at.path.strip("/").count("/") == 1):
        return None
    try:
        offered = discovery.read_site_index(address, policy)
    except StorageFailed:
        # Leave it to git, which may know another way or gives a better error.
        return None
    if offered is None:
        return None
    folder = scratch / (at.hostname or "site")
    folder.mkdir()
    return FetchedSource(
        path=folder,
        address=remove_credentials(address),
        digests=discovery.download_site_skills_and_get_digests(offered, folder, policy),
    )


def _refuse_private_address(address: str) -> None:
    """Raise `Refused` unless the address is public: OWNER/REPO, or https."""
    is_plain = _OWNER_REPO.fullmatch(address) and not address.startswith((".", "-", "/", "~"))
    if not (is_plain or address.startswith("https://")):
        raise Refused("Only the owner of this home adds from there.", hint="Give https://… or OWNER/REPO.")


def _build_address_pinning_options(repository: str, policy: DownloadPolicy) -> tuple[str, ...]:
    """Return git options that pin the host to its checked address and forbid redirects."""
    if not policy.is_public_only:
        return ()
    at = urlsplit(repository)
    host, port = at.hostname or "", at.port or 443
    address = resolve_public_address(host, port, policy.budget)
    return ("-c", f"http.curloptResolve={host}:{port}:{address}", "-c", "http.followRedirects=false")


def _parse_source(address: str, local: Path | None, host: str) -> _RepositorySource:
    if local is not None and local.exists():
        return _RepositorySource(repository=str(local))
    if host != remove_credentials(host) and address.startswith(remove_credentials(host)):
        address = host + address.removeprefix(remove_credentials(host))
    if "://" in address or re.match(r"[\w.-]+@[\w.-]+:", address):
        # `ext::` makes git run a command, and a leading dash would be read as an option.
        if address.startswith(("-", "ext::")):
            raise Invalid(
                f"'{remove_credentials(address)}' is no address that can be fetched.",
                hint="Give https://…, ssh://… or a path.",
            )
        if found := _TREE_URL.fullmatch(address.rstrip("/")):
            return _RepositorySource(repository=found["repo"], branch=found["branch"], folder=found["folder"] or "")
        return _RepositorySource(repository=address)
    if (found := _OWNER_REPO.fullmatch(address.rstrip("/"))) and not address.startswith((".", "-", "/", "~")):
        return _RepositorySource(repository=f"{host.rstrip('/')}/{found['repo']}", folder=found["folder"] or "")
    raise NotFound(
        f"There is no '{remove_credentials(address)}' here.",
        hint="Give OWNER/REPO[/FOLDER], an address, an archive or a directory.",
    )


def _find_folder_in_clone(place: Path, source: _RepositorySource) -> Path:
    path = (place / source.folder).resolve()
    # A folder such as `../..` must not lead out of the clone.
    if not path.is_relative_to(place.resolve()) or not path.exists():
        known = ", ".join(sorted(each.name for each in place.iterdir() if each.is_dir() and each.name != ".git"))
        repository = remove_credentials(source.repository)
        raise NotFound(f"{repository} has no folder '{source.folder}'.", hint=f"It has: {known or 'none'}.")
    return path


def _is_bare_repository(path: Path) -> bool:
    return path.is_dir() and (path / "HEAD").is_file() and (path / "objects").is_dir()


def _extract_repository_name(address: str) -> str:
    name = address.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1].removesuffix(".git")
    return name or "repository"


def _run_git(
    *arguments: str, about: str, environ: Mapping[str, str], budget: DownloadBudget, grows: Path | None = None
) -> str:
    """Run git without password prompts, within the budget for what `grows`; raise `StorageFailed` with its last line
    if it fails.
    """
    try:
        git = subprocess.Popen(
            ["git", *arguments],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            # Its helpers, which download, end with it.
            process_group=0,
        )
    except FileNotFoundError:
        raise StorageFailed("git is not installed.", hint="Install git, or give an archive or a directory.") from None
    output, complaint = _wait_for_git(git, budget, grows)
    if git.returncode != 0:
        shown, said = remove_credentials(about), (complaint.strip().splitlines() or ["git failed"])[-1]
        said = said.removeprefix("fatal: ").replace(about, shown)
        hint = "Check the address."
        if "terminal prompts disabled" in complaint or "Authentication" in complaint:
            said, hint = "it asks for a password", "Set up access for git, or clone it yourself and give the path."
        raise StorageFailed(f"Can't fetch {shown}: {said}.", hint=hint)
    return output


def _wait_for_git(git: subprocess.Popen[str], budget: DownloadBudget, grows: Path | None) -> tuple[str, str]:
    """Return what git wrote; kill it with its helpers when the budget is used up."""
    counted = 0
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return git.communicate(timeout=min(_MEASURE_SECONDS, budget.get_seconds_left()))
            size = _measure_clone_size(grows) if grows is not None else 0
            budget.spend(max(size - counted, 0))
            counted = max(size, counted)
    except BaseException:
        operating_system.kill_process_tree(git.pid)
        git.communicate()
        raise


def _measure_clone_size(place: Path) -> int:
    """Return the bytes that git has downloaded, or unpacked if that is more."""
    downloaded = unpacked = 0
    for folder, _, names in os.walk(place):
        size = 0
        for name in names:
            # Git renames its files meanwhile.
            with suppress(OSError):
                size += Path(folder, name).lstat().st_size
        if ".git" in Path(folder).relative_to(place).parts:
            downloaded += size
        else:
            unpacked += size
    return max(downloaded, unpacked)


_SYSTEM_VARIABLES = ("PATH", "LANG", "SSL_CERT_FILE", "GIT_SSL_CAINFO")
_SIGN_IN_VARIABLES = ("HOME", "USER", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME")


def _build_git_environment(environ: Mapping[str, str], policy: DownloadPolicy) -> dict[str, str]:
    """Return the variables that git needs, its sign-ins only if the policy allows them."""
    wanted = _SYSTEM_VARIABLES + (_SIGN_IN_VARIABLES if policy.uses_sign_ins else ())
    found = {
        name: value
        for name, value in environ.items()
        # A proxy would resolve the host again, past the address that was checked.
        if name in wanted or (name.lower().endswith("_proxy") and not policy.is_public_only)
    }
    configured = {"core.symlinks": "true", "protocol.ext.allow": "never"}
    if not policy.uses_sign_ins:
        # No folder: settings, .netrc and keys are looked for there. The empty value ends the system's list of helpers.
        found |= {"HOME": os.devnull, "GIT_LFS_SKIP_SMUDGE": "1"}
        configured |= {"credential.helper": ""}
    for number, (key, value) in enumerate(configured.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found | {
        "GIT_CONFIG_COUNT": str(len(configured)),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new",
    }
