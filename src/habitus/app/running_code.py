"""Running code put together: scratchpads, and the tools with the workshop that makes and calls them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from habitus.agent.background import in_thread
from habitus.agent.outage import Outage
from habitus.agent.sandbox_services import sandbox_services
from habitus.agent.view import View
from habitus.app.habitus import Habitus
from habitus.sandbox.machine import base_python
from habitus.sandbox.model import Limits, Permissions
from habitus.sandbox.runtimes.base import Runtime
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.runtimes.ssh import SshRuntime
from habitus.sandbox.scratchpads import Scratchpads
from habitus.sandbox.services import Services
from habitus.sandbox.venvs import Venvs
from habitus.sandbox.warm import Warm
from habitus.tools.environments import Environments
from habitus.tools.health import ToolHealth
from habitus.tools.tools import Tools
from habitus.tools.workshop import Workshop

MayInstall = Callable[[str], Awaitable[bool]]


def open_tools(habitus: Habitus) -> Tools:
    return Tools(
        habitus.skills,
        habitus.review,
        ToolHealth(habitus.shared),
        trust=habitus.trust,
        approvals=habitus.approvals,
        workshop=lambda: _workshop(habitus),
        clock=habitus.clock,
        scan=habitus.scan,
        environ=os.environ,
        redacted=habitus.redacted,
        retention=habitus.settings.retention,
        services=lambda: sandbox_services(_view(habitus)),
    )


def _view(habitus: Habitus) -> View:
    """The library as code sees it that no conversation has called."""
    return View(habitus.skills, habitus.review, Outage(), habitus.redactor, conversation="")


def open_scratchpads(
    habitus: Habitus, folder: str, may_install: MayInstall | None, services: Services | None
) -> Scratchpads:
    """Pads in a folder of the home, here or elsewhere. The settings may say to install missing modules unasked."""
    if habitus.settings.install_missing:
        may_install = _always
    asked = _services(habitus) if services is None else services
    return Scratchpads(_runtime(habitus, folder), services=asked, may_install=may_install)


def _services(habitus: Habitus) -> Services:
    """What cells may ask where no conversation runs them: a pad lives long, so each question sees the library anew."""

    async def answer(question: str, given: Any) -> Any:
        view = await in_thread(lambda: _view(habitus))
        return await sandbox_services(view)[question](given)

    return {question: partial(answer, question) for question in sandbox_services(_view(habitus))}


def _runtime(habitus: Habitus, folder: str) -> Runtime:
    where, may_be_weaker = habitus.settings.sandbox.runtime, habitus.settings.allow_weaker_sandbox
    permissions, limits = Permissions(), Limits(cpu_s=None)
    if where != "local":
        return SshRuntime.at(where, folder, permissions=permissions, limits=limits, allow_weaker=may_be_weaker)
    return LocalRuntime(
        habitus.machine,
        habitus.place / folder,
        Venvs(os.environ, python=base_python()),
        permissions=permissions,
        limits=limits,
        allow_weaker=may_be_weaker,
    )


def _workshop(habitus: Habitus) -> Workshop:
    cache = habitus.place / "cache"
    warm = Warm(habitus.machine, cache / "calls", allow_weaker=habitus.settings.allow_weaker_sandbox)
    return Workshop(warm, Environments(cache / "environments", Venvs(os.environ, python=base_python())))


async def _always(package: str) -> bool:
    return True
