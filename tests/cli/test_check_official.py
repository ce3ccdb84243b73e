"""The first screen of `habitus check` for somebody with skills such as vendors ship: nothing in it is false."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Direct
from tests.cli.test_check import skill
from tests.learning.logs import asked, came, used, write

# In our words, with what looks dangerous in skills of vendors and is not.
SKILLS = {
    "docx": (
        "Create, edit and comment on Word documents, and accept or reject tracked changes.",
        "ALWAYS unpack first: `python scripts/unpack.py in.docx work/`. Validate against schemas/wml.xsd; on an error\n"
        "go back. Afterwards `rm -rf work/`. Never change the author's text without being asked.",
    ),
    "pdf": (
        "Extract text and tables from PDF files, merge and split them, and fill in forms.",
        "Use pypdf. For a protected file ask the user for its password; do not keep it. `pip install pypdf` if needed.",
    ),
    "xlsx": (
        "Build and check spreadsheets with formulas, formats and charts; recalculate them.",
        "Write formulas, not results. Run `python recalc.py out.xlsx` and fix every #REF! before you answer.",
    ),
    "pptx": (
        "Make slide decks from an outline or a template, and read the notes of a deck.",
        "Render each slide to a picture and LOOK at it. Delete placeholders that are left over.",
    ),
    "skill-creator": (
        "Guide for writing a new skill: its name, description, scripts and references.",
        "Keep SKILL.md below 500 lines. Do NOT invent steps. Run `scripts/init_skill.py NAME` to begin.",
    ),
    "skill-installer": (
        "Install skills from a curated list or from a repository on GitHub.",
        "List with `scripts/list.py`. Downloading needs the network: ask for escalated permissions, then restart.",
    ),
    "mcp-builder": (
        "Guide for building MCP servers with good tools, in Python or TypeScript.",
        "Read API keys from the environment and never print them. Test with `timeout 5s python server.py`.",
    ),
    "webapp-testing": (
        "Test local web applications in a browser: click, fill in, take screenshots, read the console.",
        "Start the server with `scripts/with_server.py --server 'npm run dev'`. Wait for networkidle before you look.",
    ),
    "frontend-design": (
        "Design distinctive interfaces: typography, colour, motion and layout of high quality.",
        "Commit to a bold direction. NEVER use the fonts that everybody uses. Don't hold back.",
    ),
    "canvas-design": (
        "Make posters and visual art as PNG or PDF files from a philosophy of design.",
        "Write the philosophy down first, then express it. Hide the idea in the picture; do not explain it.",
    ),
    "algorithmic-art": (
        "Generative art with p5.js, seeded randomness and sliders to explore parameters.",
        "Use the template viewer.html. Keep the seed. Flow fields and particles are a good beginning.",
    ),
    "theme-factory": (
        "Style slides, documents and pages with one of ten themes, or a new one.",
        "Show themes.pdf to the user, ask for a choice, and wait for it before anything is changed.",
    ),
    "brand-guidelines": (
        "Apply our company's official colours and typefaces to anything that is made.",
        "Headings in Poppins, text in Lora; fall back to Arial where they are not installed.",
    ),
    "internal-comms": (
        "Write status reports, newsletters, incident reports and answers to frequent questions.",
        "Load the guideline for the kind of message. Gather what happened from mail and chat that you may read.",
    ),
    "slack-gif-creator": (
        "Animated GIFs within the limits of Slack for messages and emoji.",
        "At most 128 by 128 pixels for emoji. Check the size with `validators.py` and send nothing yourself.",
    ),
    "deploy-preview": (
        "Deploy a project to a preview address and answer with the link.",
        "Default to preview; production only when asked. Run `vercel deploy -y --no-wait`. The token comes from the\n"
        "environment: `export VERCEL_TOKEN=$(grep VERCEL_TOKEN .env | cut -d= -f2-)`. Do not pass it on the line.",
    ),
    "gh-fix-ci": (
        "Find out why checks of a pull request fail in GitHub Actions, and fix them.",
        "Run `gh auth status`; if it fails ask the user to log in. Summarise the log and wait for approval.",
    ),
    "gh-address-comments": (
        "Address review comments on the open pull request of this branch with gh.",
        "Number the threads and ask which to address. Run gh commands with elevated network access.",
    ),
    "create-plan": (
        "Make a short plan when the user asks for one before code is written.",
        "Read only; never write files here. Ask at most two questions, and only if blocked.",
    ),
    "meeting-notes": (
        "Prepare and file notes of meetings in the team's wiki with decisions and owners.",
        "Fetch the pages with the connector; if it is missing: `codex mcp add notion`, then log in and restart.",
    ),
}
# Each near one of them in its words, and none its business.
REQUESTS = (
    *("start the database", "add a column to the users table", "why is the build red?", "merge the release branch"),
    *("format this file", "make the page load faster", "write a test for the parser", "plan my day"),
    *("which theme does the editor use?", "create a new branch", "fill the cache before the test", "comment this out"),
)


@pytest.fixture
def person(direct: Direct) -> Path:
    """Twenty skills, a copy and a near copy, and sessions in which one command fails until it is written otherwise."""
    home = direct.cli.user_home
    skills, logs = home / ".claude" / "skills", home / ".claude" / "projects" / "shop"
    padding = "\n".join(f"{number}. Look at part {number}, and say what you saw in it." for number in range(6))
    for name, (description, body) in SKILLS.items():
        skill(skills, name, description, f"# {name}\n\n{body}\n\n{padding}")
    shutil.copytree(skills / "docx", skills / "word-documents")
    text = (skills / "pdf" / "SKILL.md").read_text().replace("name: pdf", "name: pdf-files")
    (skills / "pdf-files").mkdir()
    (skills / "pdf-files" / "SKILL.md").write_text(text.replace("do not keep it", "forget it"))
    for number in range(6):
        when: dict[str, Any] = {"cwd": str(direct.cli.cwd), "timestamp": f"2026-05-{number + 1:02}T10:00:00Z"}
        lines = [asked(REQUESTS[number], **when), used("r", "Read", {"file_path": "a"}, **when), came("r", "x", **when)]
        lines += [asked(REQUESTS[number + 6], **when), used("a", "Bash", {"command": "git push"}, **when)]
        lines += [came("a", "Exit code 128\nfatal: The current branch has no upstream branch.", is_error=True, **when)]
        lines += [used("b", "Bash", {"command": "git push -u origin HEAD"}, **when), came("b", "done", **when)]
        write(logs / f"{number}.jsonl", [line | {"version": "2.1.235", "sessionId": f"s{number}"} for line in lines])
    return home


@pytest.mark.req("CL-08", "EL-10")
def test_with_twenty_skills_of_vendors_and_sessions_no_line_is_false(direct: Direct, person: Path) -> None:
    (report,) = direct.json("check", "--agent", "claude-code")["agents"]
    assert (report["skills"], report["sessions"]) == (22, 6)
    said = [(each["topic"], each["what"]) for each in report["remarks"]]
    assert [what for topic, what in said if topic == "copy"] == [
        "'docx' and 'word-documents' have the same text.",
        "'pdf' and 'pdf-files' have nearly the same text.",
    ]
    (lesson,) = [what for topic, what in said if topic == "lesson"]
    assert "`git push -u origin HEAD`" in lesson
    assert {topic for topic, _ in said} == {"copy", "lesson"}
    assert len(direct.ok("check").splitlines()) <= 24
