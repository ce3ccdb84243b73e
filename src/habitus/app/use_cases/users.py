"""Users: who may sign in besides the home's owner, with which role, and when they were last seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home, refuse_if_read_only_or_offline, refuse_non_admin_on_shared_database
from habitus.app.operating.people import UserAccount, UserRole, open_user_accounts
from habitus.app.use_cases.declaration import DEFAULT_PAGE_ADDRESS, PageAddress, argument, option, use_case

_NAME = "What they are called; every change names them."


@dataclass(frozen=True, kw_only=True)
class ListUsersResult:
    users: Sequence[UserAccount]


@use_case("users list", route="GET /users", access=Access.VIEWER)
def list_users(home: Home) -> ListUsersResult:
    """List who may sign in."""
    return ListUsersResult(users=open_user_accounts(home).list_accounts())


@dataclass(frozen=True, kw_only=True)
class AddUserResult:
    """The link works once, and the token is for programs; neither is shown again."""

    name: str
    role: UserRole
    link: str
    token: str
    undo: tuple[str, ...]


@use_case(
    "users add",
    route="POST /users",
    access=Access.ADMIN,
    example={"name": "ben", "role": UserRole.REVIEWER},
    undo="users remove",
    status=201,
)
def add_user(
    home: Home,
    name: Annotated[str, argument(_NAME)],
    role: Annotated[UserRole, option("viewer can view, reviewer can also review, admin can change everything.")],
    at: PageAddress = "",
) -> AddUserResult:
    """Let a user sign in; an existing user gets a new role, link and token."""
    refuse_if_read_only_or_offline(home)
    refuse_non_admin_on_shared_database(home, "let people in")
    accounts = open_user_accounts(home)
    if home.settings.is_guest_admin is not None and accounts.find_account_by_name(name) is None:
        accounts.refuse_account_under_used_name(name)
    made = accounts.add_or_reinvite_user(name, role)
    address = at or home.settings.web.address or DEFAULT_PAGE_ADDRESS
    return AddUserResult(
        name=name,
        role=role,
        link=f"{address.rstrip('/')}/enter?key={made.link}",
        token=made.token,
        undo=("users", "remove", name),
    )


@dataclass(frozen=True, kw_only=True)
class RemoveUserResult:
    removed: str


@use_case("users remove", route="DELETE /users/{name}", access=Access.ADMIN, example={"name": "ben"})
def remove_user(home: Home, name: Annotated[str, argument(_NAME)]) -> RemoveUserResult:
    """Stop a user from signing in, starting with their next request; their name stays in the history."""
    refuse_if_read_only_or_offline(home)
    refuse_non_admin_on_shared_database(home, "shut people out")
    open_user_accounts(home).remove_and_bar_account(name)
    return RemoveUserResult(removed=name)
