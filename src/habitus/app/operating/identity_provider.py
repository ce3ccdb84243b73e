"""Sign-in with OpenID Connect: a provider says who a person is, and their groups decide the role."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from habitus import optional_packages
from habitus.access import Access
from habitus.errors import Invalid, Refused, StorageFailed, UserError
from habitus.settings import Settings

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import OAuth2Client
    from cryptography.fernet import Fernet

CALLBACK_PATH = "/oidc/callback"
# How long a person may take at the provider.
ATTEMPT_SECONDS = 600
_TIMEOUT_S = 5.0
# Never a symmetric algorithm, whose key would be the client's secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_PROVIDER_HINT = "Retry; if it stays, an admin compares oidc.issuer (HABITUS_OIDC_ISSUER) and the other oidc settings."


class ProviderUnavailable(UserError):
    """The provider doesn't answer, or not as one; this says nothing about an account."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderAccount:
    """A person as a provider describes them; with `tokens`, which are sealed, it can be asked again."""

    subject: str
    name: str
    access: Access
    tokens: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInRedirect:
    """A sign-in that begins: the provider's address, and what the browser keeps until it comes back."""

    url: str
    sealed: str


def open_identity_provider(settings: Settings) -> IdentityProvider | None:
    """Return the provider of the settings, or None; raise if it is not configured completely."""
    if not settings.oidc.issuer:
        return None
    if not optional_packages.is_installed("authlib"):
        raise optional_packages.build_missing_error("OpenID Connect", "authlib")
    if not settings.web.address:
        raise Invalid("OpenID Connect needs web.address.", hint="Set it to the address under which people come here.")
    file = settings.home / settings.oidc.client_secret_file.expanduser()
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        hint = "Write the secret that the provider gave this client into it."
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", hint=hint) from None
    return IdentityProvider(settings, secret)


def find_sign_in_problems(settings: Settings, provider: IdentityProvider) -> Iterator[str]:
    """Yield what keeps people from signing in, or endangers the secret, a line each. Asks the provider."""
    oidc = settings.oidc
    if not (oidc.admins or oidc.reviewers or oidc.viewers):
        yield "Nobody can sign in with OpenID Connect: set oidc.admins, oidc.reviewers or oidc.viewers to groups."
    file = settings.home / oidc.client_secret_file.expanduser()
    # A file of another system has no such mode.
    if os.name == "posix" and file.stat().st_mode & stat.S_IROTH:
        yield f"Every account of this machine can read {file}: chmod 600 {file}"
    try:
        provider.metadata  # noqa: B018
    except ProviderUnavailable as error:
        yield f"{error.message} {error.hint}"


