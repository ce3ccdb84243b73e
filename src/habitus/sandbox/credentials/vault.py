"""The vault: a person's secrets in one file of the home, each encrypted together with its name."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from habitus import optional_packages
from habitus.errors import Invalid, NotFound, Refused, StorageFailed, UserError, did_you_mean
from habitus.files import PrivateJsonFile
from habitus.redact import MIN_SECRET_CHARACTERS, Redactor, list_values_of_secret_variables

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


VARIABLE = "HABITUS_VAULT_KEY"
# Sealed with the key at creation: unsealing it later proves that a key is the right one.
_CHECK = "habitus"
_SHORTEST_GIVEN = 16
_ROUNDS_GIVEN, _ROUNDS_TYPED = 2**14, 2**17  # scrypt cost: a variable holds a long key, people type short ones


class VaultKeySourceKind(StrEnum):
    """Where a vault's key comes from."""

    KEYRING = "keyring"
    PASSWORD = "password"


class Keyring(Protocol):
    """The operating system's password store."""

    def get(self, name: str) -> str | None: ...

    def put(self, name: str, value: str) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class VaultKeySources:
    """The possible sources of a vault key, each queried only when needed: a keyring is slower than most commands."""

    read_environment: Callable[[], str | None]  # reads the password from a variable
    keyring: Callable[[], Keyring | None]
    prompt_password: Callable[[bool], str | None] = lambda is_new: None  # prompts a person; None if no one is present


def build_vault_key_sources(environ: Mapping[str, str]) -> VaultKeySources:
    """Return the key sources of this process. Nothing can be typed until `Vault.allow_password_prompt` says so."""
    return VaultKeySources(read_environment=lambda: _read_key_from_environ(environ), keyring=find_system_keyring)


@dataclass(frozen=True, kw_only=True, slots=True)
class VaultKey:
    """The key of one vault."""

    fernet: Fernet

    def seal(self, text: str) -> str:
        """Encrypt a text."""
        return self.fernet.encrypt(text.encode()).decode()

    def unseal(self, token: str) -> str | None:
        """Decrypt a token, or return None if it is damaged or was made with another key."""
        from cryptography.fernet import InvalidToken

        try:
            return self.fernet.decrypt(token.encode()).decode()
        except InvalidToken:
            return None


def require_vault_key_source(sources: VaultKeySources) -> None:
    """Raise `UserError` if a new vault would have no key: no variable, no keyring and no person to type one."""
    given = sources.read_environment()
    if given is not None:
        _check_password_length(given)
    elif sources.keyring() is None:
        _prompt_new_password(sources)


def create_vault_key_with_description(vault_id: str, sources: VaultKeySources) -> tuple[VaultKey, dict[str, Any]]:
    """Create a key for a new vault; return it with the description that later finds it again."""
    given = sources.read_environment()
    keyring = sources.keyring() if given is None else None
    how: dict[str, Any]
    if keyring is not None:
        how, text = {"from": VaultKeySourceKind.KEYRING}, base64.urlsafe_b64encode(os.urandom(32)).decode()
        keyring.put(vault_id, text)
    else:
        # A random value from the environment needs no slow hash; a password that people can remember does.
        rounds = _ROUNDS_TYPED if given is None else _ROUNDS_GIVEN
        how = {"from": VaultKeySourceKind.PASSWORD, "salt": os.urandom(16).hex(), "rounds": rounds}
        password = _prompt_new_password(sources) if given is None else _check_password_length(given)
        text = _derive_key_from_password(password, how["salt"], rounds)
    key = _build_vault_key_from_text(text)
    return key, {**how, "check": key.seal(_CHECK)}


