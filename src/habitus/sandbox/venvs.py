"""Virtual environments and their packages, made by `uv` outside the sandbox: wheels only, so no foreign code runs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from habitus import extras
from habitus.errors import Invalid, StorageFailed, ToolFailed

# Import names that differ from the name of the package that brings them.
_PACKAGES = {
    "attr": "attrs", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "dateutil": "python-dateutil",
    "docx": "python-docx", "dotenv": "python-dotenv", "fitz": "pymupdf", "git": "gitpython", "jwt": "pyjwt",
    "magic": "python-magic", "OpenSSL": "pyopenssl", "PIL": "pillow", "pptx": "python-pptx", "serial": "pyserial",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "usb": "pyusb", "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
_PASSED_ON = ("UV_", "PIP_", "SSL_", "HTTP_", "HTTPS_", "ALL_", "NO_", "http_", "https_", "all_", "no_")
_ALSO = ("HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Venvs:
    """Makes environments with the host's index, proxy and certificate settings, taken from `host_env`."""

    def __init__(self, host_env: Mapping[str, str], *, python: str, uv: str | None = None, timeout_s: float = 600.0):
        self._env = _settings(host_env)
        self._python = python
        self._uv = uv or _find_uv(self._env.get("PATH"))
        self._timeout_s = timeout_s

    async def make(self, folder: Path) -> None:
        """An empty environment, complete or not there at all."""
        if (folder / "pyvenv.cfg").exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        half = folder.with_name(f"{folder.name}.new")
        # Without seed packages; relocatable would not follow the base Python, so it is made where it stays.
        code, words = await self._run("venv", "--quiet", "--no-project", "--python", self._python, str(half))
        if code:
            raise StorageFailed(f"Could not make the virtual environment {folder}: {words}")
        half.rename(folder)

    async def install(self, folder: Path, requirements: Sequence[str]) -> str:
        """Add packages; what `uv` said about it."""
        wanted = [checked(requirement) for requirement in requirements]
        if not wanted:
            return ""
        # Into a folder, for the base Python: asking the environment's own would run what its packages planted.
        where = ["--python", self._python, "--target", str(packages_of(folder))]
        code, words = await self._run(
            "pip", "install", *where, "--only-binary", ":all:", "--no-progress", "--", *wanted
        )
        if code:
            raise ToolFailed(f"Could not install {', '.join(wanted)}: {words}")
        return words

    async def _run(self, *arguments: str) -> tuple[int, str]:
        if self._uv is None:
            raise StorageFailed("uv is not installed.", mend=extras.how("uv"))
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


def packages_of(folder: Path) -> Path:
    """Where an environment keeps its packages."""
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def package_for(module: str) -> str:
    """The package to install for a missing import."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top, top)


def checked(text: str) -> str:
    """A plain name with versions: an address or a path would fetch from anywhere, an option would steer uv."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise Invalid(
            f"'{text}' is not a package requirement.", mend="Write it like 'pandas' or 'pandas>=2'."
        ) from error
    if requirement.url:
        raise Invalid(f"'{text}' names an address.", mend="Only packages of the configured index are installed.")
    return str(requirement)


def _settings(host_env: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in host_env.items() if name.startswith(_PASSED_ON) or name in _ALSO}
    kept.pop("UV_PYTHON", None)
    # uv reads its own variables; hand it the index that pip was told to use.
    for own, pips in (("UV_INDEX_URL", "PIP_INDEX_URL"), ("UV_FIND_LINKS", "PIP_FIND_LINKS")):
        if pips in kept and own not in kept:
            kept[own] = kept[pips]
    return {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", **kept}  # the same setting, in newer and older words


def _find_uv(path: str | None) -> str | None:
    """The program the `uv` package brought, or one that is installed anyway."""
    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv", path=path)
    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return shutil.which("uv", path=path) or shutil.which("uv", path=str(Path(sys.executable).parent))
