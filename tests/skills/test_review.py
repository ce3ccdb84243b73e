"""Proposals: what waits, why, and that only what was looked at can be approved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from habitus.app import Habitus
from habitus.errors import Invalid, NotFound, Stale
from habitus.files import Tree, build_tree_file
from habitus.settings import load_settings
from habitus.skills import trees
from habitus.skills.formats import skill_md
from habitus.skills.model import ActorKind, Author, Manifest, Skill
from habitus.skills.review import Proposal, ProposalAction, ProposalState, SkillChange, list_review_reasons
from tests.homes import furnish

AGENT = Author(actor=ActorKind.AGENT, name="main", reason="did it three times")
ME = Author(actor=ActorKind.USER, name="ada")
SKILL = Skill(name="report", description="Writes the report.", body="1. Write it.")


def tree(skill: Skill, files: Mapping[str, bytes]) -> Tree:
    return {"SKILL.md": build_tree_file(skill_md.render_skill_md(skill))} | {
        p: build_tree_file(c) for p, c in files.items()
    }


def write(skill: Skill = SKILL, files: Mapping[str, bytes] = MappingProxyType({})) -> SkillChange:
    return SkillChange(action=ProposalAction.WRITE, name=skill.name, layer="user", tree=tree(skill, files))


def propose(habitus: Habitus, change: SkillChange | None = None, **options: Any) -> Proposal:
    """What the agent asks for and a person has to decide on."""
    proposal = habitus.review.submit(change or write(), AGENT, **options).proposal
    assert proposal is not None
    return proposal


def opened(tmp_path: Path, **environ: str) -> Habitus:
    furnish(tmp_path / ".habitus")
    return Habitus.open(load_settings({"HOME": str(tmp_path), "HABITUS_LOOK_EVERY": "0", **environ}, tmp_path))


@pytest.mark.req("SK-21")
def test_what_a_person_asks_for_is_applied_at_once(habitus: Habitus) -> None:
    submitted = habitus.review.submit(write(), ME)
    assert (submitted.version, submitted.proposal) == (1, None)
    assert habitus.skills.load("report").body == "1. Write it."


@pytest.mark.req("SK-21")
def test_what_the_agent_starts_waits_and_is_applied_when_approved(habitus: Habitus) -> None:
    proposal = propose(habitus, conversation="c1")
    assert proposal.reasons == ("the agent started it",)
    assert not habitus.skills.is_name_taken("report")
    assert habitus.review.count_pending() == 1
    assert habitus.review.list_pending_skills_of_conversation("c1")["report"][1].body == "1. Write it."
    assert habitus.review.list_pending_skills_of_conversation("c2") == {}

    approved, version = habitus.review.approve(proposal.id, ME)
    assert (approved.state, approved.decided_by, version) == (ProposalState.APPROVED, "ada", 1)
    assert habitus.skills.load("report").body == "1. Write it."
    (first,) = habitus.skills.list_versions("report")
    assert first.author.actor is ActorKind.USER
    assert "did it three times (proposed by agent main, proposal 1)" in first.author.reason
    assert habitus.review.count_pending() == 0


@pytest.mark.req("SK-21")
def test_a_proposal_whose_base_has_moved_is_stale_and_changes_nothing(habitus: Habitus) -> None:
    habitus.review.submit(write(), ME)
    proposal = propose(habitus, write(replace(SKILL, body="theirs")))
    habitus.review.submit(write(replace(SKILL, body="mine")), ME)
    with pytest.raises(Stale, match="has changed since proposal 1"):
        habitus.review.approve(proposal.id, ME)
    assert habitus.skills.load("report").body == "mine"
    assert habitus.review.get(proposal.id).state is ProposalState.STALE
    with pytest.raises(Invalid, match="was found stale by ada already"):
        habitus.review.approve(proposal.id, ME)


@pytest.mark.req("SK-21")
def test_a_new_skill_proposed_under_a_name_taken_since_is_stale(habitus: Habitus) -> None:
    proposal = propose(habitus)
    habitus.review.submit(write(replace(SKILL, body="mine")), ME)
    with pytest.raises(Stale):
        habitus.review.approve(proposal.id, ME)


@pytest.mark.req("SK-21")
def test_rejecting_keeps_the_reason_for_the_agent(habitus: Habitus) -> None:
    proposal = propose(habitus)
    rejected = habitus.review.reject(proposal.id, ME, "too vague")
    assert (rejected.state, rejected.decision) == (ProposalState.REJECTED, "too vague")
    assert not habitus.skills.is_name_taken("report")
    with pytest.raises(NotFound, match="no proposal 99"):
        habitus.review.get(99)


@pytest.mark.req("SK-21")
def test_a_proposal_can_be_mended_before_it_is_approved(habitus: Habitus) -> None:
    proposal = propose(habitus)
    habitus.review.edit_proposed_file(proposal.id, "SKILL.md", skill_md.render_skill_md(replace(SKILL, body="better")))
    with pytest.raises(Invalid, match="never closed"):
        habitus.review.edit_proposed_file(proposal.id, "SKILL.md", b"---\nname: report\n")
    habitus.review.approve(proposal.id, ME)
    assert habitus.skills.load("report").body == "better"


@pytest.mark.req("SK-21")
def test_the_same_change_proposed_twice_is_one_proposal(habitus: Habitus) -> None:
    first, second = (habitus.review.submit(write(), AGENT).proposal for _ in range(2))
    assert first == second
    assert habitus.review.count_pending() == 1


@pytest.mark.req("SK-21")
def test_deletes_and_switches_of_the_agent_wait_and_say_what_they_do(habitus: Habitus) -> None:
    habitus.review.submit(write(), ME)
    remove, disable = (
        propose(habitus, SkillChange(action=action, name="report", layer="user"))
        for action in (ProposalAction.REMOVE, ProposalAction.DISABLE)
    )
    assert "-1. Write it." in habitus.review.diff_proposal(remove.id)
    assert habitus.review.diff_proposal(disable.id) == "disable report@user\n"
    habitus.review.approve(disable.id, ME)
    assert habitus.skills.load("report").enabled is False
    habitus.review.approve(remove.id, ME)
    assert not habitus.skills.is_name_taken("report")


@pytest.mark.req("SK-21")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (write(files={"scripts/tool.py": b"print(1)"}), "it brings code"),
        (write(replace(SKILL, manifest=Manifest(always_include=True))), "is put into every prompt"),
        (write(replace(SKILL, allowed_tools="Bash")), "may use the tool Bash"),
        (write(files={"tool.json": b'{"permissions": {"network": true}}'}), "uses the network"),
        (replace(write(), findings=("near-duplicate of summary (0.93)",)), "near-duplicate of summary (0.93)"),
        (SkillChange(action=ProposalAction.REMOVE, name="report", layer="user"), "the agent wants to remove it"),
        (SkillChange(action=ProposalAction.DISABLE, name="report", layer="user"), "the agent wants to disable it"),
    ],
)
def test_some_changes_wait_even_when_prose_is_applied_at_once(change: SkillChange, reason: str) -> None:
    assert list_review_reasons(change, {}, AGENT, auto=True) == [reason]
    assert reason in list_review_reasons(change, {}, AGENT, auto=False)


@pytest.mark.req("SK-21")
def test_prose_of_the_agent_is_applied_at_once_when_the_person_wants_that(tmp_path: Path) -> None:
    (tmp_path / ".habitus").mkdir()
    (tmp_path / ".habitus/habitus.toml").write_text("[review]\nauto = true\n")
    with opened(tmp_path) as habitus:
        assert habitus.review.submit(write(), AGENT).version == 1
        with_code = write(replace(SKILL, name="coder"), {"scripts/tool.py": b"print(1)"})
        assert habitus.review.submit(with_code, AGENT).proposal is not None


@pytest.mark.req("IM-04")
def test_a_change_that_can_be_tried_on_tasks_first_waits_all_the_same(tmp_path: Path) -> None:
    (tmp_path / ".habitus").mkdir()
    (tmp_path / ".habitus/habitus.toml").write_text("[review]\nauto = true\n")
    with opened(tmp_path) as habitus:
        habitus.review.submit(write(), AGENT)
        habitus.skills.edit_file(SKILL.name, trees.TASKS_FILE, b"", habitus.build_author())
        waits = propose(habitus, write(replace(SKILL, body="2. Better.")))
        assert waits.reasons == ("it has tasks, on which the change can be tried first",)


@pytest.mark.req("SK-21", "SK-22")
def test_a_pause_stops_even_what_would_be_applied_at_once(tmp_path: Path) -> None:
    (tmp_path / ".habitus").mkdir()
    (tmp_path / ".habitus/habitus.toml").write_text("[review]\nauto = true\n")
    with opened(tmp_path) as habitus:
        habitus.pause.pause("ada")
        with pytest.raises(Exception, match="paused"):
            habitus.review.submit(write(), AGENT)


@pytest.mark.req("SK-21", "OP-01")
def test_a_proposal_for_a_directory_of_one_host_is_decided_on_any_and_carried_out_there(tmp_path: Path) -> None:
    """Two machines share a database; `claude` is a directory of each, `user` is the shared layer."""
    url = {"HABITUS_DATABASE": f"sqlite:///{tmp_path / 'shared.db'}"}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with opened(tmp_path / "one", **url) as one, opened(tmp_path / "two", **url) as two:
        shared = one.review.submit(write(), AGENT).proposal
        of_one = one.review.submit(replace(write(), layer="claude"), AGENT).proposal
        of_two = two.review.submit(replace(write(replace(SKILL, name="other")), layer="claude"), AGENT).proposal
        assert shared is not None
        assert of_one is not None
        assert of_two is not None
        assert [proposal.id for proposal in one.review.list_proposals_by_state()] == [shared.id, of_one.id]
        assert [proposal.id for proposal in two.review.list_proposals_by_state()] == [shared.id, of_two.id]
        everywhere = [proposal.id for proposal in two.review.list_proposals_by_state(all_hosts=True)]
        assert everywhere == [shared.id, of_one.id, of_two.id] == [2, 4, 6]
        assert (one.review.count_pending(), two.review.count_pending()) == (3, 3)
        assert two.review.get(of_two.id).change.name == "other"
        with pytest.raises(NotFound, match=r"Pending: 2, 4, 6\."):
            two.review.get(99)

        approved, version = two.review.approve(of_one.id, ME)
        assert (approved.state, version) == (ProposalState.ACCEPTED, None)
        assert not two.skills.is_name_taken("report")
        with pytest.raises(Invalid, match=f"Proposal {of_one.id} was approved by ada already"):
            one.review.reject(of_one.id, ME, "no")
        with one.open_at(tmp_path) as later:
            assert later.skills.find("report").layer == "claude"
            (made,) = later.skills.get_layer("claude").store.list_versions("report")
            assert (made.author.actor, made.author.name) == (ActorKind.USER, "ada")
        done = two.review.get(of_one.id)
        assert (done.state, done.decision) == (ProposalState.APPROVED, "version 1")
        assert two.review.approve(shared.id, ME)[1] == 1
        assert one.review.get(shared.id).state is ProposalState.APPROVED
        assert one.review.reject(of_two.id, ME, "no").decision == "no"
        assert [one.id for one in two.review.list_unreported_rejections()] == [of_two.id]
        assert one.review.count_pending() == 0
