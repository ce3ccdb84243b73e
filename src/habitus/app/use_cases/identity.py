"""The assistant's identity: the text that every prompt begins with, and how to change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from habitus.access import Access
from habitus.agent.prompts.prompt import NAME, load_identity_skill
from habitus.app.home import Home
from habitus.app.library.undoing import build_version_undo_command, build_write_undo_command
from habitus.app.use_cases.declaration import MAX_TEXT_CHARS, option, use_case
from habitus.errors import Invalid
from habitus.skills.layers.layer import PROMPT_LAYER


@dataclass(frozen=True, kw_only=True)
class AssistantIdentityDetails:
    """The current identity; `undo` is empty if nothing was changed."""

    text: str
    version: int
    undo: tuple[str, ...] = ()


@use_case("lessons identity", route="GET /identity", access=Access.VIEWER)
def show_identity(home: Home) -> AssistantIdentityDetails:
    """Show who the assistant is and how it speaks: the first lines of every prompt."""
    now = load_identity_skill(home.skills)
    return AssistantIdentityDetails(text=now.body, version=now.version)


@use_case("lessons identity", route="PUT /identity", access=Access.ADMIN, example={"text": "You are brief and kind."})
def change_identity(
    home: Home, text: Annotated[str, option("The new text; '-' reads standard input.", "--set", longest=MAX_TEXT_CHARS)]
) -> AssistantIdentityDetails:
    """Set the text that says who the assistant is."""
    if not (body := text.strip()):
        raise Invalid("The identity can't be empty.", hint="Describe the assistant in one sentence.")
    author, store = home.build_author("changed who the assistant is"), home.skills.get_layer(PROMPT_LAYER).store
    # The identity is a skill that only exists once someone has changed the default.
    if store.load(NAME) is None:
        made = home.skills.create(replace(load_identity_skill(home.skills), body=body), author, layer=PROMPT_LAYER)
        undo = build_version_undo_command(f"{NAME}@{PROMPT_LAYER}", made.version)
    else:
        undo = build_write_undo_command(store.update_skill(NAME, lambda old: replace(old, body=body), author))
    return replace(show_identity(home), undo=undo)
