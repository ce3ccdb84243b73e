"""Exam cards of this home's skills, and those that come with skills of others (see `habitus.improve.cards`)."""

from __future__ import annotations

from dataclasses import replace

from habitus.app.home import Home
from habitus.errors import Invalid
from habitus.files import Tree, build_tree_file, drop_eval_files, has_same_files
from habitus.improve.candidates import CandidateState
from habitus.improve.cards import ExamCard, build_exam_card, hash_skill_files, parse_exam_card, serialize_exam_card
from habitus.improve.report import build_candidate_report
from habitus.improve.store import ImproveStore
from habitus.improve.trials import build_trial_candidate_name
from habitus.skills import trees
from habitus.skills.formats.base import IncomingSkill
from habitus.skills.library import Library


def require_exam_card_of_current_text(home: Home, name: str) -> ExamCard:
    """Return the card of a skill's current text. Raises `Invalid` if that is not what an exam accepted."""
    if (card := find_exam_card_of_current_files(home, name)) is not None:
        return card
    hint = f"Improve it first: habitus skills improve {name}. Or go on without a card."
    raise Invalid(f"No exam has accepted the current text of '{name}', so there is no card.", hint=hint)


def build_exam_card_file_tree(home: Home, name: str) -> Tree:
    """Return the file of a skill's card."""
    return {trees.CARD_FILE: build_tree_file(serialize_exam_card(require_exam_card_of_current_text(home, name)))}


def find_exam_card_of_current_files(home: Home, name: str) -> ExamCard | None:
    """Return the card of a skill's current files; None if no exam has accepted them."""
    item = home.skills.find(name)
    files = home.skills.get_layer(item.layer).store
    tree = files.read_tree(item.name) or {}
    text = _read_main_text(tree)
    # The exam met the files that were beside this text when it came.
    versions = (files.read_tree(item.name, one.number) for one in files.list_versions(item.name))
    examined = next((one for one in versions if one is not None and _read_main_text(one) == text), {})
    if not has_same_files(drop_eval_files(examined), drop_eval_files(tree)):
        return None
    store = ImproveStore(home.shared, home.clock, home.redact)
    accepted = [
        one
        for one in store.list_candidates(item.name)
        if one.state is CandidateState.ACCEPTED and one.text == text and one.proposal is not None
    ]
    rollouts = store.list_rollouts(skill=item.name)
    exam = build_candidate_report(accepted[-1], rollouts).exam if accepted else None
    if exam is None:
        return None
    version = item.summary.version if item.summary is not None else 0
    candidate = accepted[-1]
    # Our own agent solves in a trial: where a program took the exam, there is none to tell of.
    trial = build_trial_candidate_name(candidate.model) if not candidate.solver else None
    return build_exam_card(
        item.name,
        tree,
        exam,
        [one for one in rollouts if one.version == version and one.candidate == trial],
        solver=candidate.solver.partition(":")[0] or "habitus",
        model=candidate.model,
        date=f"{candidate.made_on:%Y-%m-%d}" if candidate.made_on is not None else "",
    )


def _read_main_text(tree: Tree) -> str:
    return trees.read_main_files({"": tree}).get("", b"").decode("utf-8", "replace")


def describe_publisher_claim(skills: Library, name: str) -> str:
    """Return what the publisher of a skill claims, in words; empty without a card for its current files."""
    item = skills.find(name)
    tree = skills.get_layer(item.layer).store.read_tree(item.name) or {}
    file = tree.get(trees.CARD_FILE)
    card = parse_exam_card(file.content) if file is not None and file.content is not None else None
    return card.sentence if card is not None and card.digest == hash_skill_files(tree) else ""


def check_or_drop_incoming_exam_card(entry: IncomingSkill) -> tuple[IncomingSkill, str]:
    """Return a skill of others and a note about its card; without the card if that is not about these files."""
    file = entry.tree.get(trees.CARD_FILE)
    if file is None:
        return entry, ""
    card = parse_exam_card(file.content or b"")
    if card is not None and card.digest == hash_skill_files(entry.tree):
        sentence = card.sentence
        return entry, f"{sentence[0].upper()}{sentence[1:]}. Try it: habitus skills trial {entry.name}"
    tree = {path: one for path, one in entry.tree.items() if path != trees.CARD_FILE}
    return replace(entry, tree=tree), "Its exam card is about other files, and was dropped."
