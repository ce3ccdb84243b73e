"""Virtual environments, built by `uv` outside the sandbox from wheels only, which run no foreign code."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from habitus import optional_packages
from habitus.errors import Invalid, StorageFailed, ToolFailed
from habitus.files import write_atomically
from habitus.sandbox.inside import folders

# Import names that differ from the name of their package.
_PACKAGES = {
    "attr": "attrs", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "dateutil": "python-dateutil",
    "docx": "python-docx", "dotenv": "python-dotenv", "fitz": "pymupdf", "git": "gitpython", "jwt": "pyjwt",
    "magic": "python-magic", "OpenSSL": "pyopenssl", "PIL": "pillow", "pptx": "python-pptx", "serial": "pyserial",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "usb": "pyusb", "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
# Only what uv needs to reach an index: no other variable of the host gets to it.
_PASSED_ON = ("UV_", "PIP_", "SSL_", "HTTP_", "HTTPS_", "ALL_", "NO_", "http_", "https_", "all_", "no_")
_ALSO = ("HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class VenvBuilder:
    """Builds virtual environments with the index, proxy and certificate settings found in `host_env`."""

    def __init__(self, host_env: Mapping[str, str], *, python: str, uv: str | None = None, timeout_s: float = 600.0):
        self._env = _select_uv_environment_variables(host_env)
        self._python = python
        self._uv = uv or _find_uv(self._env.get("PATH"))
        self._timeout_s = timeout_s

    async def create_venv(self, folder: Path) -> None:
        """Create an empty environment, completely or not at all; one that exists is kept."""
        if (folder / "pyvenv.cfg").exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        half = folder.with_name(f"{folder.name}.new")
        # A relocatable environment would not follow the base Python, so it is created beside its final place.
        code, words = await self._run_uv("venv", "--quiet", "--no-project", "--python", self._python, str(half))
        if code:
            raise StorageFailed(f"Could not make the virtual environment {folder}: {words}")
        half.rename(folder)

    async def install_packages(
        self, folder: Path, requirements: Sequence[str], *, without_dependencies: bool = False
    ) -> str:
        """Install packages and return uv's output; with `without_dependencies`, only the named ones."""
        wanted = [check_requirement(requirement) for requirement in requirements]
        if not wanted:
            return ""
        # Installs into a folder with the base Python: the environment's own Python would run code of its packages.
        where = ["--python", self._python, "--target", str(get_site_packages(folder))]
        where += ["--no-deps"] if without_dependencies else []
        code, words = await self._run_uv(
            "pip", "install", *where, "--only-binary", ":all:", "--no-progress", "--", *wanted
        )
        if code:
            raise ToolFailed(f"Could not install {', '.join(wanted)}: {words}")
        return words

    async def _run_uv(self, *arguments: str) -> tuple[int, str]:
        if self._uv is None:
            raise StorageFailed("uv is not installed.", hint=optional_packages.describe_install("uv"))
        process = await asyncio.create_subprocess_exec(
            self._uv,
            *arguments,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            umask=0o077,
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                output, _ = await process.communicate()
        except BaseException as error:
            process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                return 1, f"uv did not finish within {self._timeout_s:g} s."
            raise
        return process.returncode or 0, output.decode(errors="replace").strip()[-2000:]


def get_site_packages(folder: Path) -> Path:
    """Return the site-packages folder of an environment."""
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def guess_package_name(module: str) -> str:
    """Return the package to install for a missing import."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top, top)


def check_requirement(text: str) -> str:
    """Return the requirement if it is a plain name with versions, else raise `Invalid`.

    An address or a path would fetch from anywhere, and an option would change what uv does.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise Invalid(
            f"'{text}' is not a package requirement.", hint="Write it like 'pandas' or 'pandas>=2'."
        ) from error
    if requirement.url:
        raise Invalid(f"'{text}' names an address.", hint="Only packages of the configured index are installed.")
    return str(requirement)


def _select_uv_environment_variables(host_env: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in host_env.items() if name.startswith(_PASSED_ON) or name in _ALSO}
    kept.pop("UV_PYTHON", None)
    # uv reads its own variables; hand it the index that pip was told to use.
    for own, pips in (("UV_INDEX_URL", "PIP_INDEX_URL"), ("UV_FIND_LINKS", "PIP_FIND_LINKS")):
        if pips in kept and own not in kept:
            kept[own] = kept[pips]
    # The same setting under its newer and its older name.
    return {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", **kept}


def _find_uv(path: str | None) -> str | None:
    """Return the uv of the `uv` package, or one on the path; None if there is none."""
    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv", path=path)
    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return shutil.which("uv", path=path) or shutil.which("uv", path=str(Path(sys.executable).parent))


# Beside a scratchpad's own environment: the list of packages that were requested.
_WANTED = "packages.json"


class EnvironmentCache:
    """Caches environments in a folder by the hash of their packages; deleted ones are built again."""

    def __init__(self, folder: Path, venvs: VenvBuilder) -> None:
        self._folder = folder
        self._venvs = venvs
        self._turn = asyncio.Lock()

    async def ensure_environment(self, dependencies: Sequence[str]) -> Path | None:
        """Return the environment with these packages, building it if needed; None if no package is asked for."""
        if not dependencies:
            return None
        folder = self._folder / compute_environment_hash(dependencies)
        async with self._turn:
            if (folder / "pyvenv.cfg").exists():
                # The time stamp records the last use, by which unused environments are found.
                os.utime(folder)
            else:
                await self._build_environment(folder, dependencies)
        return folder

    async def create_mutable_environment(self, venv: Path) -> None:
        """Create an empty environment that will be changed later."""
        await self._venvs.create_venv(venv)

    async def install_packages(self, venv: Path, requirements: Sequence[str]) -> str:
        """Add packages to an environment of its own and return a sentence that lists the new ones.

        Its files become links to the cached environment with the same packages. Code sees both read-only.
        """
        await self._venvs.create_venv(venv)
        before = await asyncio.to_thread(_read_requested_packages, venv)
        wanted = merge_requirements(before, requirements)
        if set(wanted) == set(before):
            return f"Already there: {', '.join(sorted(requirements))}." if requirements else ""
        cached = await self.ensure_environment(wanted)
        assert cached is not None
        added = await asyncio.to_thread(_replace_packages_with_cached_ones, venv, cached, wanted)
        return f"Installed {', '.join(added)}." if added else "Everything was there already."

    async def _build_environment(self, folder: Path, dependencies: Sequence[str]) -> None:
        """Build aside and rename: another process may build the same one, and the first to finish wins."""
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        try:
            await self._venvs.create_venv(aside)
            await self._venvs.install_packages(aside, dependencies)
            try:
                aside.rename(folder)
            except OSError:
                if not (folder / "pyvenv.cfg").exists():
                    raise
        finally:
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)


def merge_requirements(before: Iterable[str], added: Iterable[str]) -> list[str]:
    """Return one requirement for each package, whatever the spelling of its name; the last one wins."""
    found = {}
    for text in map(check_requirement, [*before, *added]):
        requirement = Requirement(text)
        requirement.name = canonicalize_name(requirement.name)
        found[requirement.name] = str(requirement)
    return sorted(found.values())


def remove_unused_environments(folder: Path, *, unused_since: float) -> None:
    """Delete cached environments that were not used since a timestamp."""
    for cached in folder.glob("*"):
        try:
            if cached.stat().st_mtime < unused_since:
                folders.remove_folder(str(cached))
        except OSError:
            # Another process may be deleting the same one.
            continue


def describe_interpreter() -> str:
    """Return the implementation, version and platform of this Python."""
    return f"{platform.python_implementation()} {platform.python_version()} {platform.system()} {platform.machine()}"


def compute_environment_hash(dependencies: Sequence[str]) -> str:
    """Return the cache key for a set of packages on this Python."""
    wanted = sorted({check_requirement(requirement) for requirement in dependencies})
    # Compiled wheels differ by interpreter and platform, so both belong in the key.
    return hashlib.sha256(json.dumps([wanted, describe_interpreter()]).encode()).hexdigest()[:32]


def _read_requested_packages(venv: Path) -> list[str]:
    """Return the packages requested in an environment; without a list, those installed."""
    listed = venv.with_name(_WANTED)
    if not listed.exists():
        return [f"{name}=={version}" for name, version in _list_installed_packages(venv)]
    return [str(text) for text in json.loads(listed.read_text())]


def _list_installed_packages(venv: Path) -> list[tuple[str, str]]:
    """Return the names and versions of the installed packages."""
    named = (
        folder.name.removesuffix(".dist-info").rpartition("-") for folder in get_site_packages(venv).glob("*.dist-info")
    )
    return sorted((name, version) for name, _, version in named)


def _replace_packages_with_cached_ones(venv: Path, cached: Path, wanted: Sequence[str]) -> list[str]:
    """Replace an environment's packages by those of a cached one and return the new ones.

    Running code sees them at once.
    """
    packages, had = get_site_packages(venv), _list_installed_packages(venv)
    new, old = packages.with_name("new"), packages.with_name("old")
    for rest in (new, old):
        shutil.rmtree(rest, ignore_errors=True)
    shutil.copytree(get_site_packages(cached), new, symlinks=True, copy_function=_link_or_copy)
    # Two renames leave the smallest gap in which a running import finds nothing.
    packages.rename(old)
    new.rename(packages)
    shutil.rmtree(old, ignore_errors=True)
    write_atomically(venv.with_name(_WANTED), json.dumps(sorted(wanted)).encode(), durable=False)
    return [f"{name} {version}" for name, version in _list_installed_packages(venv) if (name, version) not in had]


def _link_or_copy(source: str, target: str) -> None:
    """Link a file, or copy it where the file system has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
