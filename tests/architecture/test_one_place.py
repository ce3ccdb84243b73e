"""A lesson kind, a field of a skill, an import format, a provider, a retention time, a tool of the agent, a format of
transcripts and a kind of job are each declared in one place, a module of its own for a format beside it.

One of each is added to a copy of the sources, in that place only, and the product is used with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from habitus.llm.providers.known_providers import PROVIDERS

ROOT = Path(__file__).parents[2]

_ADDED = {  # file → what stands there, and what is put in front of it
    "memory/model.py": (
        '    LESSON = "lesson", ',
        '    CAUTION = "caution", PromptPart.RULES, "Caution", "what to mind", "mind this"\n',
    ),
    "skills/model.py": ('    when_to_use: str = ""\n', "    audience: tuple[str, ...] = ()\n"),
    "skills/editable_fields.py": (
        ")\nFIELD_NAMES = ",
        '    EditableField(name="audience", noun="for", label="For whom", help="Who does it.", is_list=True),\n',
    ),
    "settings.py": ("    lessons: int = Field(", '    naps: int = Field(default=4, description="Naps a day.")\n'),
    "llm/providers/known_providers.py": (
        '    "anthropic": ProviderSpec(',
        '    "acme": ProviderSpec(dialect=ProviderDialect.CHAT, keys=("ACME_KEY",), example="acme:small", '
        'main="large", cheap="small", address="http://127.0.0.1:9/v1"),\n',
    ),
    # A tool is declared in the list of its subject; its name is kept from the code of skills.
    "agent/tools/builtin_tools.py": (
        "    return [build_report_outcome_tool(), ",
        "    greet = Tool(name='greet', description='Greets.', arguments=ToolArguments, access=Access.VIEWER, "
        "reach=ToolEffectReach.NOTHING, is_default=True, run=lambda given, running: ToolResult(content='hello'))\n",
    ),
    "agent/tools/memory_tools.py": (
        "    return [\n        build_memorize_tool(",
        "    wipe = Tool(name='wipe', description='Wipes.', arguments=ToolArguments, access=Access.ADMIN, "
        "is_destructive=True, is_repeatable=True, run=lambda given, running: ToolResult(content='gone'))\n",
    ),
    "app/operating/job_kinds.py": (
        "_AnyJobKind = (\n",
        "class NapJob(_JobKind):\n    title = 'Take a nap'\n\n"
        "    def run_part(self, part, key, before):\n        return {'naps': 1}\n\n\n",
    ),
    "learning/transcripts/formats/registry.py": ("_ROW_READERS: ", "from habitus.learning.transcripts import diary\n"),
    "skills/names.py": ('        *("scratchpad", ', '        *("greet", "wipe"),\n'),
    "skills/formats/detect.py": (
        "FORMATS: tuple[SkillFormat, ...] = (",
        "from habitus.skills.formats.notebook import NotebookFormat\n",
    ),
}
_NOTEBOOK = '''
from habitus.files import build_tree_file
from habitus.skills.formats.base import FormatExportResult, IncomingSkill, SkillFormat


class NotebookFormat(SkillFormat):
    """One skill a file: its description on the first line, then its steps."""

    name = "notebook"

    def can_read(self, path, inside):
        return path.suffix == ".book"

    def read_entries(self, path, origin):
        said, _, steps = path.read_text().partition("\\n")
        text = f"---\\nname: {path.stem}\\ndescription: {said}\\n---\\n\\n{steps}"
        tree = {"SKILL.md": build_tree_file(text.encode())}
        yield IncomingSkill(name=path.stem, tree=tree, origin=origin, format="notebook")

    def write_skills(self, skills, to, *, lessons=(), overwrite=False):
        paths = [to / f"{out.skill.name}.book" for out in skills]
        for path, out in zip(paths, skills):
            path.write_text(f"{out.skill.description}\\n{out.skill.body}")
        return FormatExportResult(paths=tuple(paths))
'''
_DIARY = '''
from habitus.learning.transcripts.model import TranscriptDraft
from habitus.learning.transcripts.reading import read_json_objects
from habitus.learning.transcripts.model import infer_call_outcome
from collections import Counter

SOURCE = "diary"


def recognizes_row(row):
    return "dear" in row


def read_transcript_pieces(path, redactor):
    """One call a line, with what came of it."""
    draft = TranscriptDraft(id=path.stem, source=SOURCE, redactor=redactor)
    for row in read_json_objects(path, Counter()):
        call = draft.add_call(draft.turn, "", row["did"], {})
        draft.add_result(call, infer_call_outcome({}, row["came"]), row["came"])
    yield draft.finish()
'''
_USE = """
import asyncio, contextlib, io, json, os, sys

