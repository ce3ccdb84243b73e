"""What a home may reach of the machine it is on: files, programs and the network.

The owner's home reaches what a request names. A guest's home has objects that refuse, so a use case that forgets to ask
who is calling reaches nothing either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.errors import Refused
from habitus.files import open_regular_file

if TYPE_CHECKING:
    from habitus.settings import Settings
    from habitus.skills.sources.discovery import DownloadPolicy

_MAX_READ_BYTES = 1 << 20


class HostFilePermission:
    """Files of this machine that a request or a conversation names."""

    is_granted = True

    def require_access(self, what: str = "which files are read") -> None:
        """Raise `Refused` unless the caller may name files of this machine."""

    def read_text_file_below_folder(self, root: Path, named: str) -> str | None:
        """Return the text of a file in a folder; None if it is missing, elsewhere, hidden, too large or not text."""
        self.require_access()
        top = root.resolve()
        path = (top / Path(named).expanduser()).resolve()
        # Hidden files hold credentials and the state of programs, even inside a project.
        if not path.is_relative_to(top) or any(part.startswith(".") for part in path.relative_to(top).parts):
            return None
        try:
            with open_regular_file(path) as file:
                content = file.read(_MAX_READ_BYTES + 1)
            return content.decode("utf-8") if len(content) <= _MAX_READ_BYTES else None
        except (OSError, UnicodeDecodeError):
            return None


class DeniedHostFilePermission(HostFilePermission):
    """The files of a guest's home: none."""

    is_granted = False

    def require_access(self, what: str = "which files are read") -> None:
        """Refuse."""
        raise Refused(f"Only the owner of this home decides {what}.", hint="Ask them to do it where Habitus runs.")


class HostProgramPermission:
    """Programs of this machine that a request names, which run with the owner's rights."""

    def require_access(self, name: str) -> None:
        """Raise `Refused` unless the caller may have this program started."""


class DeniedHostProgramPermission(HostProgramPermission):
    """The programs of a guest's home: none."""

    def require_access(self, name: str) -> None:
        """Refuse."""
        raise Refused("Only the owner starts programs of this machine.", hint=f"Leave '{name[:80]}' out.")


class UnrestrictedDownloadPermission:
    """The network as this machine reaches it."""

    def get_allowed_download_policy(self, policy: DownloadPolicy) -> DownloadPolicy:
        """Return the policy within which the caller may download."""
        return policy


class PublicOnlyDownloadPermission(UnrestrictedDownloadPermission):
    """The network of a guest's home: https to public addresses, without the owner's sign-ins."""

    def get_allowed_download_policy(self, policy: DownloadPolicy) -> DownloadPolicy:
        """Return a policy that refuses this machine's own network and signs in nowhere."""
        return replace(policy, is_public_only=True, uses_sign_ins=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPermissions:
    """The files, programs and network that a home may reach."""

    files: HostFilePermission
    programs: HostProgramPermission
    network: UnrestrictedDownloadPermission


def make_host_permissions(settings: Settings) -> HostPermissions:
    """Return the access of a guest's home, or of the owner's."""
    if settings.is_guest:
        return HostPermissions(
            files=DeniedHostFilePermission(),
            programs=DeniedHostProgramPermission(),
            network=PublicOnlyDownloadPermission(),
        )
    return HostPermissions(
        files=HostFilePermission(), programs=HostProgramPermission(), network=UnrestrictedDownloadPermission()
    )
