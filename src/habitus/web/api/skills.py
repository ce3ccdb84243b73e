"""REST for the files of skills, for files that bring skills along, and for what a skill can do by itself: its tested
tool and its recipes, looked at and run, and trust in them. `app/use_cases` declares the rest.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response, UploadFile
from pydantic import BaseModel, Field

from habitus.agent.background import in_thread
from habitus.app import json_shapes
from habitus.app.conversations import running_code
from habitus.app.library import recipes, trusting, updating, uploading
from habitus.app.library.trusting import TrustState
from habitus.app.library.updating import TakenIn
from habitus.app.operating.idempotency import Attempt, once
from habitus.app.use_cases.skills import file_of as file_of_skill
from habitus.errors import Refused
from habitus.events import ToolResult
from habitus.files import file_of, is_examination
from habitus.jobs.model import Job
from habitus.recipes.catalogue import SkillRecipe
from habitus.sandbox.model import ToolRun
from habitus.skills.model import Counters
from habitus.skills.trees import runs_unasked
from habitus.tools.model import CodeTool, Regression
from habitus.web.api.requests_and_answers import (
    AsMade,
    Body,
    IfMatch,
    Json,
    Line,
    OnceKey,
    Opened,
    TaskRow,
    answer,
    as_json,
    expected_version,
    many,
    read_upload,
)
from habitus.web.api.use_case_routes import shape_of

router = APIRouter(tags=["skills"], route_class=AsMade)

Taken = shape_of(TakenIn)


@router.get("/skills/{name}/files/{path:path}", response_class=Response)
def file(habitus: Opened, name: str, path: str) -> Response:
    """One of its files as it is, to be kept and not to be shown by a browser."""
    if is_examination(path) and not habitus.settings.is_admin:
        raise Refused(f"'{path}' says what the skill is examined by, which only admins read.", mend="Ask one of them.")
    content = file_of_skill(habitus.skills, name, path)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": "attachment"})


@router.put("/skills/{name}/files/{path:path}", response_model=answer("WrittenFile", name=str, version=int))
async def put_file(
    habitus: Opened, name: str, path: str, request: Request, if_match: IfMatch = None, reason: Line = ""
) -> Json:
    """Replace one of its files whole by what is sent."""
    content = await request.body()
    return await in_thread(lambda: _put_file(habitus, name, path, content, if_match, reason))


def _put_file(habitus: Opened, name: str, path: str, content: bytes, if_match: str | None, reason: str) -> Json:
    if habitus.settings.is_guest and runs_unasked(path):
        mend = "Tools run it unasked, so only the owner of this home changes it."
        raise Refused(f"'{path}' is not for you to change.", mend=mend)
    author, version = habitus.person(reason), expected_version(if_match, habitus.skills.find(name).layer)
    made = habitus.skills.edit_file(name, path, content, author, expected_version=version)
    return {"name": name, "version": made.version}


@router.post("/uploads", response_model=uploading.Looked | Taken | Job)
def upload(habitus: Opened, file: UploadFile, save: bool = False, overwrite: bool = False, key: OnceKey = "") -> Json:
    """What is in a .md, .zip or .tar.gz, and what a scan finds in it; with `save` it is taken in as well, what is large
    by a job."""
    sent = read_upload(file)

    def make(attempt: Attempt) -> Json:
        taken = uploading.take(habitus, sent, overwrite=overwrite, id=attempt.id)
        answer: Json = as_json(json_shapes.result(taken))
        return answer

    if save:
        return once(habitus, key, ["uploads", as_json(sent.name), file_of(sent.content).sha256, overwrite], make)
    answer: Json = as_json(uploading.look(habitus.skills, habitus.screening, sent))
    return answer


class Addition(BaseModel):
    source: str = Field(max_length=2_000, description="https://…, or OWNER/REPO[/FOLDER].")
    overwrite: bool = False


@router.post("/additions", response_model=Taken)
def add(habitus: Opened, wanted: Addition, key: OnceKey = "") -> Json:
    """Fetch skills from a site, an archive or a repository on the public internet, and take them in."""

    def make(attempt: Attempt) -> Json:
        taken = updating.add_from_web(habitus, wanted.source, overwrite=wanted.overwrite)
        answer: Json = as_json(json_shapes.result(taken))
        return answer

    return once(habitus, key, ["additions", as_json(wanted.source), wanted.overwrite], make)


Tool = answer("ToolWhole", CodeTool, without=("cases",), code=str, cases=list[TaskRow], counters=Counters)
Tested = answer("Tested", Regression, passed=bool)
Recipe = answer("Recipe", SkillRecipe, without=("key",), name=str)


class Given(Body):
    payload: dict[str, Any] = Field(default_factory=dict)


@router.get("/skills/{name}/tool", response_model=Tool)
def tool(habitus: Opened, name: str) -> Json:
    """Its tested tool: what it takes, asks for and passed, how its calls went, and the code where that can be read."""
    answer: Json = as_json(json_shapes.tool(running_code.show_tool(habitus, name)))
    return answer


@router.post("/skills/{name}/run", response_model=ToolRun)
def run(habitus: Opened, name: str, wanted: Given) -> Json:
    """Call its tool; that counts as any other use."""
    answer: Json = as_json(running_code.run_tool(habitus, name, wanted.payload))
    return answer


@router.post("/skills/{name}/test", response_model=Tested)
def test(habitus: Opened, name: str) -> Json:
    """Run the tests that its tool passed before once more."""
    answer: Json = as_json(json_shapes.regression(running_code.check_tool(habitus, name)))
    return answer


@router.get("/skills/{name}/recipes", response_model=answer("Recipes", recipes=many(Recipe)))
def list_recipes(habitus: Opened, name: str) -> Json:
    """Its recipes, each with its steps, and what keeps one from running."""
    skill = habitus.skills.find(name).name
    mine = [recipe for recipe in habitus.recipes.all() if recipe.skill == skill]
    return {"recipes": [as_json(json_shapes.recipe(recipe)) for recipe in mine]}


@router.post("/skills/{name}/recipes/{recipe}", response_model=ToolResult)
def run_recipe(habitus: Opened, name: str, recipe: str, wanted: Given) -> Json:
    """Run one of its recipes, in a turn of its own that is written down."""
    answer: Json = as_json(recipes.run(habitus.recipes, habitus.turn, recipe, wanted.payload))
    return answer


@router.get("/skills/{name}/trust", response_model=TrustState)
def show_trust(habitus: Opened, name: str) -> Json:
    """What it can do, what looks suspicious about it, and whether it may act as it is now."""
    answer: Json = as_json(trusting.look_at_trust(habitus, trusting.trustable_skill(habitus.skills, name)))
    return answer


@router.put("/skills/{name}/trust", response_model=TrustState)
def trust(habitus: Opened, name: str) -> Json:
    """Let it act as it is now."""
    answer: Json = as_json(trusting.give_trust(habitus, trusting.trustable_skill(habitus.skills, name), name))
    return answer


@router.delete("/skills/{name}/trust", response_model=TrustState)
def revoke(habitus: Opened, name: str) -> Json:
    """Trust it no longer."""
    answer: Json = as_json(trusting.take_trust(habitus, trusting.trustable_skill(habitus.skills, name), name))
    return answer
