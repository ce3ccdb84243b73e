"""The assistant's identity: the text that every prompt begins with, and how to change it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace

from habitus.access import Access
from habitus.agent.prompts.prompt import NAME, identity_skill
from habitus.app.home import Home
from habitus.app.library.undoing import of_version, of_written
from habitus.app.use_cases.declaration import TEXT, Nothing, option, use_case
from habitus.errors import Invalid
from habitus.skills.layers.layer import PROMPT


@dataclass(frozen=True, kw_only=True)
class IdentityText:
    """The current identity; `undo` is empty if nothing was changed."""

    text: str
    version: int
    undo: tuple[str, ...] = ()


@use_case("identity", route="GET /identity", access=Access.VIEWER, example=Nothing())
def show(home: Home, wanted: Nothing) -> IdentityText:
    """Show who the assistant is and how it speaks: the first lines of every prompt."""
    now = identity_skill(home.skills)
    return IdentityText(text=now.body, version=now.version)


@dataclass(frozen=True, kw_only=True)
class NewIdentity:
    text: str = option("Make this the text; '-' reads standard input.", "--set", default=MISSING, longest=TEXT)


@use_case("identity", route="PUT /identity", access=Access.ADMIN, example=NewIdentity(text="You are brief and kind."))
def change(home: Home, wanted: NewIdentity) -> IdentityText:
    """Set the text that says who the assistant is."""
    text = wanted.text.strip()
    if not text:
        raise Invalid("The identity can't be empty.", hint="Say in a sentence who the assistant is.")
    author, store = home.person("changed who the assistant is"), home.skills.layer(PROMPT).store
    # The identity is a skill that only exists once someone has changed the default.
    if store.load(NAME) is None:
        made = home.skills.create(replace(identity_skill(home.skills), body=text), author, layer=PROMPT)
        undo = of_version(f"{NAME}@{PROMPT}", made.version)
    else:
        undo = of_written(store.change(NAME, lambda old: replace(old, body=text), author))
    return replace(show(home, Nothing()), undo=undo)