from mcp.client import Client

from habitus.app import Habitus, read_settings
from habitus.cli import main
from habitus.llm.scripted import ScriptedModel, says
from habitus.mcp.server_options import McpServerOptions
from habitus.mcp.server import LazyHome, make_mcp_server

NEW = ("greet", "wipe")

def run(*args):
    sys.argv = ["habitus", *args]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main.run()
    return out.getvalue() + err.getvalue()


async def talk():
    model = ScriptedModel([says("Yes.")])
    with Habitus.open() as habitus:
        async with habitus.session(model) as session:
            await session.turn("mind the gap")
    (ask,) = model.asked
    tools = {tool.name: tool.parameters["properties"] for tool in ask.tools}
    audience = tools["update_skill"]["audience"]["description"]
    return {"prompt": ask.system, "kinds": tools["memorize"]["kind"], "audience": audience, "tools": list(tools)}


async def serve(profile, read_only):
    options = McpServerOptions(profile=profile, read_only=read_only)
    lazy_home = LazyHome(options)
    async with Client(make_mcp_server(lazy_home)) as client:
        found = [tool for tool in (await client.list_tools()).tools if tool.name in NEW]
    await lazy_home.close()
    return {tool.name: tool.annotations.model_dump(exclude_none=True, by_alias=True) for tool in found}


def browse():
    from fastapi.testclient import TestClient
    from habitus.web.app import make_web_app
    from habitus.web.home_pool import HomePool
    from habitus.web.security import load_sign_in_service

    host, pages = "127.0.0.1:8765", {}
    with Habitus.open() as habitus:
        homes, keys = HomePool(habitus), load_sign_in_service(habitus)
        client = TestClient(make_web_app(homes, keys, {host}), base_url=f"http://{host}")
        cookie = keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key())
        client.cookies.set(keys.cookie, cookie)
        client.headers.update({"X-CSRF": keys.make_csrf_token(cookie), "Origin": f"http://{host}"})
        sent = {"Authorization": f"Bearer {keys.owner_token}"}
        sent["If-Match"] = client.get("/api/v1/skills/brew-tea", headers=sent).headers["ETag"]
        lesson = habitus.memory.list_lessons("all", limit=1)[0].id
        form = {"title": "Make cocoa", "description": "How cocoa is made.", "audience": "cooks, kids", "body": "Stir."}
        pages["write"] = client.post("/new/write", data=form)
        pages["patch"] = client.patch("/api/v1/skills/brew-tea", json={"audience": ["hosts"]}, headers=sent)
        shown = ("/", "/lessons", "/lessons?kind=caution", f"/lessons/{lesson}", "/inbox", "/new", "/automation")
        shown += ("/skills/make-cocoa", "/skills/make-cocoa?tab=edit", "/api/v1/lessons", "/api/v1/skills/brew-tea")
        for path in shown:
            pages[path.replace(lesson, "ID")] = client.get(path, headers=sent if "api" in path else {})
        homes.close()
    return {path: [answer.status_code, answer.text] for path, answer in pages.items()}


