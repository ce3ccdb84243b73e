"""Skills as resources: plain for every client, with digests by the extension, and prompts beside them."""

from __future__ import annotations

import hashlib
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from habitus.app import Habitus
from habitus.files import build_tree_file
from habitus.skills import trees
from habitus.skills.model import Skill
from tests.mcp.conftest import MODES, Connect

BINARY = b"\x00\x01\xff"


def with_files(habitus: Habitus) -> None:
    skill = Skill(name="pour-tea", title="Pour", description="How tea is poured", body="Read references/cups.md")
    more = {
        "references/cups.md": build_tree_file(b"# Cups\n"),
        "references/deep/one two.md": build_tree_file(b"deep\n"),
        "assets/cup.bin": build_tree_file(BINARY),
        "evals/evals.json": build_tree_file(b"[]"),
    }
    habitus.skills.write_trees(
        "user", {"pour-tea": {**trees.update_main_file({}, skill), **more}}, habitus.build_author()
    )


class Answer(types.Result):
    """Whatever comes back."""

    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    request = types.Request[Any, Any](method=method, params=params)
    return (await client.session.send_request(request, Answer)).model_dump(by_alias=True)


@pytest.mark.req("CL-05", "SK-23")
@pytest.mark.parametrize("mode", MODES)
async def test_every_client_reads_skills_and_their_files(habitus: Habitus, connect: Connect, mode: str) -> None:
    with_files(habitus)
    async with connect(mode) as client:
        listed = {one.name: one for one in (await client.list_resources()).resources}
        assert str(listed["pour-tea"].uri) == "skill://pour-tea/SKILL.md"
        assert (listed["pour-tea"].mime_type, listed["pour-tea"].description) == ("text/markdown", "How tea is poured")
        (main,) = (await client.read_resource("skill://pour-tea/SKILL.md")).contents
        assert isinstance(main, types.TextResourceContents)
        assert "Read references/cups.md" in main.text
        (deep,) = (await client.read_resource("skill://pour-tea/references/deep/one%20two.md")).contents
        assert isinstance(deep, types.TextResourceContents)
        assert deep.text == "deep\n"
        (blob,) = (await client.read_resource("skill://pour-tea/assets/cup.bin")).contents
        assert isinstance(blob, types.BlobResourceContents)
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "skill://{name}/{+path}"


@pytest.mark.req("CL-05", "SK-04")
@pytest.mark.parametrize("mode", MODES)
async def test_a_skill_with_a_name_beyond_ascii_is_read(habitus: Habitus, connect: Connect, mode: str) -> None:
    folder = habitus.settings.home / "skills" / "技能"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: 技能\ndescription: Tea by name\n---\nHeat water.\n", encoding="utf-8")
    async with connect(mode) as client:
        (uri,) = [str(one.uri) for one in (await client.list_resources()).resources if one.name == "技能"]
        assert uri.isascii()
        (main,) = (await client.read_resource(uri)).contents
        assert isinstance(main, types.TextResourceContents)
        assert "Heat water." in main.text
        recalled = await client.call_tool("recall_skill", {"name": "技能"})
        assert "Heat water." in str(recalled.content)


@pytest.mark.req("CL-05")
async def test_the_extension_gives_whole_manifests_with_digests(habitus: Habitus, connect: Connect) -> None:
    with_files(habitus)
    odd = habitus.settings.home / "skills" / "odd" / "SKILL.md"
    odd.parent.mkdir()
    odd.write_text("---\nname: odd\ndescription: Its metadata is no map of texts\nmetadata:\n  a: [1]\n---\nx\n")
    async with connect() as client:
        declared = client.server_capabilities.extensions or {}
        assert declared["io.modelcontextprotocol/skills"] == {"directoryRead": True}
        listed = await ask(client, "skills/list")
        entries = {entry["frontmatter"]["name"]: entry for entry in listed["skills"]}
        assert {"brew-tea", "pour-tea", "review-a-change"} <= set(entries)
        assert "odd" not in entries
        assert "odd" in {resource.name for resource in (await client.list_resources()).resources}
        assert (listed["resultType"], listed["cacheScope"], listed["ttlMs"]) == ("complete", "private", 0)
        one = await ask(client, "skills/get", uri="skill://pour-tea/SKILL.md")
        assert one["skill"] == entries["pour-tea"]
        assert {resource["uri"] for resource in one["skill"]["resources"]} == {
            "skill://pour-tea/SKILL.md",
            "skill://pour-tea/references/cups.md",
            "skill://pour-tea/references/deep/one%20two.md",
            "skill://pour-tea/assets/cup.bin",
        }
        for resource in one["skill"]["resources"]:
            if resource["uri"].endswith(".md"):
                (content,) = (await client.read_resource(resource["uri"])).contents
                assert isinstance(content, types.TextResourceContents)
                raw = content.text.encode()
                assert resource["digest"] == f"sha256:{hashlib.sha256(raw).hexdigest()}"
                assert resource["size"] == len(raw)
        root = await ask(client, "resources/directory/read", uri="skill://pour-tea")
        required = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        assert required.items() <= root.items()
        assert [(child["name"], child["mimeType"]) for child in root["resources"]] == [
            ("SKILL.md", "text/markdown"),
            ("assets", "inode/directory"),
            ("references", "inode/directory"),
        ]
        with pytest.raises(MCPError, match=r"has no file 'evals/evals\.json'"):  # it would give the answers away
            await client.read_resource("skill://pour-tea/evals/evals.json")
        below = await ask(client, "resources/directory/read", uri="skill://pour-tea/references")
        assert [child["uri"] for child in below["resources"]] == [
            "skill://pour-tea/references/cups.md",
            "skill://pour-tea/references/deep",
        ]


