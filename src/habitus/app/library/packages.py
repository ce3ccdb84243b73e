"""Packages that a person lets every chat of a project install; their word is kept with what this machine trusts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from habitus.agent.background import in_thread
from habitus.agent.stream import AskPerson, Consent, Question
from habitus.app.home import Home
from habitus.skills.trust import PACKAGES

_CHOICES = (Consent.YES, Consent.NO, Consent.ALWAYS)


def root_of(project: str) -> str:
    """The root under which the packages of a project are trusted, one by one."""
    return f"{PACKAGES}{project}"


def allowed_packages(home: Home) -> tuple[str, ...]:
    """What every new scratchpad of this project begins with."""
    return home.trust.names(root_of(home.project))


def asking(home: Home, ask: AskPerson) -> Callable[[str], Awaitable[bool]]:
    """Whether a package may be installed: as said before for this project, or as the person who is there says now."""

    async def may_install(package: str) -> bool:
        name = _name(package)
        if name in await in_thread(lambda: allowed_packages(home)):
            return True
        answer = await ask(Question(text=f"Install the package '{package}'?", choices=_CHOICES))
        if answer is Consent.ALWAYS:
            await in_thread(lambda: _allow(home, name))
        return answer in (Consent.YES, Consent.ALWAYS)

    return may_install


def _name(package: str) -> str:
    """What a word once given for a package goes by; one from an address of its own goes by all of it."""
    try:
        wanted = Requirement(package)
    except InvalidRequirement:
        return package
    return package if wanted.url else canonicalize_name(wanted.name)


def _allow(home: Home, name: str) -> None:
    home.trust.trust(root_of(home.project), {name: {}}, home.settings.signature)
