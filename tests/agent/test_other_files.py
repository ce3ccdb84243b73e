"""A skill's other files in a conversation: listed, read, in the scratchpad, and run once a person trusts them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from habitus.agent.session import Session
from habitus.app import Habitus
from habitus.app.library import trusting
from habitus.app.library.importing import open_importer
from habitus.llm.model import AssistantMessage, Image, ToolResultMessage
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.sandbox.machine import probe_machine
from habitus.skills.formats import detect
from tests.agent.conftest import Talk

pytestmark = pytest.mark.req("SK-23")

MAIN = "---\nname: fill-form\ndescription: Fills forms\n---\nSee references/fields.md, then run scripts/fill.py.\n"
FILL = """import pathlib, sys
fields = pathlib.Path(__file__).parent.parent / "references/fields.md"
print('filled', fields.read_text().split()[1], *sys.argv[1:])
"""


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


FILES = {
    "references/fields.md": b"# Fields\n\nname, street\n",
    "assets/x.png": png(),
    "assets/blank.pdf": b"%PDF-1.7\n\0\xff",
    "scripts/fill.py": FILL.encode(),
}


def write(folder: Path, files: dict[str, bytes] = FILES, main: str = MAIN) -> Path:
    for path, content in {"SKILL.md": main.encode(), **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def own(habitus: Habitus, files: dict[str, bytes] = FILES, main: str = MAIN) -> None:
    """The person's own skill, by hand in their folder."""
    write(habitus.settings.home / "skills" / "fill-form", files, main)


def from_outside(habitus: Habitus, tmp_path: Path) -> None:
    found = detect.read_entries(write(tmp_path / "theirs" / "fill-form"))
    assert [one.name for one in open_importer(habitus).import_entries(found, habitus.build_author())] == ["fill-form"]


def results(session: Session) -> list[ToolResultMessage]:
    return [message for message in session.history.messages if isinstance(message, ToolResultMessage)]


async def said(talk: Talk, script: Sequence[AssistantMessage], **options: object) -> list[ToolResultMessage]:
    session, _ = talk([*script, says("ok")], **options)
    await session.turn("fill this form")
    return results(session)


def recall() -> AssistantMessage:
    return calls("recall_skill", {"name": "fill-form"})


def read(path: str, **more: object) -> AssistantMessage:
    return calls("read_skill", {"name": "fill-form", "path": path, **more})


def cell(code: str) -> AssistantMessage:
    return calls("scratchpad", {"action": "exec", "code": code})


RUN = cell(
    "import os, subprocess, sys\nthere = os.environ['GIVEN'] + '/skills/fill-form'\n"
    "print(subprocess.run([sys.executable, there + '/scripts/fill.py', 'a'], capture_output=True, text=True))\n"
    "print(sorted(os.listdir(there)))"
)


LOOK = """import os, pathlib
found = [str(path) for top in (os.environ['GIVEN'], '.', os.path.expanduser('~'))
         for path in pathlib.Path(top).rglob('*') if 'evals' in str(path).lower() or
         (path.is_file() and b'FORTY' + b'-TWO' in path.read_bytes())]
print('found', found)
"""


@pytest.mark.req("IM-01")
async def test_what_examines_a_skill_is_never_shown_to_who_uses_it(talk: Talk, habitus: Habitus) -> None:
    answer = b'[{"query": "fill this form", "expect": ["FORTY-TWO"]}]'
    own(habitus, {**FILES, "evals/evals.json": answer, "evals/tasks.toml": answer, "Evals/files/a.csv": answer})
    paths = ("evals/evals.json", "./evals/tasks.toml", "scripts/../evals/evals.json", "Evals/files/a.csv", "evals", ".")
    script = [recall(), *map(read, paths), calls("read_skill", {"name": "fill-form"}), cell(LOOK)]
    session, model = talk([*script, calls("search_skills", {"query": "FORTY-TWO"}), says("ok")])
    await session.turn("fill this form")
    shown = [message.content for message in results(session)]
    assert [message.failed for message in results(session)] == [False, *[True] * 5, *[False] * 4]
    assert shown[-2].strip().endswith("found []")
    told = repr(model.asked).replace("'query': 'FORTY-TWO'", "")
    assert "expect" not in told
    assert "FORTY-TWO" not in "".join(shown[:-1])
    assert "a.csv (" not in told
    assert habitus.skills.read_tree("fill-form").keys() > {"evals/evals.json", "evals/tasks.toml"}  # a person has them


