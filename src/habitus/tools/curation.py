"""Curation of tools: retire what has been degraded for its time, take one out of use, and bring one back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from habitus.errors import Invalid, NotFound, Refused
from habitus.settings import RetentionSettings
from habitus.skills import names, trees
from habitus.skills.library import Library
from habitus.skills.listing import Listed
from habitus.skills.model import Author, Stage
from habitus.tools.catalogue import ToolCatalogue
from habitus.tools.code_stage import is_only_a_tool, without_tool
from habitus.tools.health import Health, ToolHealth, after_curator, after_failed_cases, reason_to_retire
from habitus.tools.model import CodeTool, Regression, Retired, ToolStatus


class ToolCurator:
    """Nothing is lost on the way: whatever leaves can be restored. `test` runs the cases of a tool again."""

    def __init__(
        self,
        catalogue: ToolCatalogue,
        library: Library,
        health: ToolHealth,
        *,
        test: Callable[[str], Awaitable[Regression]],
        clock: Callable[[], datetime],
        retention: RetentionSettings,
    ) -> None:
        self._catalogue = catalogue
        self._library = library
        self._health = health
        self._test = test
        self._clock = clock
        self._retention = retention

    async def curate(self, author: Author) -> list[Retired]:
        """Look at every degraded tool once, and send those to the archive that have had their time."""
        known = await asyncio.to_thread(self._catalogue.all)
        degraded = [tool for tool in known if tool.status is ToolStatus.DEGRADED]
        retired: list[Retired] = []
        for tool in degraded:
            report = await self._test(tool.name)
            gone = await asyncio.to_thread(self._judge, tool.name, author, fails_its_cases=bool(report.failed_cases))
            retired += [gone] if gone else []
        return retired

    async def renew(self, name: str) -> Regression:
        """Run the cases of a tool whose proof is stale; it is degraded where they fail."""
        report = await self._test(name)
        if report.failed_cases:
            await asyncio.to_thread(self._degrade, name, report)
        return report

    def _degrade(self, name: str, report: Regression) -> None:
        item, now, reason = self._catalogue.item(name), self._clock(), report.failed_cases[0].outcome.reason
        place = self._catalogue.place(item)
        self._health.change(
            place, item.name, lambda health: after_failed_cases(health, report.fingerprint, reason, now)
        )

    def _judge(self, name: str, author: Author, *, fails_its_cases: bool) -> Retired | None:
        """A curator came by: note it, and retire the tool if it has had its time."""
        item = self._catalogue.item(name)
        reason = reason_to_retire(
            self._health.change(self._catalogue.place(item), item.name, after_curator),
            self._clock(),
            fails_its_cases=fails_its_cases,
            most_days=self._retention.degraded_tool_days,
            most_curator_runs=self._retention.degraded_tool_curator_runs,
        )
        return self.retire(name, replace(author, reason=reason)) if reason else None

    def retire(self, name: str, author: Author) -> Retired:
        """Take a tool out of use. A skill that is nothing else goes to the archive; another keeps its other stages."""
        wanted = names.parse_address(name)
        item = self._catalogue.item(wanted.name)
        layer = self._library.layer(item.layer)
        if wanted.layer not in (None, item.layer):
            raise NotFound(f"There is no tool '{name}'.", mend=f"It is in the layer '{item.layer}'.")
        if not layer.can_write:
            raise Refused(f"'{item.name}' is in the read-only layer '{layer.name}'.", mend="Disable it instead.")
        author = replace(author, reason=author.reason or "tool retired")
        tree = self._catalogue.tree(item)
        address = f"{item.name}@{item.layer}"
        if is_only_a_tool(item.name, tree):
            self._library.remove(address, author)
        else:
            self._library.write_tree(item.layer, item.name, without_tool(tree), author)
        return Retired(name=item.name, reason=author.reason, undo=("tools", "restore", address))

    def list_retired(self) -> list[Retired]:
        """Tools that left and can be restored, by name: of a skill in the archive, or of one that lost its code."""
        items, archived = self._catalogue.all(), {}
        for old in reversed(self._library.list_archived()):
            archived[old.name] = old.author.reason
        gone = sorted({name for _, name in self._health.all()} - {tool.name for tool in items})
        found = []
        for name in gone:
            item = self._catalogue.skill(name)
            reason = archived.get(name) if item is None else self._why_lost(item)
            if reason is not None:
                found.append(Retired(name=name, reason=reason, undo=("tools", "restore", name)))
        return found

    def _why_lost(self, item: Listed) -> str | None:
        """Why the code of a skill was taken out; None where it never had any."""
        history = self._library.layer(item.layer).store.history(item.name)
        with_code = [number for number, version in enumerate(history) if trees.TOOL_CODE in version.paths]
        return history[with_code[-1] + 1].author.reason if with_code and with_code[-1] + 1 < len(history) else None

    def restore(self, name: str, author: Author) -> CodeTool:
        """Bring a tool back as it was; what was counted against it is forgotten."""
        wanted = names.parse_address(name)
        item = self._catalogue.skill(wanted.name)
        author = replace(author, reason=author.reason or "tool restored")
        if item is None:
            self._library.restore(name, author)
        elif item.summary is not None and Stage.CODE in item.summary.stages:
            raise Invalid(f"The tool '{item.name}' is there already.", mend="See 'habitus tools list'.")
        else:
            self._put_back(item, author)
        found = self._catalogue.item(wanted.name)
        self._health.change(
            self._catalogue.place(found),
            found.name,
            lambda health: Health(proved_as=health.proved_as, proved_on=health.proved_on),
        )
        return self._catalogue.get(found.name)

    def _put_back(self, item: Listed, author: Author) -> None:
        """The newest code in the skill's history, beside what the skill is now."""
        store = self._library.layer(item.layer).store
        with_code = [version for version in store.history(item.name) if trees.TOOL_CODE in version.paths]
        if not with_code:
            raise NotFound(f"'{item.name}' never had a tool.", mend="Make one: 'habitus tools new'.")
        old = store.tree(item.name, with_code[-1].number) or {}
        code = {path: old[path] for path in (trees.TOOL_FILE, trees.TOOL_CODE) if path in old}
        self._library.write_tree(item.layer, item.name, {**self._catalogue.tree(item), **code}, author)
