"""`Tools`: the code stages of all skills in one place, put together from catalogue, making, running and curation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

from habitus.sandbox.given import Given
from habitus.sandbox.services import Services
from habitus.settings import RetentionSettings
from habitus.skills.library import Library
from habitus.skills.review import Review
from habitus.skills.trust import Scan, Trust
from habitus.tools.catalogue import ToolCatalogue
from habitus.tools.curation import ToolCurator
from habitus.tools.health import ToolHealth
from habitus.tools.making import ToolMaker
from habitus.tools.running import ToolRunner
from habitus.tools.skill_files import ToolFiles
from habitus.tools.workshop import Workshop, Workshops


class Tools:
    """Use it in an `async with` block where tools are made or run, so that no process of the sandbox is left."""

    def __init__(
        self,
        library: Library,
        review: Review,
        health: ToolHealth,
        *,
        trust: Trust,
        approvals: Trust,
        workshop: Callable[[], Workshop],
        clock: Callable[[], datetime],
        scan: Scan,
        environ: Mapping[str, str],
        redacted: Callable[[str], str],
        retention: RetentionSettings,
        services: Callable[[], Services],
        given: Callable[[str], Given],
    ) -> None:
        """`services` makes what a tool may ask, and `given` where its skill's files lie, where no session says so."""
        files = ToolFiles(library, given)
        shops = self._workshops = Workshops(workshop)
        known = ToolCatalogue(library, health, trust=trust, approvals=approvals)
        maker = ToolMaker(
            known,
            library,
            review,
            health,
            shops,
            approvals=approvals,
            clock=clock,
            scan=scan,
            environ=environ,
            services=services,
            files=files,
        )
        runner = ToolRunner(
            known,
            library,
            review,
            health,
            shops,
            clock=clock,
            environ=environ,
            redacted=redacted,
            services=services,
            files=files,
        )
        curator = ToolCurator(known, library, health, test=runner.test, clock=clock, retention=retention)

        self.all, self.active, self.get, self.code = known.all, known.active, known.get, known.code
        self.cases, self.objection = known.cases, known.objection
        self.create, self.approve, self.approved = maker.create, maker.approve, maker.approved
        self.run, self.test = runner.run, runner.test
        self.waiting, self.run_waiting = runner.waiting, runner.run_waiting
        self.curate, self.renew = curator.curate, curator.renew
        self.retire, self.restore, self.retired = curator.retire, curator.restore, curator.retired

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the sandbox's processes; the next call starts them again."""
        await self._workshops.close()