async def test_a_recalled_skill_names_its_files_and_its_script_runs_in_a_cell(talk: Talk, habitus: Habitus) -> None:
    own(habitus)
    script = [
        recall(),
        RUN,
        read("references/fields.md"),
        read("references/"),
        calls("read_skill", {"name": "fill-form"}),
    ]
    recalled, ran, page, folder, data = await said(talk, script)
    assert json.loads(data.content)["files"] == sorted(FILES)
    lines = recalled.content.splitlines()
    where = next(line for line in lines if line.startswith("Other files of this skill."))
    assert lines[lines.index(where) + 1 :] == [
        "- assets/blank.pdf (11 bytes)",
        f"- assets/x.png ({len(png())} bytes)",
        "- references/fields.md (23 bytes): # Fields",
        f"- scripts/fill.py ({len(FILL)} bytes): import pathlib, sys",
    ]
    stated = where.split(" in ", 1)[1].split(",")[0]
    assert stated == "/given/skills/fill-form" or not probe_machine().bubblewrap
    assert "filled Fields a" in ran.content
    assert "['SKILL.md', 'assets', 'references', 'scripts']" in ran.content
    assert page.content == "references/fields.md of fill-form:\n\n# Fields\n\nname, street\n"
    assert folder.content == "Files of fill-form:\n\n- references/fields.md (23 bytes): # Fields"


@pytest.mark.full
async def test_code_from_outside_is_read_and_not_run_until_a_person_trusts_it(
    talk: Talk, habitus: Habitus, tmp_path: Path
) -> None:
    from_outside(habitus, tmp_path)
    session, _ = talk([recall(), RUN, read("scripts/fill.py"), says("ok"), RUN, says("ok"), RUN, says("ok")])
    await session.turn("fill this form")
    recalled, ran, shown = (message.content for message in results(session))
    assert f"({len(FILL)} bytes; not in the scratchpad: its code is not trusted)" in recalled
    assert "Only a person can change that; tell them: 'habitus review trust fill-form'." in recalled
    assert "No such file or directory" in ran
    assert "['SKILL.md', 'assets', 'references']" in ran
    assert "This skill has not been reviewed" in shown
    assert "print('filled'" in shown
    found = trusting.resolve_trust_target(habitus, "fill-form")
    trusting.store_trust(habitus, found)
    await session.turn("I trust it now")
    assert "filled Fields a" in results(session)[-1].content
    trusting.remove_trust(habitus.trust, habitus.approvals, found)
    await session.turn("and not any more")
    assert "filled Fields a" not in results(session)[-1].content


@pytest.mark.full
async def test_a_picture_is_shown_as_one_and_a_binary_by_its_place(talk: Talk, habitus: Habitus) -> None:
    own(habitus)
    script = [read("assets/x.png"), read("assets/blank.pdf")]
    seen, binary = await said(talk, script, model={"sees_images": True})
    assert seen.images == (Image(data=png(), media_type="image/png"),)
    assert binary.content.startswith("assets/blank.pdf of fill-form: 11 bytes, application/pdf, no text. In the ")
    assert binary.content.endswith("/skills/fill-form/assets/blank.pdf.")
    blind, _ = await said(talk, script, model={"sees_images": False})
    assert blind.images == ()
    assert "image/png, which you can't see." in blind.content


async def test_a_picture_is_still_there_in_a_session_that_goes_on(talk: Talk, habitus: Habitus) -> None:
    own(habitus, {**FILES, "assets/fake.png": b"\x89PNX not one"})
    session, _ = talk([read("assets/x.png"), read("assets/fake.png"), says("ok")], model={"sees_images": True})
    await session.turn("look at it")
    await session.close()
    again, model = talk([RUN, says("ok")], id=session.id, resume=True)
    await again.turn("go on")
    picture, fake = (message for message in model.asked[0].messages if isinstance(message, ToolResultMessage))
    assert picture.images == (Image(data=png(), media_type="image/png"),)
    assert fake.images == ()
    assert fake.content.startswith("assets/fake.png of fill-form:")
    assert "filled Fields a" in results(again)[-1].content