@pytest.mark.req("CL-05", "SC-01")
@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("skills/get", "skill://nothing/SKILL.md"),
        ("skills/get", "skill://brew-tea/other.md"),
        ("skills/get", "file:///etc/passwd"),
        ("resources/directory/read", "skill://brew-tea/SKILL.md"),
        ("resources/directory/read", "skill://nothing"),
        ("resources/read", "skill://brew-tea/../../habitus.db"),
        ("resources/read", "skill://brew-tea/%2e%2e/%2e%2e/habitus.db"),
        ("resources/read", "skill://"),
        ("resources/read", "\x00"),
    ],
)
async def test_what_is_not_served_is_an_invalid_parameter(
    habitus: Habitus, connect: Connect, method: str, uri: str
) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as refused:
            await ask(client, method, uri=uri)
    assert refused.value.code == types.INVALID_PARAMS


@pytest.mark.req("CL-05")
async def test_a_skill_renamed_while_a_client_reads_it_is_gone_under_its_old_name(
    habitus: Habitus, connect: Connect
) -> None:
    async with connect(poll_interval_s=0.001) as client:
        assert (await client.read_resource("skill://brew-tea/SKILL.md")).contents
        await client.call_tool("recall_skill", {"name": "brew-tea"})
        habitus.skills.create(Skill(name="make-tea", description="Brews", body="1. Boil."), habitus.build_author())
        habitus.skills.remove("brew-tea", habitus.build_author())
        with pytest.raises(MCPError, match="Nothing found") as refused:
            await client.read_resource("skill://brew-tea/SKILL.md", cache_mode="bypass")
        assert refused.value.code == types.INVALID_PARAMS
        assert (await client.read_resource("skill://make-tea/SKILL.md")).contents
        said = await client.call_tool("recall_skill", {"name": "brew-tea"})
        assert "1. Boil." in said.content[0].text  # type: ignore[union-attr]  # the nearest, and it says so
        assert "There is no skill 'brew-tea'" in said.content[0].text  # type: ignore[union-attr]


@pytest.mark.req("CL-05", "SC-03")
async def test_secrets_in_a_skill_s_files_do_not_leave(habitus: Habitus, connect: Connect) -> None:
    key = "ghp_" + "a1B2" * 9
    habitus.skills.create(Skill(name="log-in", description="Log in", body=f"Use {key}"), habitus.build_author())
    async with connect() as client:
        (main,) = (await client.read_resource("skill://log-in/SKILL.md")).contents
        assert isinstance(main, types.TextResourceContents)
        assert key not in main.text
        entry = (await ask(client, "skills/get", uri="skill://log-in/SKILL.md"))["skill"]
        assert entry["resources"][0]["digest"] == f"sha256:{hashlib.sha256(main.text.encode()).hexdigest()}"


