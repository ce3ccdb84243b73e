"""A degraded tool gets a proposal to repair it, at the moment it is degraded."""

from __future__ import annotations

import json

import pytest

from habitus.app import Habitus
from habitus.llm.model import CompletionRequest
from habitus.llm.scripted import ScriptedModel, ScriptStep, calls, says
from habitus.skills.review import Proposal
from habitus.tools.model import ToolStatus
from tests.agent.conftest import Talk

pytestmark = pytest.mark.req("LA-06", "SB-08")

SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
CODE = "import json, sys\nprint(json.dumps({'part': 1 / json.loads(sys.argv[1])['n']}))\n"
REPAIRED = "import json, sys\nn = json.loads(sys.argv[1])['n']\nprint(json.dumps({'part': 1 / n if n else 0}))\n"
CELL = "import json; print(json.dumps({'part': 1 / $n if $n else 0}))"
RECIPE = f"""## divide safely
```yaml
params: {{n: {{type: number}}}}
steps:
- {{tool: scratchpad, params: {{action: exec, name: main, code: "{CELL}"}}}}
```
"""


async def make_tool(habitus: Habitus) -> None:
    async with habitus.tools as tools:
        await tools.create("divide", "Divides one", SCHEMA, CODE, {"n": 2}, habitus.build_author())
    folder = habitus.skills.find_directory("divide")
    assert folder is not None
    (folder / "chunks.md").write_text(RECIPE)
    habitus.tools.approve("divide", "ann")


FAILING = [*[calls("divide", {"n": 0})] * 3, calls("divide_safely", {"n": 0}), says("It is 0.")]


def pending(habitus: Habitus) -> list[Proposal]:
    return list(habitus.review.list_proposals_by_state())


async def test_the_inputs_that_failed_are_proposed_as_cases_with_what_the_recipe_returned(
    talk: Talk, habitus: Habitus
) -> None:
    await make_tool(habitus)
    session, _ = talk([*FAILING, calls("divide", {"n": 0}), says("no")])
    await session.turn("divide by nothing")
    await session.close()
    (proposal,) = pending(habitus)
    repair, failed, *_ = proposal.reasons
    assert repair.startswith("repair: it failed 3 times in a row, last with: ZeroDivisionError")
    assert failed.startswith('with {"n": 0} it failed: ')
    assert 'instead, `divide_safely` returned: {"part": 0}' in failed

    later, _ = talk([calls("divide", {"n": 0}), says("no")])
    await later.turn("divide again")
    await later.close()
    assert pending(habitus) == [proposal]  # once

    habitus.review.approve(proposal.id, habitus.build_author())
    (known,) = [case for case in habitus.tools.cases("divide") if case.payload == {"n": 0}]
    assert known.expected_result is not None
    assert known.expected_result.value == {"part": 0}
    async with habitus.tools as tools:
        assert not (await tools.test("divide")).passed  # until somebody repairs the code
        await tools.create("divide", "Divides one", SCHEMA, REPAIRED, {"n": 2}, habitus.build_author())
        assert (await tools.test("divide")).passed
    assert habitus.tools.get("divide").status is ToolStatus.ACTIVE


def write_code(*drafts: str) -> ScriptedModel:
    """A model that answers with these programs, and finds nothing in post-mortems."""
    left = list(drafts)

    def answer(ask: CompletionRequest) -> ScriptStep:
        if "look back at steps" in ask.system:
            return says('{"lessons": []}')
        assert "1 / json.loads" in str(ask.messages)
        return says(json.dumps({"description": "Divides one", "code": left.pop(0), "payload": {"n": 0}}))

    return ScriptedModel(answer)


async def test_a_model_drafts_the_repair_and_it_must_pass_those_inputs(talk: Talk, habitus: Habitus) -> None:
    await make_tool(habitus)
    session, _ = talk(FAILING, cheap=write_code(CODE, REPAIRED))
    await session.turn("divide by nothing")
    await session.close()
    (proposal,) = pending(habitus)
    assert any("drafted by" in reason for reason in proposal.reasons)
    assert [row["recorded"] for row in proposal.trial] == ['{"part": 0}']
    habitus.review.approve(proposal.id, habitus.build_author())
    assert habitus.tools.get("divide").status is ToolStatus.ACTIVE
    async with habitus.tools as tools:
        assert (await tools.run("divide", {"n": 0})).stdout.strip() == '{"part": 0}'


async def test_a_model_without_a_repair_leaves_the_cases_and_a_rejected_repair_is_not_proposed_again(
    talk: Talk, habitus: Habitus
) -> None:
    await make_tool(habitus)
    session, _ = talk(FAILING, cheap=write_code(CODE, CODE))
    await session.turn("divide by nothing")
    await session.close()
    (proposal,) = pending(habitus)
    assert "was not accepted" in proposal.reasons[-1]
    habitus.review.reject(proposal.id, habitus.build_author(), "leave it")
    later, _ = talk([calls("divide", {"n": 0}), says("no")])
    await later.turn("divide again")
    await later.close()
    assert pending(habitus) == []
