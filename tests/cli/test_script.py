"""The installed console script, in processes of its own: streams, editors, completion, homes."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.cli.pseudo_terminal import TAB, at_a_terminal
from tests.conftest import Cli

pytestmark = pytest.mark.req("CL-01")


@pytest.fixture
def stocked_cli(run_cli: Cli, stock: Path) -> Cli:
    shutil.copytree(stock, run_cli.home, dirs_exist_ok=True)
    return run_cli


@pytest.mark.full
def test_the_module_is_the_script(run_cli: Cli) -> None:
    by_module = replace(run_cli, program=(sys.executable, "-m", "habitus"))
    ran = by_module("--version")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"habitus \d+\.\d+\.\d+\S*\n", ran.out)
    installed = replace(run_cli, program=())
    assert installed("--version") == ran
    assert run_cli("--version") == ran


def test_a_pipe_gets_whole_plain_lines(stocked_cli: Cli) -> None:
    description = "Long " + "word " * 150 + ":smile: end"
    stocked_cli("skills", "edit", "csv-summary", "-w", description, "--replace", "a\tb :tada:\n\n\tindented")
    ran = stocked_cli(
        "skills", "list", "--layer", "user", env={"COLUMNS": "40", "FORCE_COLOR": "", "TERM": "xterm-256color"}
    )
    assert "\x1b" not in ran.out
    assert [line.split()[0] for line in ran.out.splitlines()] == ["name", "csv-summary"]
    assert ran.out.splitlines()[1].endswith(":smile: end")
    assert stocked_cli("skills", "show", "csv-summary").out.endswith("\n\na\tb :tada:\n\n\tindented\n")


@pytest.mark.full
def test_a_reader_that_goes_away_and_a_full_disk_are_no_traceback(stocked_cli: Cli) -> None:
    def run(redirect: str, program: str = stocked_cli.program[0]) -> subprocess.CompletedProcess[str]:
        line = f"{program} skills list --json {redirect}"
        shell = ["bash", "-c", line]
        return subprocess.run(shell, env=stocked_cli.environ(), capture_output=True, text=True, check=False)

    assert run("| true").stderr == ""
    assert run(">&-", stocked_cli.command[0]).stderr == ""
    full = run("> /dev/full")
    assert full.returncode == 1
    assert full.stderr.startswith("habitus: Can't write the output: No space left on device.")
    assert full.stderr.count("\n") == 1


@pytest.mark.full
def test_a_stream_that_cannot_hold_a_character_gets_its_escape(stocked_cli: Cli) -> None:
    stocked_cli("skills", "edit", "csv-summary", "-w", "Näher …")
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    installed = replace(stocked_cli, program=())
    assert "N\\xe4her \\u2026" in installed("skills", "list", env=ascii_only).out
    listed = json.loads(installed("skills", "list", "--layer", "user", "--json", env=ascii_only).out)
    assert listed["skills"][0]["when_to_use"] == "Näher …"
    assert json.loads(stocked_cli("skills", "show", b"\xff", "--json").out)["error"] == "No skill '\udcff'."


def test_the_tab_key_completes_names_of_skills(stocked_cli: Cli) -> None:
    odd = stocked_cli.home.with_name("odd ?#% home")
    stocked_cli.home.rename(odd)
    pressed = {"_HABITUS_COMPLETE": "complete_bash", "HABITUS_HOME": str(odd)}
    ran = stocked_cli(env={**pressed, "COMP_WORDS": "habitus skills show csv", "COMP_CWORD": "3"})
    assert ran.out.split() == ["csv-summary"]
    ran = stocked_cli(env={**pressed, "COMP_WORDS": "habitus skills l", "COMP_CWORD": "2"})
    assert ran.out.split() == ["list", "lint"]
    missing = {**pressed, "HABITUS_HOME": str(odd.with_name("missing")), "COMP_WORDS": "habitus skills show csv"}
    assert stocked_cli(env={**missing, "COMP_CWORD": "3"}).out.strip() == ""
    assert not odd.with_name("missing").exists()


def test_the_tab_key_knows_the_home_that_was_given_and_the_shared_database(stocked_cli: Cli, tmp_path: Path) -> None:
    other = stocked_cli.home.with_name("other")
    stocked_cli.home.rename(other)
    pressed = {"_HABITUS_COMPLETE": "complete_bash", "COMP_WORDS": f"habitus --home {other} skills show csv"}
    assert stocked_cli(env={**pressed, "COMP_CWORD": "5"}).out.split() == ["csv-summary"]
    shared = f"sqlite:///{tmp_path / 'shared.db'}"
    new = ("skills", "new", "csv-shared", "--description", "Shared.")
    assert stocked_cli("--home", str(other), *new, env={"HABITUS_DATABASE": shared}).code == 0
    (other / "habitus.toml").write_text(f'database = "{shared}"\n')
    assert stocked_cli(env={**pressed, "COMP_CWORD": "5"}).out.split() == ["csv-shared"]


@pytest.mark.full
def test_the_tab_key_in_fish(stocked_cli: Cli) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("there is no fish (Debian: apt-get install fish)")
    pressed = (
        'habitus --show-completion | source; complete -C "habitus skills show csv"; complete -C "habitus skills l"'
    )
    environ = with_program(stocked_cli)
    ran = subprocess.run([fish, "-N", "-c", pressed], env=environ, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in ran.stdout.split("\n") if line] == ["csv-summary", "lint", "list"]


@pytest.mark.full
def test_the_tab_key_in_zsh(stocked_cli: Cli) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("there is no zsh (Debian: apt-get install zsh)")
    with at_a_terminal([zsh, "-f", "-i"], env=with_program(stocked_cli), cwd=stocked_cli.cwd) as terminal:
        terminal.type(
            'PS1="> "; autoload -U compinit; compinit -u; eval "$(habitus --show-completion)"; print READ""Y\n'
        )
        terminal.wait_for("READY")
        terminal.type(f"habitus skills show csv{TAB}")
        terminal.wait_for("csv-summary")


def with_program(cli: Cli) -> dict[str, str]:
    """Surroundings in which the command is found by its name."""
    return {**cli.environ(), "PATH": f"{Path(cli.command[0]).parent}:{os.environ['PATH']}"}


@pytest.fixture
def editor(tmp_path: Path) -> Path:
    """An editor that does what the test writes into it."""
    path = tmp_path / "editor.sh"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def _at_a_terminal(cli: Cli, *args: str, env: Mapping[str, str]) -> tuple[int, str]:
    """Run the command as at a terminal: (exit code, everything it showed)."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [*cli.program, *args],
        stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True, cwd=cli.cwd, env=cli.environ(env),
    ) as process:  # fmt: skip
        os.close(terminal)
        shown = b""
        while True:
            try:
                piece = os.read(controller, 10_000)
            except OSError:  # the other side has closed
                break
            if not piece:
                break
            shown += piece
        code = process.wait()
    os.close(controller)
    return code, re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.decode()).replace("\r\n", "\n")