os.mkdir("out")
open("dear.jsonl", "w").write('{"dear": 1, "did": "tea", "came": "Error: no water"}\\n' * 2)
open("said.json", "w").write('[{"say": "Hello."}]')
open("tea.book", "w").write("How tea is made.\\nBoil water.\\n")
said = {
    "add": run("lessons", "add", "Mind the gap.", "--kind", "caution"),
    "help": run("lessons", "add", "--help"),
    "lessons": run("lessons", "list"),
    "chat": run("chat", "--json", "--model", "script:said.json"),
    "new": run("skills", "new", "brew-tea", "-d", "How tea is brewed.", "--audience", "cooks, guests"),
    "options": run("skills", "edit", "--help"),
    "shown": run("skills", "show", "brew-tea"),
    "pages": browse(),
    "edited": run("skills", "edit", "brew-tea", "--audience", "everybody"),
    "file": open(".habitus/skills/brew-tea/SKILL.md").read(),
    "talk": asyncio.run(talk()),
    "served": asyncio.run(serve("default", False)),
    "served_all": asyncio.run(serve("all", False)),
    "served_read": asyncio.run(serve("all", True)),
    "taken": run("tools", "new", "greet", "-d", "Greets.", "--code", "tea.book"),
    "learned": run("learn", "dear.jsonl", "--json"),
    "left": run("jobs", "add", "nap"),
    "worked": run("jobs", "work", "--until-idle"),
    "jobs": run("jobs", "list", "--all", "--json"),
    "import": run("skills", "import", "tea.book"),
    "export": run("skills", "export", "tea", "--format", "notebook", "--to", "out"),
    "layouts": run("skills", "export", "--help"),
    "formats": run("skills", "export", "tea", "--format", "none-of-them", "--to", "out"),
    "doctor": run("doctor", "--json"),
    "providers": run("chat", "hello", "--model", "zzz:y"),
    "naps": read_settings().retention.naps,
}
sys.path.insert(0, os.environ["SCRIPTS"])
import reference