def find_vault_key(
    vault: Path, vault_id: str, key_description: Mapping[str, Any], sources: VaultKeySources, *, may_prompt: bool
) -> VaultKey:
    """Return the key of a vault as described. With `may_prompt`, a person is asked if needed."""
    match VaultKeySourceKind(key_description["from"]):
        case VaultKeySourceKind.KEYRING:
            key = _build_vault_key_from_text(_read_key_from_keyring(vault, vault_id, sources))
        case VaultKeySourceKind.PASSWORD:
            key = _build_vault_key_from_text(
                _derive_key_from_password(
                    _get_vault_password(vault, sources, asks=may_prompt),
                    key_description["salt"],
                    key_description["rounds"],
                )
            )
    if key.unseal(key_description["check"]) != _CHECK:
        hint = f"Give {VARIABLE} the value that the vault was made with; nothing was changed."
        raise Refused(f"That is not the key of {vault}.", hint=hint)
    return key


def find_system_keyring() -> Keyring | None:
    """Return this account's keyring, or None if the operating system has no secure one."""
    try:
        import keyring
        from keyring.core import recommended
    except ModuleNotFoundError:
        raise optional_packages.build_missing_error("The vault", "keyring") from None
    backend = keyring.get_keyring()
    return _SystemKeyring() if recommended(backend) else None


_SERVICE = "habitus vault"


class _SystemKeyring:
    def get(self, name: str) -> str | None:
        import keyring

        return _call_keyring(lambda: keyring.get_password(_SERVICE, name))

    def put(self, name: str, value: str) -> None:
        import keyring

        _call_keyring(lambda: keyring.set_password(_SERVICE, name, value))


def _call_keyring(ask: Callable[[], str | None]) -> str | None:
    from keyring.errors import KeyringError

    try:
        return ask()
    except KeyringError as error:
        said = str(error).strip().rstrip(".") or type(error).__name__
        hint = f"Unlock it, or set {VARIABLE} for a vault that needs none."
        raise StorageFailed(f"The keyring did not answer: {said}.", hint=hint) from None


def _read_key_from_keyring(vault: Path, vault_id: str, sources: VaultKeySources) -> str:
    keyring = sources.keyring()
    key = None if keyring is None else keyring.get(vault_id)
    if key is None:
        raise Refused(
            f"The key of {vault} is not in the keyring of this account: the vault was made by another account or on "
            "another machine.",
            hint="Use it there, or move it away and set the secrets again; grants stay.",
        )
    return key


def _read_key_from_environ(environ: Mapping[str, str]) -> str | None:
    if key := environ.get(VARIABLE):
        return key
    if not (file := environ.get(f"{VARIABLE}_FILE")):
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageFailed(f"The key of the vault can't be read: {error}.", hint=f"Check {VARIABLE}_FILE.") from None


def _get_vault_password(vault: Path, sources: VaultKeySources, *, asks: bool) -> str:
    password = sources.read_environment()
    if password is None and asks:
        password = sources.prompt_password(False)
    if password is None:
        raise Refused(f"{vault} is locked.", hint=f"Set {VARIABLE} to its key, or {VARIABLE}_FILE to a file with it.")
    return password


def _check_password_length(given: str) -> str:
    if len(given) < _SHORTEST_GIVEN:
        hint = "Use a random one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        raise Invalid(f"{VARIABLE} has fewer than {_SHORTEST_GIVEN} characters.", hint=hint)
    return given


def _prompt_new_password(sources: VaultKeySources) -> str:
    typed = sources.prompt_password(True)
    if not typed:
        hint = f"Set {VARIABLE} to a long random text, and keep it: without it nothing in the vault can be read."
        raise Refused("There is no keyring here, and no key for the vault.", hint=hint)
    return typed


# Deriving a key is slow on purpose, and one process may open a vault many times.
@functools.lru_cache(maxsize=4)
def _derive_key_from_password(password: str, salt: str, rounds: int) -> str:
    try:
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    except ModuleNotFoundError:
        raise optional_packages.build_missing_error("The vault", "cryptography") from None
    scrypt = Scrypt(salt=bytes.fromhex(salt), length=32, n=rounds, r=8, p=1)
    return base64.urlsafe_b64encode(scrypt.derive(password.encode())).decode()


def _build_vault_key_from_text(text: str) -> VaultKey:
    try:
        from cryptography.fernet import Fernet
    except ModuleNotFoundError:
        raise optional_packages.build_missing_error("The vault", "cryptography") from None
    return VaultKey(fernet=Fernet(text.encode()))