def test_an_editor_changes_the_whole_file(stocked_cli: Cli, editor: Path) -> None:
    editor.write_text('#!/bin/sh\nprintf "added by hand\\n" >> "$1"\n')
    code, shown = _at_a_terminal(stocked_cli, "skills", "edit", "csv-summary", env={"EDITOR": str(editor)})
    assert code == 0
    assert "csv-summary is now at version 2." in shown
    assert (stocked_cli.home / "skills/csv-summary/SKILL.md").read_text().endswith("added by hand\n")
    editor.write_text("#!/bin/sh\n")
    code, shown = _at_a_terminal(stocked_cli, "skills", "edit", "csv-summary", env={"VISUAL": f"'{editor}' "})
    assert (code, "is unchanged (version 2)" in shown) == (0, True)


@pytest.mark.req("SK-13", "SK-09")
def test_an_editor_shows_the_text_of_the_skill_below_and_leaves_it_there_unless_it_is_changed(
    stocked_cli: Cli, editor: Path
) -> None:
    file = stocked_cli.home / "skills/data-summary/SKILL.md"
    file.parent.mkdir()
    file.write_text("---\nname: data-summary\nextends: true\ntags: [mine]\n---\n")
    editor.write_text('#!/bin/sh\nsed -i s/mine/ours/ "$1"\n')
    _at_a_terminal(stocked_cli, "skills", "edit", "data-summary", env={"EDITOR": str(editor)})
    assert file.read_text() == "---\nname: data-summary\nextends: true\ntags: [ours]\n---\n"
    editor.write_text('#!/bin/sh\nprintf "added by hand\\n" >> "$1"\n')
    _at_a_terminal(stocked_cli, "skills", "edit", "data-summary", env={"EDITOR": str(editor)})
    before, after = (
        json.loads(stocked_cli("skills", "show", name, "--json").out)["body"]
        for name in ("data-summary@bundled", "data-summary")
    )
    assert after == f"{before}\nadded by hand"


def _kept(shown: str) -> str:
    found = re.search(r"Your text (?:is|was saved) in (\S+\.md)\.", shown.replace("\n", ""))
    assert found, shown
    return Path(found[1]).read_text()


@pytest.mark.req("SK-10", "SC-01")
def test_a_text_written_while_the_skill_changed_is_refused_and_kept(stocked_cli: Cli, editor: Path) -> None:
    other = f"'{stocked_cli.program[0]}' skills edit csv-summary --append theirs >/dev/null"
    editor.write_text(f'#!/bin/sh\nprintf "mine\\n" >> "$1"\n{other}\n')
    code, shown = _at_a_terminal(stocked_cli, "skills", "edit", "csv-summary", env={"EDITOR": str(editor)})
    assert code == 1
    assert "is at version 2 now, not 1" in shown
    assert _kept(shown).endswith("mine\n")
    text = (stocked_cli.home / "skills/csv-summary/SKILL.md").read_text()
    assert "theirs" in text
    assert "mine" not in text