@pytest.mark.req("CL-05")
async def test_long_lists_come_in_pages(habitus: Habitus, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("habitus.mcp.skills.PAGE_SIZE", 3)
    monkeypatch.setattr("habitus.mcp.skills.MANIFEST_PAGE_SIZE", 3)
    async with connect() as client:
        seen: list[str] = []
        cursor = None
        while True:
            page = await client.list_resources(cursor=cursor)
            seen += [one.name for one in page.resources]
            assert len(page.resources) <= 3
            if not (cursor := page.next_cursor):
                break
        assert seen == sorted(set(seen))
        assert "brew-tea" in seen
        first = await ask(client, "skills/list")
        second = await ask(client, "skills/list", cursor=first["nextCursor"])
        assert [one["uri"] for one in first["skills"]] < [one["uri"] for one in second["skills"]]


@pytest.mark.req("CL-05")
@pytest.mark.parametrize("mode", MODES)
async def test_prompts_let_the_host_s_own_model_draft_and_review(habitus: Habitus, connect: Connect, mode: str) -> None:
    async with connect(mode) as client:
        listed = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert listed == ["save_skill", "learn_from_session", "improve_skill", "draft_tasks", "review"]
        said = await client.get_prompt("save_skill", {"hint": "brewing\ntea"})
        assert said.messages[0].content.text.endswith("It should be about: brewing tea")  # type: ignore[union-attr]
        assert "Nothing is pending" in (await client.get_prompt("review")).messages[0].content.text  # type: ignore[union-attr]
        given = {"name": "pour-tea", "title": "Pour", "description": "Pours", "content": "1. Pour."}
        await client.call_tool("create_skill", given)
        review = (await client.get_prompt("review")).messages[0].content.text  # type: ignore[union-attr]
        assert "- 1: write pour-tea@user" in review
        assert (await client.get_prompt("learn_from_session")).messages
        better = (await client.get_prompt("improve_skill", {"name": "plan-a-risky-change"})).messages[0].content.text  # type: ignore[union-attr]
        assert "# The skill 'plan-a-risky-change'" in better
        assert "No practice yet" in better
        drafting = (await client.get_prompt("draft_tasks", {"name": "plan-a-risky-change"})).messages[0].content.text  # type: ignore[union-attr]
        assert "habitus tasks draft NAME --tasks -" in drafting
        assert "# plan-a-risky-change: " in drafting
        with pytest.raises(MCPError, match="There is no prompt 'nothing'"):
            await client.get_prompt("nothing")


@pytest.mark.req("CL-05")
@pytest.mark.parametrize("mode", MODES)
async def test_names_of_skills_and_paths_of_their_files_are_completed(
    habitus: Habitus, connect: Connect, mode: str
) -> None:
    with_files(habitus)
    prompt = types.PromptReference(name="improve_skill")
    files = types.ResourceTemplateReference(uri="skill://{name}/{+path}")
    async with connect(mode) as client:

        async def completed(ref: Any, argument: str, begun: str, **context: str) -> tuple[list[str], int | None]:
            found = await client.complete(ref, {"name": argument, "value": begun}, context or None)
            return found.completion.values, found.completion.total

        assert await completed(prompt, "name", "Brew") == (["brew-tea"], 1)
        assert await completed(files, "name", "tea") == (["brew-tea", "pour-tea"], 2)
        assert (await completed(files, "path", "s", name="pour-tea"))[0][
            0
        ] == "SKILL.md"  # beginning so, before assets/
        assert await completed(files, "path", "ref", name="pour-tea") == (
            ["references/cups.md", "references/deep/one two.md"],
            2,
        )
        assert await completed(files, "path", "", name="none") == ([], 0)
        assert await completed(types.PromptReference(name="save_skill"), "hint", "t") == ([], 0)
        for ref, argument in ((prompt, "hint"), (types.ResourceTemplateReference(uri="file://{a}"), "name")):
            with pytest.raises(MCPError) as refused:
                await completed(ref, argument, "")
            assert refused.value.error.code == types.INVALID_PARAMS


@pytest.mark.req("CL-05")
@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")  # in the later protocol, which has it not
async def test_a_client_hears_how_calls_went_from_the_level_on_that_it_sets(habitus: Habitus, connect: Connect) -> None:
    heard: list[tuple[str, Any]] = []

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        heard.append((params.level, params.data))

    async with connect("legacy", client={"logging_callback": hear}) as client:
        assert client.server_capabilities.logging is not None
        await client.call_tool("recall_skill", {"name": "no-such-skill"})
        await client.set_logging_level("warning")
        await client.call_tool("recall_skill", {"name": "brew-tea"})
        await client.call_tool("recall_skill", {"name": "no-such-skill"})
        await client.set_logging_level("info")
        await client.call_tool("recall_skill", {"name": "brew-tea"})
    assert [level for level, _ in heard] == ["warning", "info"]
    assert "no-such-skill" in heard[0][1]
