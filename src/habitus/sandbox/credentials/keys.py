"""Keys of vaults: in the keyring of the operating system where there is one, else made from a password.

The password is what a variable holds, what the file holds that a variable names, or what a person types.
"""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from habitus import extras
from habitus.errors import Invalid, Refused, StorageFailed

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

VARIABLE = "HABITUS_VAULT_KEY"
_CHECK = "habitus"
_SHORTEST_GIVEN = 16
_ROUNDS_GIVEN, _ROUNDS_TYPED = 2**14, 2**17  # of scrypt: what a variable holds is long, what people type is not


class KeyFrom(StrEnum):
    KEYRING = "keyring"
    PASSWORD = "password"


class Keyring(Protocol):
    """A place of the operating system for passwords."""

    def get(self, name: str) -> str | None: ...

    def put(self, name: str, value: str) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class KeySources:
    """Where a key may come from. Each is asked only when it is needed: a keyring takes longer than most commands."""

    given: Callable[[], str | None]  # the password of a variable
    keyring: Callable[[], Keyring | None]
    typed: Callable[[bool], str | None] = lambda is_new: None  # what a person types; None where nobody is there


def sources(environ: Mapping[str, str]) -> KeySources:
    """Those of this process, in which nobody can type anything until somebody says so."""
    return KeySources(given=lambda: _given(environ), keyring=system_keyring)


@dataclass(frozen=True, kw_only=True, slots=True)
class VaultKey:
    """A key that opens one vault."""

    fernet: Fernet

    def sealed(self, text: str) -> str:
        return self.fernet.encrypt(text.encode()).decode()

    def opened(self, token: str) -> str | None:
        """The text, or None where the token was not made with this key, or is damaged."""
        from cryptography.fernet import InvalidToken

        try:
            return self.fernet.decrypt(token.encode()).decode()
        except InvalidToken:
            return None


def check_sources(sources: KeySources) -> None:
    """Refuse where a new vault would have no key: no variable, no keyring, and nobody who types."""
    given = sources.given()
    if given is not None:
        _long_enough(given)
    elif sources.keyring() is None:
        _typed_anew(sources)


def made(vault_id: str, sources: KeySources) -> tuple[VaultKey, dict[str, Any]]:
    """A key for a new vault, and what must be kept to find it again."""
    given = sources.given()
    keyring = sources.keyring() if given is None else None
    how: dict[str, Any]
    if keyring is not None:
        how, text = {"from": KeyFrom.KEYRING}, base64.urlsafe_b64encode(os.urandom(32)).decode()
        keyring.put(vault_id, text)
    else:
        rounds = _ROUNDS_TYPED if given is None else _ROUNDS_GIVEN
        how = {"from": KeyFrom.PASSWORD, "salt": os.urandom(16).hex(), "rounds": rounds}
        password = _typed_anew(sources) if given is None else _long_enough(given)
        text = _derived(password, how["salt"], rounds)
    key = _key(text)
    return key, {**how, "check": key.sealed(_CHECK)}


def found(vault: Path, vault_id: str, how: Mapping[str, Any], sources: KeySources, *, asks: bool) -> VaultKey:
    """The key of a vault, as `how` says that it is found; a person is asked only if need be, and if that is wanted."""
    match KeyFrom(how["from"]):
        case KeyFrom.KEYRING:
            key = _key(_from_keyring(vault, vault_id, sources))
        case KeyFrom.PASSWORD:
            key = _key(_derived(_password(vault, sources, asks=asks), how["salt"], how["rounds"]))
    if key.opened(how["check"]) != _CHECK:
        mend = f"Give {VARIABLE} the value that the vault was made with; nothing was changed."
        raise Refused(f"That is not the key of {vault}.", mend=mend)
    return key


def system_keyring() -> Keyring | None:
    """The keyring of this account, where the operating system has a real one."""
    try:
        import keyring
        from keyring.core import recommended
    except ModuleNotFoundError:
        raise extras.absent("The vault", "keyring") from None
    backend = keyring.get_keyring()
    return _SystemKeyring() if recommended(backend) else None


_SERVICE = "habitus vault"


class _SystemKeyring:
    def get(self, name: str) -> str | None:
        import keyring

        return _answer(lambda: keyring.get_password(_SERVICE, name))

    def put(self, name: str, value: str) -> None:
        import keyring

        _answer(lambda: keyring.set_password(_SERVICE, name, value))


def _answer(ask: Callable[[], str | None]) -> str | None:
    from keyring.errors import KeyringError

    try:
        return ask()
    except KeyringError as error:
        said = str(error).strip().rstrip(".") or type(error).__name__
        mend = f"Unlock it, or set {VARIABLE} for a vault that needs none."
        raise StorageFailed(f"The keyring did not answer: {said}.", mend=mend) from None


def _from_keyring(vault: Path, vault_id: str, sources: KeySources) -> str:
    keyring = sources.keyring()
    key = None if keyring is None else keyring.get(vault_id)
    if key is None:
        raise Refused(
            f"The key of {vault} is not in the keyring of this account: the vault was made by another account or on "
            "another machine.",
            mend="Use it there, or move it away and set the secrets again; what was granted stays.",
        )
    return key


def _given(environ: Mapping[str, str]) -> str | None:
    if key := environ.get(VARIABLE):
        return key
    if not (file := environ.get(f"{VARIABLE}_FILE")):
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageFailed(f"The key of the vault can't be read: {error}.", mend=f"Check {VARIABLE}_FILE.") from None


def _password(vault: Path, sources: KeySources, *, asks: bool) -> str:
    password = sources.given()
    if password is None and asks:
        password = sources.typed(False)
    if password is None:
        raise Refused(f"{vault} is locked.", mend=f"Set {VARIABLE} to its key, or {VARIABLE}_FILE to a file with it.")
    return password


def _long_enough(given: str) -> str:
    if len(given) < _SHORTEST_GIVEN:
        mend = "Use a random one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        raise Invalid(f"{VARIABLE} has fewer than {_SHORTEST_GIVEN} characters.", mend=mend)
    return given


def _typed_anew(sources: KeySources) -> str:
    typed = sources.typed(True)
    if not typed:
        mend = f"Set {VARIABLE} to a long random text, and keep it: without it nothing in the vault can be read."
        raise Refused("There is no keyring here, and no key for the vault.", mend=mend)
    return typed


@functools.lru_cache(maxsize=4)  # it is meant to take long, and one process may open a vault many times
def _derived(password: str, salt: str, rounds: int) -> str:
    try:
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    except ModuleNotFoundError:
        raise extras.absent("The vault", "cryptography") from None
    scrypt = Scrypt(salt=bytes.fromhex(salt), length=32, n=rounds, r=8, p=1)
    return base64.urlsafe_b64encode(scrypt.derive(password.encode())).decode()


def _key(text: str) -> VaultKey:
    try:
        from cryptography.fernet import Fernet
    except ModuleNotFoundError:
        raise extras.absent("The vault", "cryptography") from None
    return VaultKey(fernet=Fernet(text.encode()))