async def test_a_long_text_comes_page_by_page_without_its_secrets(talk: Talk, habitus: Habitus) -> None:
    key = "sk-ant-api03-" + "Qm9vTm90QVJlYWxLZXk4" * 4
    long = "x" * 15_990 + " " + key + " " + "y" * 20_000
    own(habitus, {"references/long.md": long.encode()})
    pages = [read("references/long.md", offset=at) for at in (0, 16_000, 99_999)]
    first, second, beyond = (message.content for message in await said(talk, pages))
    assert first.startswith("references/long.md of fill-form, characters 0 to 16,000 of ")
    assert first.endswith("[It goes on at offset=16000.]")
    assert "characters 16,000 to 32,000" in second
    assert "Qm9vTm90" not in first + second
    assert beyond.startswith("Error: references/long.md of fill-form has ")


@pytest.mark.full
async def test_a_skill_that_changed_shows_its_new_files_when_it_is_recalled_again(talk: Talk, habitus: Habitus) -> None:
    own(habitus)
    session, _ = talk([recall(), says("ok"), recall(), RUN, says("ok"), RUN, says("ok")])
    await session.turn("fill this form")
    own(
        habitus, {"references/fields.md": b"# Boxes\n", "references/more.md": b"More"}, MAIN.replace("then", "and then")
    )
    await session.turn("and this one")
    listed = "- references/fields.md (8 bytes): # Boxes\n- references/more.md (4 bytes): More"
    assert session.history.is_text_in_user_or_tool_messages(
        listed
    )  # beside the request, because the skill was used in the turn before
    assert "filled Boxes a" in results(session)[-1].content
    habitus.skills.remove("fill-form", habitus.build_author())
    await session.turn("once more")
    assert "FileNotFoundError" in results(session)[-1].content


async def test_a_skill_in_the_prompt_and_one_called_by_its_name_tell_of_their_files_too(
    talk: Talk, habitus: Habitus
) -> None:
    own(habitus, main=MAIN.replace("---\nSee", "always_include: true\n---\nSee"))
    launch = "---\nname: launch\ndescription: x\ndisable-model-invocation: true\n---\nGo.\n"
    write(habitus.settings.home / "skills" / "launch", main=launch)
    session, model = talk([cell("import os\nprint(sorted(os.listdir(os.environ['GIVEN'] + '/skills')))"), says("ok")])
    await session.turn("fill this form", invoked=habitus.skills.load("launch"))
    message = str(model.asked[0].messages[0])
    assert message.count("Other files of this skill. Code finds them in ") == 2
    assert "['fill-form', 'launch']" in results(session)[0].content


@pytest.mark.req("SC-03")
async def test_no_path_leads_out_of_a_skill(talk: Talk, habitus: Habitus, tmp_path: Path) -> None:
    paths = ["../../habitus.db", "/etc/passwd", "link.md", "inner/passwd", "a\0b", "", "..", "gone.md", "refs\\x.md"]
    own(habitus)
    folder = habitus.settings.home / "skills" / "fill-form"
    (tmp_path / "secret.md").write_text("TREASURE root:")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "inner").symlink_to("/etc")
    heard = [message.content for message in await said(talk, [recall(), *map(read, paths), RUN])]
    (recalled, *answers, ran) = heard
    assert "link.md" not in recalled
    assert "inner" not in recalled
    assert "link.md" not in ran
    for path, answer in zip(paths, answers, strict=True):
        assert "TREASURE" not in answer
        assert "root:" not in answer
        assert answer.startswith("Error: 'fill-form' has no file ") or path == ""