@pytest.mark.req("SC-01")
@pytest.mark.parametrize(
    ("does", "says"),
    [
        ('printf -- "---\\nunclosed\\n" > "$1"', "never closed"),
        ('printf "more\\n" >> "$1"; exit 3', "failed: "),
    ],
)
def test_a_text_that_cannot_be_taken_is_kept(stocked_cli: Cli, editor: Path, does: str, says: str) -> None:
    editor.write_text(f"#!/bin/sh\n{does}\n")
    before = (stocked_cli.home / "skills/csv-summary/SKILL.md").read_text()
    code, shown = _at_a_terminal(stocked_cli, "skills", "edit", "csv-summary", env={"EDITOR": str(editor)})
    assert code == 1
    assert says in shown.replace("\n", " ")
    assert "Traceback" not in shown
    assert _kept(shown)
    assert (stocked_cli.home / "skills/csv-summary/SKILL.md").read_text() == before


@pytest.mark.parametrize("command", ["/no/such/editor", "unbalanced 'quote"])
def test_an_editor_that_cannot_be_started_is_said(stocked_cli: Cli, command: str) -> None:
    code, shown = _at_a_terminal(stocked_cli, "skills", "edit", "csv-summary", env={"EDITOR": command})
    assert code == 1
    assert "failed: " in shown
    assert "Internal error" not in shown


def test_a_terminal_gets_a_table_in_its_width(stocked_cli: Cli) -> None:
    stocked_cli("skills", "edit", "csv-summary", "-w", "word " * 60)
    listing = ("skills", "list", "--layer", "user", "--wide")
    code, shown = _at_a_terminal(stocked_cli, *listing, env={"TERM": "xterm-256color", "COLUMNS": "100"})
    assert code == 0
    assert shown.split().count("word") == 60
    assert max(map(len, shown.splitlines())) <= 100


def test_a_row_is_one_line_of_the_terminal_whatever_it_holds(stocked_cli: Cli) -> None:
    for number, text in enumerate(("word " * 60, "漢字" * 60, "🎉👩‍💻" * 40, "é" * 200)):
        name = f"{'very-long-' * 5}{number}"
        assert stocked_cli("skills", "new", name, "-d", text.strip(), "-w", text.strip()).code == 0
    whole = stocked_cli("skills", "list", "--layer", "user").out
    assert whole.count("漢字") == 60
    for columns in (80, 40):
        size = {"TERM": "xterm-256color", "COLUMNS": str(columns)}
        code, shown = _at_a_terminal(stocked_cli, "skills", "list", "--layer", "user", env=size)
        lines = [line for line in shown.splitlines() if line.strip()]
        assert (code, len(lines)) == (0, 6)
        assert max(map(cell_len, lines)) <= columns


@pytest.mark.full
def test_only_the_longest_column_gives_way_at_80_columns(stocked_cli: Cli) -> None:
    size = {"TERM": "xterm-256color", "COLUMNS": "80"}
    code, shown = _at_a_terminal(stocked_cli, "skills", "list", env=size)
    header, *rows = [line.split() for line in shown.splitlines() if line.strip()]
    assert (code, header) == (0, ["name", "state", "layer", "version", "when", "to", "use"])
    assert ["debug-a-failing-script", "ok", "bundled", "v1"] in [row[:4] for row in rows]
    reason = "because of what was said in the long meeting " * 4
    stocked_cli("skills", "edit", "csv-summary", "--append", "4. Rest.", "--reason", reason)
    code, shown = _at_a_terminal(stocked_cli, "skills", "history", "csv-summary", env=size)
    assert (code, [line.split()[0] for line in shown.splitlines() if line.strip()]) == (0, ["change", "v2", "v1"])
    assert reason.strip() in stocked_cli("skills", "history", "csv-summary", "--wide").out
    wide = stocked_cli("skills", "search", "a script fails", "--wide")
    assert wide.out.splitlines()[0].split() == ["name", "score", "when", "to", "use", "score", "parts"]
    code, shown = _at_a_terminal(stocked_cli, "skills", "search", "a script fails", "-k", "1", env=size)
    header, hit = [line.split() for line in shown.splitlines() if line.strip()][-2:]
    assert (code, header, hit[0]) == (0, ["name", "score", "when", "to", "use"], "debug-a-failing-script")


@pytest.mark.full
@pytest.mark.req("SC-01")
def test_a_home_that_cannot_be_written_is_shown_and_never_changed(stocked_cli: Cli) -> None:
    home = stocked_cli.home
    # Permissions bind root only once it has given up the right to pass them by.
    bound = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.getuid() == 0 else ()
    cli = replace(stocked_cli, program=(*bound, *stocked_cli.command))
    for path in (*home.rglob("*"), home):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    listed = cli("skills", "list", "--layer", "user", "--json")
    assert (listed.code, [item["name"] for item in json.loads(listed.out)["skills"]]) == (0, ["csv-summary"])
    assert "is read-only; changes are not possible" in listed.err
    refused = cli("skills", "edit", "csv-summary", "--append", "x")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines()[-1].startswith(f"habitus: {home} is read-only. Make it writable")
    assert before == {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    home.chmod(0o000)
    locked = cli("skills", "list")
    home.chmod(0o755)
    assert (locked.code, locked.out, locked.err.count("\n")) == (1, "", 1)
    assert "Permission denied" in locked.err
