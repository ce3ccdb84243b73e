"""Running code put together: scratchpads, and the tools with the workshop that makes and calls them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from habitus.app.content import high_findings
from habitus.app.habitus import Habitus
from habitus.sandbox.machine import base_python
from habitus.sandbox.model import Limits, Permissions
from habitus.sandbox.pad import Services
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.scratchpads import Scratchpads
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
        hire=lambda: _workshop(habitus),
        clock=habitus.clock,
        scan=high_findings,
        environ=os.environ,
        redacted=habitus.redacted,
    )


def open_scratchpads(
    habitus: Habitus, folder: str, may_install: MayInstall | None, services: Services | None
) -> Scratchpads:
    """Pads in a folder of the home. The settings may say to install missing modules unasked."""
    settings = habitus.settings
    runtime = LocalRuntime(
        habitus.machine,
        settings.home / folder,
        Venvs(os.environ, python=base_python()),
        permissions=Permissions(),
        limits=Limits(cpu_s=None),
        allow_weaker=settings.allow_weaker_sandbox,
    )
    return Scratchpads(runtime, services=services, may_install=_always if settings.install_missing else may_install)


def _workshop(habitus: Habitus) -> Workshop:
    cache = habitus.settings.home / "cache"
    warm = Warm(habitus.machine, cache / "calls", allow_weaker=habitus.settings.allow_weaker_sandbox)
    return Workshop(warm, Environments(cache / "environments", Venvs(os.environ, python=base_python())))


async def _always(package: str) -> bool:
    return True