@pytest.mark.full
async def test_many_files_and_large_ones_are_bounded_and_said(talk: Talk, habitus: Habitus) -> None:
    own(habitus, {f"data/{number:05}.txt": b"" for number in range(60)} | {"assets/odd [name]\n#1.txt": b"odd"})
    folder = habitus.settings.home / "skills" / "fill-form"
    with (folder / "assets" / "huge.bin").open("wb") as huge:
        huge.truncate(100 << 20)
    (folder / "assets" / "large.txt").write_bytes(b"L" * (2 << 20))
    look = cell("import os\nprint(sorted(os.listdir(os.environ['GIVEN'] + '/skills/fill-form/assets')))")
    script = [recall(), read("assets/huge.bin"), read("."), read("assets/large.txt"), read("assets/odd [name]\n#1.txt")]
    recalled, huge_told, listed, large, odd, seen = (message.content for message in await said(talk, [*script, look]))
    assert "- assets/huge.bin (104,857,600 bytes; not in the scratchpad: it is larger than 32 MiB)" in recalled
    assert "(and 23 more; read_skill(name='fill-form', path='.') lists all)" in recalled
    assert huge_told.startswith("Error: 'assets/huge.bin' (104,857,600 bytes) can't be read: it is larger than 32 MiB.")
    assert listed.count("\n- ") == 63
    assert large.startswith("assets/large.txt of fill-form, characters 0 to 16,000 of 2,097,152:")
    assert odd == "assets/odd [name] #1.txt of fill-form:\n\nodd"
    assert "['large.txt', 'odd [name]\\n#1.txt']" in seen


@pytest.mark.full
async def test_ten_thousand_files_are_no_burden(talk: Talk, habitus: Habitus) -> None:
    own(habitus, {f"data/{'n' * 150}{number:05}.txt": b"x" for number in range(10_000)})
    count = cell("import os\nprint(len(os.listdir(os.environ['GIVEN'] + '/skills/fill-form/data')))")
    recalled, counted = (message.content for message in await said(talk, [recall(), count]))
    assert len(recalled) < 6_500
    assert "more; read_skill(name='fill-form', path='.') lists all)" in recalled
    assert "1999" in counted


async def test_code_asks_for_a_file_by_name_and_path(talk: Talk, habitus: Habitus) -> None:
    own(habitus)
    code = (
        "read = skills.read\nprint(read('fill-form')['files'])\n"
        "print(read('fill_form', 'references/fields.md').split(), read('fill-form', 'assets/blank.pdf'))\n"
        "for path in ('../../habitus.db', '/etc/passwd', 'references', 'nope'):\n"
        "    try: print(read('fill-form', path))\n    except LookupError as error: print(error)"
    )
    (answer,) = await said(talk, [cell(code)])
    assert answer.content.splitlines() == [
        "['assets/blank.pdf', 'assets/x.png', 'references/fields.md', 'scripts/fill.py']",
        "['#', 'Fields', 'name,', 'street'] b'%PDF-1.7\\n\\x00\\xff'",
        "'fill-form' has no file '../../habitus.db'. Its folder is '.'.",
        "'fill-form' has no file '/etc/passwd'. Its folder is '.'.",
        "'references' is a folder. Read one of its files.",
        "'fill-form' has no file 'nope'. Its folder is '.'.",
    ]


TOOL = """import os, sys
there = os.environ['GIVEN'] + '/skills/'
print(sorted(os.listdir(there)), open(there + 'fill-form/references/fields.md').read().split())
"""


@pytest.mark.full
async def test_a_tool_reads_the_files_of_its_skill_and_those_in_view(talk: Talk, habitus: Habitus) -> None:
    own(habitus)
    write(habitus.settings.home / "skills" / "other", main=MAIN.replace("fill-form", "other"))
    async with habitus.tools as tools:
        await tools.create("fill-form", "Fills forms", {"type": "object"}, TOOL, {}, habitus.build_author())
        assert (await tools.run("fill-form", {})).stdout == "['fill-form'] ['#', 'Fields', 'name,', 'street']\n"
        assert (await tools.test("fill-form")).passed
    _, ran = await said(talk, [calls("recall_skill", {"name": "other"}), calls("fill_form", {})])
    assert ran.content == "['fill-form', 'other'] ['#', 'Fields', 'name,', 'street']"


@pytest.mark.full
async def test_what_is_given_goes_with_its_session(talk: Talk, habitus: Habitus) -> None:
    own(habitus)
    session, _ = talk([recall(), says("ok")], id="old")
    await session.turn("fill this form")
    given = habitus.settings.home / "sessions" / "old" / ".given"
    assert (given / "skills" / "fill-form" / "SKILL.md").is_file()
    assert given.stat().st_mode & 0o077 == 0
    await session.close()
    with Habitus.open(habitus.settings, clock=lambda: datetime.now(UTC) + timedelta(days=4000)) as much_later:
        async with much_later.session(ScriptedModel([says("ok")])) as other:
            await other.turn("hello")
    assert not given.parent.exists()
