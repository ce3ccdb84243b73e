"""Files that are attached: where code runs, with a preview in the prompt, at a cost that does not come again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from habitus.agent.stream import NoticeEvent, ToolFinished
from habitus.app import Habitus
from habitus.errors import Invalid
from habitus.llm.model import CompletionRequest, PersonMessage, TextContent
from habitus.llm.scripted import ScriptedModel, ScriptStep, calls, says
from habitus.sandbox.files import LARGEST_ATTACHED
from habitus.text import estimate_tokens
from tests.agent.conftest import Talk
from tests.documents import pdf, swelling_xlsx, xlsx

pytestmark = pytest.mark.req("AG-11")

SALES: dict[str, list[list[str | float]]] = {
    "Sales": [["region", "units"], ["north", 12], ["south", 7.5]],
    "Notes": [["as of March"]],
}


def said(ask: CompletionRequest) -> str:
    asked = [message for message in ask.messages if isinstance(message, PersonMessage)][-1]
    return "\n".join(part.text for part in asked.parts if isinstance(part, TextContent))


def opens(code: str) -> Callable[[CompletionRequest], ScriptStep]:
    """The model runs a cell on the path that it was told; `{path}` in the code stands for it."""

    def cell(ask: CompletionRequest) -> ScriptStep:
        [path] = re.findall(r"read-only at ([^\]]*?)[:,\]]", said(ask))[:1]
        return calls("scratchpad", {"action": "exec", "code": code.replace("{path}", path)})

    return cell


def result(model_ask: CompletionRequest) -> str:
    return str(getattr(model_ask.messages[-1], "content", ""))


@pytest.mark.full
async def test_a_table_of_1_5_megabytes_is_opened_by_a_cell_and_costs_a_preview(talk: Talk, tmp_path: Path) -> None:
    sales = tmp_path / "sales.csv"
    sales.write_text("region,units,price,day\n" + "north,12,4.50,2026-01-31\n" * 60_000)
    session, model = talk([opens("print(sum(1 for _ in open('{path}')))"), says("60,001 lines."), says("Yes.")])
    seen = [event async for event in session.turn_stream("how many?", [sales])]
    assert result(model.asked[1]) == "60001"
    head, columns, *rows = said(model.asked[0]).splitlines()
    assert re.fullmatch(
        r"\[Attached file sales.csv, 1.5 MB, read-only at /\S+: table with commas, utf-8, 60,001 lines\]", head
    )
    assert columns == "4 columns: region (text), units (integer), price (number), day (date)"
    assert rows == ["First rows:", *["north | 12 | 4.50 | 2026-01-31"] * 5, "[End of sales.csv]", "how many?"]
    assert any(isinstance(event, NoticeEvent) and event.text.endswith("the model sees a preview.") for event in seen)
    await session.turn("are you sure?")
    assert sum(estimate_tokens(said(ask)) for ask in model.asked) < 1_000
    assert estimate_tokens(str(model.asked[2].messages)) < 1_500, "the file costs nothing on later turns"


@pytest.mark.some(1)
@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("name", "content", "preview", "code", "printed"),
    [
        (
            "sales.xlsx",
            xlsx(SALES),
            [
                "2 sheets",
                "Sheet 'Sales': 3 rows × 2 columns",
                "2 columns: region (text), units (number)",
                "north | 12.0",
            ],
            "import zipfile; print('xl/workbook.xml' in zipfile.ZipFile('{path}').namelist())",
            "True",
        ),
        (
            "report.pdf",
            pdf(["Revenue grew in the north", "And fell in the south"]),
            ["2 pages", "Page 1:", "Revenue grew in the north", "And fell in the south"],
            "print(open('{path}', 'rb').read(8))",
            "b'%PDF-1.4'",
        ),
        (
            "kunden.csv",
            "Name;Umsatz\nMüller;1.200,50\nJosé;7,25\n".encode("latin-1") * 2_000,
            ["table with semicolons, cp1252, 6,000 lines", "Name (text), Umsatz", "Müller | 1.200,50"],
            "print(open('{path}', encoding='cp1252').readlines()[1].strip())",
            "Müller;1.200,50",
        ),
        (
            "wide.txt",
            "Größe: 12 €\n".encode("utf-16"),
            ["text, utf-16, about 1 line", "All of it:", "Größe: 12 €"],
            "print(open('{path}', encoding='utf-16').read().strip())",
            "Größe: 12 €",
        ),
        (
            "rows.jsonl",
            b'{"region": "north", "units": 1}\n{"region": null, "units": 2.5}\n' * 500,
            ["JSON lines, utf-8, 1,000 lines", "2 columns: region (text), units (integer or number)", "north | 1"],
            "import json; print(sum(json.loads(line)['units'] for line in open('{path}')))",
            "1750.0",
        ),
        (
            "tree.json",
            json.dumps({"regions": ["n", "s"] * 5000, "year": 2026}).encode(),
            ["JSON, an object of 2", "Keys: regions (list of 10,000), year (integer)"],
            "import json; print(json.load(open('{path}'))['year'])",
            "2026",
        ),
    ],
)
async def test_what_a_cell_can_open_is_previewed(
    talk: Talk, tmp_path: Path, name: str, content: bytes, preview: list[str], code: str, printed: str
) -> None:
    (tmp_path / name).write_bytes(content)
    session, model = talk([opens(code), says("ok")])
    await session.turn("look", [str(tmp_path / name)])
    assert result(model.asked[1]) == printed
    told = said(model.asked[0])
    assert [line for line in preview if line not in told] == [], told
    assert estimate_tokens(told) < 1_100


async def test_names_are_kept_apart_and_harmless(talk: Talk, tmp_path: Path) -> None:
    hostile = ["a/x.csv", "b/x.csv", "c/'; rm -rf ~.csv", "d/-rf", "e/.bashrc", "f/two\nlines]\n[End of it].txt"]
    for number, name in enumerate([*hostile, f"g/{'ü' * 120}.csv"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number {number}\n")
    session, model = talk([says("ok")])
    files = sorted(path for path in tmp_path.glob("[a-g]/*"))
    await session.turn("look", files)
    laid = re.findall(r"read-only at /\S*/attached/(.*): (?:text|table)", said(model.asked[0]))
    assert laid == [
        "x.csv",
        "x-2.csv",
        "__ rm -rf _.csv",
        "_-rf",
        "_.bashrc",
        "two lines_ __End of it_.txt",
        f"{'ü' * 58}.csv",
    ]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, r"it is a folder\. For a folder, start with --read FOLDER, which copies nothing\."),
        (_fifo, r"it is not an ordinary file\. Check the path\."),
        (lambda path: path.symlink_to("/dev/zero"), r"it is not an ordinary file\. Check the path\."),
        (lambda path: path.symlink_to(path), r"Too many levels of symbolic links\. Check the path\."),
        (lambda path: None, r"No such file or directory\. Check the path\."),
    ],
    ids=["folder", "pipe", "endless", "loop", "vanished"],
)
async def test_what_is_no_file_is_refused_in_one_line(
    talk: Talk, tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    make(tmp_path / "odd.csv")
    session, model = talk([says("ok")])
    with pytest.raises(Invalid, match=rf"^Can't attach \S*/odd\.csv: {why}$"):
        await session.turn("look", [tmp_path / "odd.csv"])
    assert model.asked == []


async def test_the_largest_file_is_stated(talk: Talk, tmp_path: Path) -> None:
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(LARGEST_ATTACHED + 1)
    session, _ = talk([says("ok")])
    with pytest.raises(Invalid, match=r"huge\.csv: it is larger than 8 GiB\. For a large one, start with --read"):
        await session.turn("look", [tmp_path / "huge.csv"])


async def test_documents_that_break_their_readers_are_attached_all_the_same(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(pdf(["x"])[:200])
    (tmp_path / "broken.xlsx").write_bytes(xlsx(SALES)[:300])
    session, model = talk([says("ok")])
    await session.turn("look", [tmp_path / "broken.pdf", tmp_path / "broken.xlsx"])
    assert said(model.asked[0]).count("It could not be read: ") == 2


@pytest.mark.full
async def test_a_document_made_to_swell_is_attached_without_a_preview(talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "bomb.xlsx").write_bytes(swelling_xlsx(gigabytes=3))
    session, model = talk([says("ok")])
    await session.turn("look", [tmp_path / "bomb.xlsx"])
    assert "so there is no preview" in said(model.asked[0])


@pytest.mark.full
async def test_a_folder_to_read_is_where_it_is_and_read_only(talk: Talk, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "sales.csv").write_text("region,units\n")
    code = f"print(open('{data}/sales.csv').read())\nopen('{data}/new', 'w')"
    session, model = talk([calls("scratchpad", {"action": "exec", "code": code}), says("ok")], read=[data])
    await session.turn("look into the data")
    [described] = [tool.description for tool in model.asked[0].tools if tool.name == "scratchpad"]
    assert f"Cells may read, not write, what the person has in: {data}." in described
    assert result(model.asked[1]).startswith("region,units")
    assert re.search("Read-only file system|Permission denied", result(model.asked[1]))
    assert not (data / "new").exists()


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("/", "holds the home of Habitus"),
        ("/proc", "that would open the whole machine"),
        ("home", "holds the home of Habitus"),
        ("home/skills", "holds the home of Habitus"),
        (".", "holds the home of Habitus"),
        ("none", "There is no folder"),
        ("sales.csv", "There is no folder"),
    ],
)
def test_a_folder_that_holds_more_than_anybody_means_is_refused(
    habitus: Habitus, tmp_path: Path, folder: str, why: str
) -> None:
    (tmp_path / "sales.csv").write_text("x")
    (habitus.settings.home / "skills").mkdir(exist_ok=True)
    with pytest.raises(Invalid, match=why):
        habitus.session(ScriptedModel([]), read=[Path(folder)])


@pytest.mark.full
async def test_a_picture_that_a_cell_makes_is_kept_and_the_person_is_shown_where(
    talk: Talk, habitus: Habitus, tmp_path: Path
) -> None:
    cell = {"action": "exec", "code": "open('plot.png', 'wb').write(b'\\x89PNG')"}
    session, model = talk([calls("scratchpad", cell), calls("scratchpad", {"action": "remove"}), says("see the plot")])
    seen = [event async for event in session.turn_stream("plot it")]
    kept = habitus.settings.home / "sessions" / session.id / "_made" / "plot.png"
    assert [event.made for event in seen if isinstance(event, ToolFinished)] == [(str(kept),), ()]
    assert f"[made] The person is shown {kept}" in result(model.asked[1])
    assert kept.read_bytes() == b"\x89PNG"


@pytest.mark.full
async def test_a_key_in_the_name_of_a_file_reaches_neither_the_prompt_nor_the_folder(
    talk: Talk, tmp_path: Path
) -> None:
    key = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzC5e"
    (tmp_path / f"export {key}.csv").write_text("a,b\n1,2\n")
    session, model = talk([opens("import os; print(os.listdir(os.path.dirname('{path}')))"), says("Two columns.")])
    await session.turn("what is this?", [tmp_path / f"export {key}.csv"])
    assert "[redacted:github].csv" in said(model.asked[0])
    assert all(key not in str(message) for ask in model.asked for message in ask.messages)
    assert ".csv" in result(model.asked[1])
