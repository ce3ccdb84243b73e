"""Users: who may sign in besides the home's owner, with which role, and when they were last seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from datetime import datetime

from habitus.access import Access
from habitus.app.home import Home, refuse_unless_admin
from habitus.app.operating.people import Role, open_people
from habitus.app.use_cases.declaration import Nothing, argument, option, page_address, use_case

_NAME = "What they are called; every change names them."


@dataclass(frozen=True, kw_only=True)
class Member:
    name: str
    role: Role
    # When they were last seen.
    seen_on: datetime | None


@dataclass(frozen=True, kw_only=True)
class Members:
    users: Sequence[Member]
    # Users whom this home admitted before it joined a shared database that doesn't know them: name and role.
    left_in_file: Mapping[str, str]


@use_case("users list", route="GET /users", access=Access.VIEWER, example=Nothing())
def list_users(home: Home, wanted: Nothing) -> Members:
    """List who may sign in."""
    people = open_people(home)
    found = [Member(name=one.name, role=one.role, seen_on=one.seen_on) for one in people.list()]
    return Members(users=found, left_in_file=people.left_in_file())


@dataclass(frozen=True, kw_only=True)
class Invitation:
    name: str = argument(_NAME)
    role: Role = option("viewer looks, reviewer decides, admin changes everything.", default=MISSING)
    at: str = page_address("Where they reach the page.")


@dataclass(frozen=True, kw_only=True)
class InvitedUser:
    """The link works once, and the token is for programs; neither is shown again."""

    name: str
    role: Role
    link: str
    token: str
    undo: tuple[str, ...]


@use_case(
    "users add",
    route="POST /users",
    access=Access.ADMIN,
    example=Invitation(name="ben", role=Role.REVIEWER),
    undo="users remove",
    status=201,
)
def add(home: Home, wanted: Invitation) -> InvitedUser:
    """Let a user sign in; an existing user gets a new role, link and token."""
    home.refuse_unless_kept()
    refuse_unless_admin(home, "let people in")
    made = open_people(home).add(wanted.name, wanted.role)
    return InvitedUser(
        name=wanted.name,
        role=wanted.role,
        link=f"{wanted.at.rstrip('/')}/enter?key={made.link}",
        token=made.token,
        undo=("users", "remove", wanted.name),
    )


@dataclass(frozen=True, kw_only=True)
class OneUser:
    name: str = argument(_NAME)


@dataclass(frozen=True, kw_only=True)
class RemovedUser:
    removed: str


@use_case("users remove", route="DELETE /users/{name}", access=Access.ADMIN, example=OneUser(name="ben"))
def remove(home: Home, wanted: OneUser) -> RemovedUser:
    """Stop a user from signing in, starting with their next request; their name stays in the history."""
    home.refuse_unless_kept()
    refuse_unless_admin(home, "shut people out")
    open_people(home).remove(wanted.name)
    return RemovedUser(removed=wanted.name)
