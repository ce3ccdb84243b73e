"""`habitus skills recipes …`: list, show, run and check the recipes of skills."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Direct

pytestmark = pytest.mark.req("LA-02")

CHUNKS = """## say twice

Says something two times.

```yaml
params: {what: What to say}
steps:
  - tool: scratchpad
    params: {action: exec, code: "print('${what}!')"}
    save_as: said
  - tool: scratchpad
    params: {action: exec, code: "print('${said} ${what}')"}
```

## look around

```yaml
params: {query: What to look for}
steps:
  - tool: search_skills
    params: {query: $query}
```
"""


@pytest.fixture
def desk(direct: Direct) -> Direct:
    direct.ok("skills", "new", "speaking", "-d", "Speaks.")
    direct.skill_file("speaking").with_name("chunks.md").write_text(CHUNKS)
    return direct


def test_a_recipe_is_listed_shown_run_and_counted(desk: Direct) -> None:
    found = {each["plan"]["name"]: each for each in desk.json("skills", "recipes", "list")["recipes"]}
    assert found["look around"]["status"] == "active"
    assert (found["say twice"]["status"], "it runs code" in found["say twice"]["reason"]) == ("inert", True)
    dry = desk.json("skills", "recipes", "run", "look-around", '{"query": "tea"}', "--dry-run")
    assert dry["steps"][0]["arguments"] == {"query": "tea"}
    ran = desk("skills", "recipes", "run", "look_around", '{"query": "tea"}')
    assert (ran.code, ran.out.startswith("1. search_skills: ok")) == (0, True)
    counts = desk.json("skills", "recipes", "show", "look-around")["counts"]
    assert (counts["used"], counts["succeeded"]) == (1, 1)
    assert desk("skills", "recipes", "run", "look-around").err.endswith("'look around' needs query. Nothing was run.\n")
    assert "it runs code" in desk("skills", "recipes", "run", "say-twice", '{"what": "hi"}').err


def test_an_optional_step_that_fails_last_is_a_line_and_not_the_result(desk: Direct) -> None:
    file = desk.skill_file("speaking").with_name("chunks.md")
    optional = "  - tool: read_skill\n    params: {name: nowhere-at-all}\n    optional: true\n"
    file.write_text(CHUNKS.replace("    params: {query: $query}\n", "    params: {query: $query}\n" + optional))
    ran = desk("skills", "recipes", "run", "look_around", '{"query": "write a skill"}')
    steps, _, result = ran.out.partition("\n\n")
    assert (ran.code, result.startswith("Load one with recall_skill:")) == (0, True), ran
    assert "2. read_skill: failed, There is no skill 'nowhere-at-all'" in steps


def test_the_turn_that_ran_it_is_written_down_with_every_step(desk: Direct) -> None:
    desk.ok("skills", "recipes", "run", "look-around", '{"query": "tea"}')
    session = desk.json("sessions", "list")["sessions"][0]["id"]
    (turn,) = desk.json("sessions", "show", session)["turns"]
    called = [event["detail"] for event in turn["events"] if event["kind"] == "tool_call"]
    assert [each["name"] for each in called] == ["look_around", "search_skills"]
    assert called[1]["args"] == {"query": "tea"}


def test_checking_names_the_file_the_line_and_missing_tools(desk: Direct) -> None:
    file = desk.skill_file("speaking").with_name("chunks.md")
    file.write_text("## go\n```yaml\n- tool: teleport\n  params: {to: $where}\n```\n")
    ran = desk("skills", "recipes", "test")
    assert ran.code == 1
    assert "speaking/chunks.md: go: line 3: 'where' is neither a parameter nor saved by a step" in ran.out
    assert ran.out.endswith("0 of 1 recipe can run.\n")
    linted = desk("skills", "lint", "speaking").out
    assert "chunks.md, recipe 'go', line 3: 'where' is neither a parameter nor saved by a step." in linted


HOSTILE = {
    "calls itself": ("- tool: go", "line 3: it calls itself"),
    "goes in circles": (
        "steps: [{branch: a}]\nbranches: {a: [{branch: b}], b: [{branch: a}]}",
        "the branch 'a' comes back to itself",
    ),
    "calls a tool that is gone": (
        "- tool: search_skills\n- tool: teleport",
        "line 4: it calls 'teleport', and there is no such tool",
    ),
    "is a bomb": ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "references (*name) are not allowed here"),
    "is deep": ("[" * 200_000, "it goes more than 50 levels deep"),
    "is long": ("\n".join(["- tool: search_skills"] * 20_000), "at most 262,144 are read"),
}


@pytest.mark.full
def test_a_recipe_that_can_do_harm_is_named_and_nothing_of_it_runs(desk: Direct) -> None:
    for what, (block, problem) in HOSTILE.items():
        desk.skill_file("speaking").with_name("chunks.md").write_text(f"## go\n```yaml\n{block}\n```\n")
        (found,) = desk.json("skills", "recipes", "list")["recipes"]
        assert found["status"] == "broken", what
        ran = desk("skills", "recipes", "run", found["plan"]["name"])
        assert (ran.code, problem in ran.err) == (1, True), what
        assert problem in desk("skills", "recipes", "test").out, what
    assert desk.json("sessions", "list")["sessions"] == []


@pytest.mark.req("LA-03")
def test_only_the_fifty_most_useful_are_active(desk: Direct) -> None:
    one = "## number {}\n```yaml\n- tool: search_skills\n  params: {{query: tea}}\n```\n"
    file = desk.skill_file("speaking").with_name("chunks.md")
    file.write_text("\n".join(one.format(number) for number in range(1, 52)))
    first = {
        each["plan"]["name"]
        for each in desk.json("skills", "recipes", "list")["recipes"]
        if each["status"] == "archived"
    }
    assert len(first) == 1
    (used,) = {"number 2"} - first or {"number 3"}
    desk.ok("skills", "recipes", "run", used)
    found = {each["plan"]["name"]: each for each in desk.json("skills", "recipes", "list")["recipes"]}
    assert found[used]["status"] == "active"
    (out,) = (each for each in found.values() if each["status"] == "archived")
    assert out["reason"] == "50 others have served better; it is back when one of them goes"


@pytest.mark.req("LA-02", "SK-15")
def test_a_recipe_from_outside_is_inert_until_somebody_trusts_it(direct: Direct) -> None:
    folder = direct.cli.cwd / "box" / "from-outside"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: from-outside\ndescription: Looks around.\n---\n1. Look.\n")
    (folder / "chunks.md").write_text(CHUNKS)
    direct.ok("skills", "import", str(folder))

    def status() -> str:
        found = {each["plan"]["name"]: each["status"] for each in direct.json("skills", "recipes", "list")["recipes"]}
        return str(found["look around"])

    assert status() == "inert"
    assert "it was imported from" in direct("skills", "recipes", "run", "look-around", "{}").err
    direct.ok("review", "trust", "from-outside", "--yes")
    assert status() == "active"