FILE = "vault.json"
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_LARGEST = 64 * 1024
_NOTHING = (0, 0, 0)
_BACKUP = "Put a backup in its place, or move it away and set the secrets again; grants stay."


def open_vault(home: Path, environ: Mapping[str, str]) -> Vault:
    """Open the vault of a home with the key sources of this process."""
    return Vault(home, build_vault_key_sources(environ))


def build_redactor_with_vault_secrets(home: Path, environ: Mapping[str, str]) -> Redactor:
    """Return a redactor for read-only commands, which knows the values in the environment and in the vault."""
    return Redactor(
        list_values_of_secret_variables(environ), kept=open_vault(home, environ).list_known_values_to_redact
    )


class Vault:
    """Stores secrets in an encrypted file. Names can be read without the key. Thread-safe."""

    def __init__(self, home: Path, sources: VaultKeySources) -> None:
        self._file = PrivateJsonFile(home / FILE, hint=_BACKUP)
        self._sources = sources
        self._lock = threading.RLock()
        self._key: tuple[str, VaultKey] | None = None  # with the id of the vault that it opens
        self._seen = _NOTHING  # stamp of the file whose values are known
        self._known: frozenset[str] = frozenset()

    @contextmanager
    def allow_password_prompt(self, prompt_password: Callable[[bool], str | None]) -> Iterator[None]:
        """Within the block, ask a person for the password; the argument of `prompt_password` says if it is new."""
        before, self._sources = self._sources, replace(self._sources, prompt_password=prompt_password)
        try:
            yield
        finally:
            self._sources = before

    def is_typed_password_needed(self) -> bool:
        """Whether only a typed password can open the vault."""
        kept = self._read_file()
        is_typed = (
            bool(kept)
            and kept["key"]["from"] == VaultKeySourceKind.PASSWORD
            and self._sources.read_environment() is None
        )
        return is_typed and (self._key is None or self._key[0] != kept["id"])

    def unlock(self) -> None:
        """Find the vault's key or, without a vault, a source for a new one. `UserError` if there is none."""
        if kept := self._read_file():
            self._get_cached_or_find_vault_key(kept, may_prompt=True)
        else:
            require_vault_key_source(self._sources)

    def list_secret_names(self) -> tuple[str, ...]:
        """Return the names of the stored secrets, sorted."""
        return tuple(sorted(self._read_file().get("secrets", {})))

    def get(self, name: str) -> str:
        """Return the value of a secret; `NotFound` if there is none."""
        with self._lock:
            kept = self._read_file()
            sealed = kept.get("secrets", {})
            if name not in sealed:
                hint = did_you_mean(name, sealed) or f"Set it: habitus secrets set {name}"
                raise NotFound(f"The vault has no secret '{name}'.", hint=hint)
            value = self._unseal_value(name, sealed[name], self._get_cached_or_find_vault_key(kept, may_prompt=True))
            self.add_value_to_redact(value)
            return value

    def set(self, name: str, value: str) -> bool:
        """Store a value under a name. False if it replaced another value, which is then lost."""
        _check_secret_name_and_value(name, value)
        with self._lock, self._file.edit_under_lock() as kept:
            if kept:
                key = self._get_cached_or_find_vault_key(self._check_format(kept), may_prompt=True)
            else:
                key = self._create_key_for_empty_vault(kept)
            is_new = name not in kept["secrets"]
            # Sealing the name too prevents swapping one secret for another in the file.
            kept["secrets"][name] = key.seal(json.dumps([name, value]))
            self.add_value_to_redact(value)
        return is_new

    def remove(self, name: str) -> None:
        """Delete a secret; `NotFound` if there is none."""
        with self._file.edit_under_lock() as kept:
            sealed = self._check_format(kept).get("secrets", {})
            if sealed.pop(name, None) is None:
                hint = did_you_mean(name, sealed) or "See 'habitus secrets list'."
                raise NotFound(f"The vault has no secret '{name}'.", hint=hint)

    def add_value_to_redact(self, value: str) -> None:
        """Redact this value from now on, wherever it comes from."""
        with self._lock:
            if value not in self._known:
                self._known |= {value}

    def list_known_values_to_redact(self) -> frozenset[str]:
        """Return all values to redact that are known without asking a person.

        Returns the same object while nothing changes. The old value of a changed secret stays known.
        """
        try:
            # This runs before each redacted text, and `Path.stat` is slower.
            found = os.stat(self._file.path)  # noqa: PTH116
        except OSError:
            return self._known
        now = (found.st_ino, found.st_mtime_ns, found.st_size)
        if now != self._seen:
            with self._lock:
                if now != self._seen:  # unless another thread was faster
                    self._known |= self._read_values_readable_without_prompt()
                # Also if the file can't be opened yet: unlocking it resets the stamp.
                self._seen = now
        return self._known

    def _read_values_readable_without_prompt(self) -> frozenset[str]:
        values = set()
        try:
            kept = self._read_file()
            key = self._get_cached_or_find_vault_key(kept, may_prompt=False)
        except UserError:
            # Asking for a secret reports the reason; redaction goes on with the values known so far.
            return frozenset()
        for name, token in kept["secrets"].items():
            try:
                values.add(self._unseal_value(name, token, key))
            except UserError:  # as above
                continue
        return frozenset(values)

    def _unseal_value(self, name: str, token: str, key: VaultKey) -> str:
        inside, value = json.loads(key.unseal(token) or '["", ""]')
        if inside != name:
            hint = f"Run: habitus secrets set {name}"
            raise StorageFailed(f"The secret '{name}' is damaged in {self._file.path}.", hint=hint)
        return str(value)

    def _get_cached_or_find_vault_key(self, kept: Mapping[str, Any], *, may_prompt: bool) -> VaultKey:
        if self._key is None or self._key[0] != kept["id"]:
            try:
                key = find_vault_key(self._file.path, kept["id"], kept["key"], self._sources, may_prompt=may_prompt)
            # The stored key description makes no sense, so the file is damaged.
            except (LookupError, ValueError, TypeError, AttributeError):
                raise self._build_damaged_vault_error() from None
            self._key, self._seen = (kept["id"], key), _NOTHING
        return self._key[1]

    def _create_key_for_empty_vault(self, kept: dict[str, Any]) -> VaultKey:
        vault_id = os.urandom(8).hex()
        key, how = create_vault_key_with_description(vault_id, self._sources)
        kept |= {"format": _FORMAT, "id": vault_id, "key": how, "secrets": {}}
        self._key = (vault_id, key)
        return key

    def _read_file(self) -> dict[str, Any]:
        return self._check_format(self._file.read())

    def _check_format(self, kept: dict[str, Any]) -> dict[str, Any]:
        if kept and kept.get("format") != _FORMAT:
            hint = "Upgrade Habitus, or put a backup in its place. Nothing was changed."
            raise StorageFailed(f"{self._file.path} is not a vault that this Habitus can read.", hint=hint)
        sealed, how = kept.get("secrets", {}), kept.get("key", {})
        is_whole = isinstance(sealed, dict) and all(isinstance(token, str) for token in sealed.values())
        if kept and not (is_whole and isinstance(how, dict) and {"from", "check"} <= how.keys() and kept.get("id")):
            raise self._build_damaged_vault_error()
        return kept

    def _build_damaged_vault_error(self) -> StorageFailed:
        return StorageFailed(f"{self._file.path} is damaged.", hint=_BACKUP)


def _check_secret_name_and_value(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(f"'{name[:64]}' can't name a secret.", hint="Use letters, digits, '_', '-' and '.'.")
    if len(value.strip()) < MIN_SECRET_CHARACTERS:
        raise Invalid(
            f"A value of fewer than {MIN_SECRET_CHARACTERS} characters can't be redacted.",
            hint="Put values that are not secret into habitus.toml, under [skill_config].",
        )
    if len(value) > _LARGEST or "\0" in value:
        raise Invalid(
            f"The value of '{name}' is not a text of up to {_LARGEST // 1024} KiB.", hint="Nothing was changed."
        )
