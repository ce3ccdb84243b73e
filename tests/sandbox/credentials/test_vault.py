"""The vault keeps what it is given and gives it to nobody without the key; whatever is done to its file is said."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import keyring
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyring.backend import KeyringBackend

from habitus.errors import Invalid, NotFound, UserError
from habitus.redact import Redactor
from habitus.sandbox.credentials import vault
from habitus.sandbox.credentials.vault import FILE, Vault, VaultKeySources, open_vault

PASSWORD = "a-long-random-text-of-a-variable"
SECRET = "correct horse battery staple"


@dataclass(frozen=True, slots=True)
class Drawer:
    """A keyring that lives as long as its test."""

    kept: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return self.kept.get(name)

    def put(self, name: str, value: str) -> None:
        self.kept[name] = value


def with_password(home: Path, password: str | None = PASSWORD) -> Vault:
    return Vault(home, VaultKeySources(read_environment=lambda: password, keyring=lambda: None))


def with_keyring(home: Path, drawer: Drawer | None) -> Vault:
    return Vault(home, VaultKeySources(read_environment=lambda: None, keyring=lambda: drawer))


@pytest.mark.req("SB-11")
@given(
    kept=st.dictionaries(
        st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,20}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=5).filter(
            lambda text: len(text.strip()) >= 5
        ),
        max_size=4,
    )
)
def test_what_is_kept_comes_back_whoever_opens_it_with_the_key(kept: dict[str, str]) -> None:
    drawer = Drawer()
    with TemporaryDirectory() as place:
        for name, value in kept.items():
            assert with_keyring(Path(place), drawer).set(name, value)
        again = with_keyring(Path(place), drawer)
        assert again.list_secret_names() == tuple(sorted(kept))
        assert {name: again.get(name) for name in kept} == kept
        assert again.list_known_values_to_redact() == frozenset(kept.values())


@pytest.mark.req("SB-11")
def test_the_file_is_its_owners_and_shows_names_only(tmp_path: Path) -> None:
    with_password(tmp_path).set("smtp.password", SECRET)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        FILE: 0o600,
        "vault.lock": 0o600,
    }
    said = (tmp_path / FILE).read_bytes()
    assert SECRET.encode() not in said
    assert base64.b64encode(SECRET.encode()) not in said
    assert with_password(tmp_path, None).list_secret_names() == ("smtp.password",)


def _is_no_json(file: Path) -> None:
    file.write_text(file.read_text()[:-40])


def _is_no_object(file: Path) -> None:
    file.write_text("[]")


def _has_no_key(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"key": 7}))


def _has_an_odd_key(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"key": {"from": "moon", "check": 7}}))


def _has_half_a_key(file: Path) -> None:
    kept = json.loads(file.read_text())
    file.write_text(json.dumps(kept | {"key": kept["key"] | {"from": "password"}}))


def _is_newer(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2}))


def _is_swapped(file: Path) -> None:
    kept = json.loads(file.read_text())
    kept["secrets"]["smtp.password"] = kept["secrets"]["other"]
    file.write_text(json.dumps(kept))


def _is_bent(file: Path) -> None:
    kept = json.loads(file.read_text())
    kept["secrets"]["smtp.password"] = "gAAA" + kept["secrets"]["smtp.password"][8:]
    file.write_text(json.dumps(kept))


@pytest.mark.req("SB-11")
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_is_no_json, "can't be read.*Put a backup in its place"),
        (_is_no_object, "can't be read: it is not an object.*Put a backup in its place"),
        (_has_no_key, "is damaged.*Put a backup in its place"),
        (_has_an_odd_key, "is damaged.*Put a backup in its place"),
        (_has_half_a_key, "is locked.*HABITUS_VAULT_KEY"),
        (_is_newer, "not a vault that this Habitus can read.*Upgrade Habitus"),
        (_is_swapped, "'smtp.password' is damaged.*habitus secrets set smtp.password"),
        (_is_bent, "'smtp.password' is damaged.*habitus secrets set smtp.password"),
    ],
)
def test_a_damaged_vault_says_so_in_one_line_and_is_left_alone(
    tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    drawer = Drawer()
    with_keyring(tmp_path, drawer).set("smtp.password", SECRET)
    with_keyring(tmp_path, drawer).set("other", "another value")
    harm(tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(UserError, match=said) as caught:
        with_keyring(tmp_path, drawer).get("smtp.password")
    assert "\n" not in str(caught.value)
    if "damaged.*habitus" not in said:
        with pytest.raises(UserError, match=said):
            with_keyring(tmp_path, drawer).set("third", "a third value")
        assert (tmp_path / FILE).read_bytes() == before
        assert with_keyring(tmp_path, drawer).list_known_values_to_redact() == frozenset()


@pytest.mark.req("SB-11")
@pytest.mark.parametrize(
    ("password", "said"),
    [("not the one it was made with", "not the key of.*nothing was changed"), (None, "is locked.*HABITUS_VAULT_KEY")],
)
def test_without_its_key_a_vault_stays_shut_and_loses_nothing(tmp_path: Path, password: str | None, said: str) -> None:
    with_password(tmp_path).set("smtp.password", SECRET)
    before = (tmp_path / FILE).read_bytes()
    shut = with_password(tmp_path, password)
    for use in (lambda: shut.get("smtp.password"), lambda: shut.set("other", "another value")):
        with pytest.raises(UserError, match=said):
            use()
    assert shut.list_known_values_to_redact() == frozenset()
    assert (tmp_path / FILE).read_bytes() == before
    assert with_password(tmp_path).get("smtp.password") == SECRET


@pytest.mark.req("SB-11")
def test_a_vault_from_another_machine_says_where_its_key_is(tmp_path: Path) -> None:
    with_keyring(tmp_path, Drawer()).set("smtp.password", SECRET)
    for there in (Drawer(), None):
        with pytest.raises(UserError, match=r"not in the keyring of this account.*another machine.*Use it there"):
            with_keyring(tmp_path, there).get("smtp.password")


@pytest.mark.full
@pytest.mark.req("SB-11")
def test_a_typed_password_opens_what_it_locked(tmp_path: Path) -> None:
    asked: list[bool] = []

    def type_it(is_new: bool) -> str:
        asked.append(is_new)
        return "hunter2"

    with_nobody = with_password(tmp_path, None)
    with pytest.raises(UserError, match="no keyring here, and no key for the vault"):
        with_nobody.set("smtp.password", SECRET)
    for expected in ([True], [True, False]):
        vault = with_password(tmp_path, None)
        with vault.allow_password_prompt(type_it):
            vault.set("smtp.password", SECRET)
            assert vault.get("smtp.password") == SECRET
        assert asked == expected


@pytest.mark.req("SB-11")
def test_a_file_may_hold_the_password(tmp_path: Path) -> None:
    file = tmp_path / "mounted"
    file.write_text(f"{PASSWORD}\n")
    open_vault(tmp_path, {"HABITUS_VAULT_KEY_FILE": str(file)}).set("smtp.password", SECRET)
    assert open_vault(tmp_path, {"HABITUS_VAULT_KEY": PASSWORD}).get("smtp.password") == SECRET
    with pytest.raises(UserError, match=r"can't be read.*Check HABITUS_VAULT_KEY_FILE"):
        open_vault(tmp_path, {"HABITUS_VAULT_KEY_FILE": str(tmp_path / "gone")}).get("smtp.password")


@pytest.mark.req("SB-11")
def test_two_who_write_at_once_keep_both(tmp_path: Path) -> None:
    def write(mine: str) -> None:
        vault = with_keyring(tmp_path, drawer)
        for number in range(8):
            vault.set(f"{mine}-{number}", f"value {number} of {mine}")

    drawer = Drawer()
    writers = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    vault = with_keyring(tmp_path, drawer)
    assert len(drawer.kept) == 1
    assert {name: vault.get(name) for name in vault.list_secret_names()} == {
        f"{mine}-{number}": f"value {number} of {mine}" for mine in "abc" for number in range(8)
    }


@pytest.mark.req("SB-11")
def test_values_that_could_not_be_kept_out_of_texts_are_refused(tmp_path: Path) -> None:
    for name, value in (("pin", "1234"), ("pin", "   12   "), ("", SECRET), ("a b", SECRET), ("big", "x" * 70_000)):
        with pytest.raises(Invalid):
            with_password(tmp_path).set(name, value)
    with pytest.raises(Invalid, match=r"fewer than 16 characters.*token_urlsafe"):
        with_password(tmp_path, "short").set("a", SECRET)
    assert not (tmp_path / FILE).exists()
    with_password(tmp_path).set("smtp.password", SECRET)
    with pytest.raises(NotFound, match=r"Did you mean 'smtp.password'"):
        with_password(tmp_path).get("smtp.pasword")


@pytest.mark.req("SB-11", "SB-14")
def test_a_value_that_another_process_sets_is_redacted_from_then_on(tmp_path: Path) -> None:
    here, there = with_password(tmp_path), with_password(tmp_path)
    redactor = Redactor(kept=here.list_known_values_to_redact)
    text = f"it is {SECRET}, or {base64.b64encode(SECRET.encode()).decode()}, or {SECRET.encode().hex()}"
    assert redactor.redact(text).text == text
    there.set("smtp.password", SECRET)
    assert redactor.redact(text).text == "it is [redacted:known], or [redacted:known], or [redacted:known]"
    there.set("smtp.password", "a new value")
    assert redactor.redact(f"{SECRET} was, a new value is").text == "[redacted:known] was, [redacted:known] is"
    there.remove("smtp.password")
    assert redactor.redact(SECRET).text == "[redacted:known]"


class _InMemory(KeyringBackend):
    priority = 9
    kept: ClassVar[dict[tuple[str, str], str]] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError


@pytest.mark.req("SB-11")
def test_the_key_lies_in_the_keyring_of_the_system_where_there_is_one(tmp_path: Path) -> None:
    before, backend = keyring.get_keyring(), _InMemory()  # type: ignore[no-untyped-call]  # keyring has few types
    sources = VaultKeySources(read_environment=lambda: None, keyring=vault.find_system_keyring)
    keyring.set_keyring(backend)
    try:
        Vault(tmp_path, sources).set("smtp.password", SECRET)
        assert Vault(tmp_path, sources).get("smtp.password") == SECRET
        (key,) = backend.kept.values()
    finally:
        keyring.set_keyring(before)
    assert key not in (tmp_path / FILE).read_text()