class IdentityProvider:
    """Signs people in at the provider, and asks it whether they may still come. Waits for its answers."""

    def __init__(self, settings: Settings, secret: str) -> None:
        self._settings = settings.oidc
        self._page = settings.web.address
        self._secret = secret

    def begin_sign_in(self, path: str) -> SignInRedirect:
        """Return where to send the browser, which returns to `path` of this server in the end."""
        from authlib.common.security import generate_token

        verifier, nonce = generate_token(64), generate_token()
        with self._open_oauth_client() as client:
            endpoint = self.metadata["authorization_endpoint"]
            url, state = client.create_authorization_url(endpoint, code_verifier=verifier, nonce=nonce)
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "path": path}
        return SignInRedirect(url=url, sealed=self._encrypt_values(kept))

    def finish_sign_in(self, sealed: str, code: str, state: str) -> tuple[ProviderAccount, str]:
        """Return the person whom the provider sent back with this code, and the path they came for."""
        kept = self._decrypt_values(sealed, ttl=ATTEMPT_SECONDS)
        if not state or not hmac.compare_digest(kept.get("state", "").encode(), state.encode("utf-8", "replace")):
            raise Refused("This sign-in has expired, or began in another browser.", hint="Sign in again.")
        with self._open_oauth_client() as client:
            endpoint = self.metadata["token_endpoint"]
            tokens = client.fetch_token(endpoint, code=code, code_verifier=kept["verifier"])
            claims = self._verify_id_token_and_read_claims(tokens.get("id_token", ""), kept["nonce"])
            return self._build_provider_account(claims, tokens), kept["path"]

    def fetch_account(self, sealed: str) -> ProviderAccount:
        """Return a person as the provider knows them now; raise `Refused` if it no longer lets them in."""
        tokens = self._decrypt_values(sealed)
        with self._open_oauth_client() as client:
            if refresh_token := tokens.get("refresh_token"):
                tokens |= client.refresh_token(self.metadata["token_endpoint"], refresh_token=refresh_token)
            return self._build_provider_account({}, tokens)

    def build_sign_out_url(self, sealed: str) -> str:
        """Return the address that ends a person's session at the provider; this server's if there is none."""
        from authlib.common.urls import add_params_to_uri

        if not (endpoint := self.metadata.get("end_session_endpoint")):
            return "/"
        given = {"client_id": self._settings.client_id, "post_logout_redirect_uri": f"{self._page}/"}
        if hint := self._decrypt_values(sealed).get("id_token"):
            given["id_token_hint"] = hint
        return str(add_params_to_uri(endpoint, given.items()))

    @functools.cached_property
    def metadata(self) -> Mapping[str, Any]:
        """The provider's discovery document."""
        issuer = self._settings.issuer.rstrip("/")
        with _translate_provider_errors():
            found = _fetch_provider_json(f"{issuer}/.well-known/openid-configuration")
        if str(found.get("issuer")).rstrip("/") != issuer:
            raise ProviderUnavailable(
                f"The provider calls itself {found.get('issuer')}, not {issuer}.", hint="Correct oidc.issuer."
            )
        return found

    def _build_provider_account(self, claims: dict[str, Any], tokens: Mapping[str, Any]) -> ProviderAccount:
        if endpoint := self.metadata.get("userinfo_endpoint"):
            said = _fetch_provider_json(endpoint, tokens.get("access_token", ""))
            if said.get("sub") != claims.get("sub", said.get("sub")):
                raise Refused("The provider answered about somebody else.", hint="Sign in again.")
            claims = claims | said
        return ProviderAccount(
            subject=f"{self.metadata['issuer']} {claims['sub']}",
            name=self._choose_account_name(claims),
            access=self._choose_highest_group_access(claims),
            tokens=self._encrypt_values(
                {key: tokens.get(key) for key in ("refresh_token", "access_token", "id_token")}
            ),
        )

    def _verify_id_token_and_read_claims(self, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token, whose signature, issuer, audience, times and nonce are right."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.jwk import KeySet

        keys: Any = _fetch_provider_json(self.metadata["jwks_uri"])
        found = jwt.decode(token, KeySet.import_key_set(keys), algorithms=list(_ALGORITHMS))
        own = self._settings.client_id
        needed: Any = {"iss": {"value": self.metadata["issuer"]}, "aud": {"value": own}}
        claims = CodeIDToken(found.claims, found.header, options=needed, params={"nonce": nonce, "client_id": own})
        claims.validate(leeway=60)
        return dict(claims)

    def _choose_account_name(self, claims: Mapping[str, Any]) -> str:
        said = str(claims.get(self._settings.name_claim) or "")
        return re.sub(r"[^a-z0-9_-]+", "-", said.partition("@")[0].lower()).strip("-")[:32]

    def _choose_highest_group_access(self, claims: Mapping[str, Any]) -> Access:
        """Return the highest access that one of the person's groups has; raise `Refused` if none has any."""
        said = claims.get(self._settings.groups_claim) or ()
        groups = {"*", *([said] if isinstance(said, str) else map(str, said))}
        named = {
            Access.ADMIN: self._settings.admins,
            Access.REVIEWER: self._settings.reviewers,
            Access.VIEWER: self._settings.viewers,
        }
        for access, those in named.items():
            if not groups.isdisjoint(those):
                return access
        raise Refused("You are in no group that may sign in here.", hint="Ask an admin, who sets oidc.viewers.")

    @contextmanager
    def _open_oauth_client(self) -> Iterator[OAuth2Client]:
        from authlib.integrations.httpx_client import OAuth2Client

        ways = self.metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        way = "client_secret_basic" if "client_secret_basic" in ways else "client_secret_post"
        with (
            _translate_provider_errors(),
            OAuth2Client(
                client_id=self._settings.client_id,
                client_secret=self._secret,
                token_endpoint_auth_method=way,
                scope=" ".join(self._settings.scopes),
                redirect_uri=f"{self._page}{CALLBACK_PATH}",
                code_challenge_method="S256",
                timeout=_TIMEOUT_S,
            ) as client,
        ):
            yield client

    def _encrypt_values(self, values: Mapping[str, Any]) -> str:
        """Encrypt values for the browser or the database; every replica has the secret that opens them."""
        return self._cipher.encrypt(json.dumps(values).encode()).decode()

    def _decrypt_values(self, sealed: str, ttl: int | None = None) -> dict[str, Any]:
        """Return sealed values; none if they are forged, too old, or of another secret."""
        from cryptography.fernet import InvalidToken

        try:
            values: dict[str, Any] = json.loads(self._cipher.decrypt(sealed.encode(), ttl=ttl))
        except InvalidToken:
            return {}
        return values

    @functools.cached_property
    def _cipher(self) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"habitus sign-in {self._secret}".encode()).digest()))


def _fetch_provider_json(url: str, token: str = "") -> dict[str, Any]:
    """Return the object at an address of the provider; raise `Refused` if it doesn't accept the access token."""
    import httpx2

    response = httpx2.get(url, headers={"Authorization": f"Bearer {token}"} if token else {}, timeout=_TIMEOUT_S)
    # Providers differ in how they refuse a token; 408 and 429 only ask for patience.
    if token and response.is_client_error and response.status_code not in (408, 429):
        raise Refused("The provider no longer knows this sign-in.", hint="Sign in again.")
    found = response.raise_for_status().json()
    if not isinstance(found, dict):
        raise ValueError(f"{url} has no object")
    return found


@contextmanager
def _translate_provider_errors() -> Iterator[None]:
    """Raise `Refused` if the provider rejects a person, and `ProviderUnavailable` if it fails."""
    import httpx2
    from authlib.integrations.base_client import OAuthError
    from joserfc.errors import JoseError

    try:
        yield
    except OAuthError as error:
        # Any other says that this client is not configured as the provider expects.
        if error.error == "invalid_grant":
            raise Refused("The provider no longer knows this sign-in.", hint="Sign in again.") from None
        raise ProviderUnavailable(f"The provider answered: {error}.", hint=_PROVIDER_HINT) from None
    except JoseError as error:
        raise Refused(f"The provider's ID token is not valid: {error}.", hint=_PROVIDER_HINT) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, KeyError, ValueError) as error:
        raise ProviderUnavailable(f"The provider doesn't answer: {error}.", hint=_PROVIDER_HINT) from None