print(json.dumps(said | {"reference": reference.settings_page()}))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the product says of the four, used from a copy of the sources that has them."""
    place = tmp_path_factory.mktemp("one-place")
    copy = place / "src" / "habitus"
    shutil.copytree(ROOT / "src" / "habitus", copy)  # with what is compiled: it fits as long as the dates do
    for name, (before, added) in _ADDED.items():
        text = (copy / name).read_text()
        assert text.count(before) == 1, name
        (copy / name).write_text(text.replace(before, added + before))
    detect = copy / "skills" / "formats" / "detect.py"
    detect.write_text(detect.read_text().replace("    AntonFormat(),", "    NotebookFormat(),\n    AntonFormat(),", 1))
    detect.with_name("notebook.py").write_text(_NOTEBOOK)
    (copy / "learning" / "transcripts" / "diary.py").write_text(_DIARY)
    for name, (before, after) in {
        "learning/transcripts/formats/registry.py": ("] = (\n    rows,", "] = (\n    diary,\n    rows,"),
        "app/operating/job_kinds.py": (
            '    "curate": CurateSkillsAndLessonsJob,',
            '    "nap": NapJob,\n    "curate": CurateSkillsAndLessonsJob,',
        ),
    }.items():
        (copy / name).write_text((copy / name).read_text().replace(before, after, 1))
    for name, first, tool in (
        ("builtin_tools", "build_report_outcome_tool(), ", "greet"),
        ("memory_tools", "\n        build_memorize_tool(", "wipe"),
    ):
        listed = copy / "agent" / "tools" / f"{name}.py"
        listed.write_text(listed.read_text().replace(f"    return [{first}", f"    return [{tool}, {first}", 1))
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "PYTHONPATH": str(place / "src"),
        "SCRIPTS": str(ROOT / "scripts"),
        "ACME_KEY": "k",
        "HABITUS_RETENTION_NAPS": "9",
    }
    done = subprocess.run(
        [sys.executable, "-c", _USE],
        cwd=place,
        env=environ,
        input="/lessons\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["page"] = (place / ".habitus" / "memory" / "rules.md").read_text()
    found["written"] = (place / "out" / "tea.book").read_text()
    return found


@pytest.mark.full
def test_a_new_kind_of_lesson_reaches_page_prompt_tool_and_help(said: dict[str, Any]) -> None:
    assert str(said["add"]).startswith("Stored: ")
    assert "## Caution\n\n- Mind the gap." in str(said["page"])
    assert "caution" in str(said["help"])
    talk = said["talk"]
    assert "- Caution: Mind the gap." in talk["prompt"]
    assert "caution" in talk["kinds"]["enum"]
    assert "caution: what to mind" in talk["kinds"]["description"]


def test_a_new_kind_of_lesson_opens_every_surface_that_lists_lessons(said: dict[str, Any]) -> None:
    assert "Mind the gap." in said["lessons"]
    assert "Mind the gap." in said["chat"]
    pages = said["pages"]
    assert pages["/"][0] == 200
    for path in ("/lessons", "/lessons?kind=caution", "/lessons/ID", "/api/v1/lessons"):
        assert (pages[path][0], "Mind the gap." in pages[path][1]) == (200, True), path
    assert "Mind this" in pages["/lessons"][1]


def test_a_new_field_of_a_skill_is_read_written_and_edited_everywhere(said: dict[str, Any]) -> None:
    pages = said["pages"]
    assert {path: answer for path, answer in pages.items() if answer[0] != 200} == {}
    assert "--audience" in said["options"]
    assert "cooks, guests" in said["shown"]
    assert 'name="audience"' in pages["/new"][1]
    assert 'value="cooks, kids"' in pages["/skills/make-cocoa?tab=edit"][1]
    assert "cooks, kids" in pages["/skills/make-cocoa"][1]
    assert json.loads(pages["/api/v1/skills/brew-tea"][1])["audience"] == ["hosts"]
    assert said["talk"]["audience"] == "Who does it."
    assert "everybody" in said["file"]


def test_a_new_format_is_imported_exported_and_named(said: dict[str, Any]) -> None:
    assert "tea" in str(said["import"])
    assert "imported" in str(said["import"])
    assert "'notebook'" in str(said["export"])
    assert str(said["written"]).startswith("How tea is made.\n")
    assert "notebook, anton" in str(said["layouts"])
    assert "Use one of notebook, anton" in str(said["formats"])


def test_a_new_provider_is_found_by_its_key_and_named_in_mistakes(said: dict[str, Any]) -> None:
    (model,) = [check for check in json.loads(str(said["doctor"]))["checks"] if check["name"] == "model"]
    assert (model["state"], model["detail"]) == ("ok", "acme:large")
    assert "Known are acme, anthropic" in str(said["providers"])


def test_a_new_retention_time_is_a_key_a_variable_and_a_line_of_the_reference(said: dict[str, Any]) -> None:
    assert said["naps"] == 9
    line = "| `[retention]` `naps` | `HABITUS_RETENTION_NAPS` | number | `4` | Naps a day. |"
    assert line in str(said["reference"])


def test_a_new_tool_reaches_our_agent_and_clients_as_it_says_itself(said: dict[str, Any]) -> None:
    greet = {"readOnlyHint": True, "openWorldHint": False}
    wipe = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
    assert ("wipe" in said["talk"]["tools"], "greet" in said["talk"]["tools"]) == (True, False)
    assert (said["served"], said["served_all"]) == ({"greet": greet}, {"greet": greet, "wipe": wipe})
    assert said["served_read"] == {"greet": greet}
    assert "greet" in said["taken"]
    assert "built-in" in said["taken"]


def test_a_new_format_of_transcripts_is_known_and_taught_by(said: dict[str, Any]) -> None:
    found = json.loads(said["learned"])
    assert [(file["format"], file["turns"], file["events"]) for file in found["files"]] == [("diary", 1, 4)]
    assert [fired["detector"] for fired in found["detectors"]] == ["repeated_tool_error"]


def test_a_new_kind_of_job_is_left_and_done(said: dict[str, Any]) -> None:
    (job,) = json.loads(said["jobs"])["jobs"]
    assert (job["kind"], job["state"], job["result"]) == ("nap", "done", {"naps": 1}), said["worked"]
    assert "Take a nap" in said["pages"]["/automation"][1]


def test_the_guide_names_every_provider_with_its_keys_and_an_example() -> None:
    guide = (ROOT / "docs" / "guides" / "chat.md").read_text()
    rows = [line for line in guide.splitlines() if line.startswith("| `")]
    for name, provider in PROVIDERS.items():
        assert any(
            all(f"`{word}" in row for word in (name, *provider.keys, provider.address_in, provider.example))
            for row in rows
        ), name
