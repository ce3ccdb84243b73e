"""The Settings object, loaded once from `HABITUS_*` variables and `habitus.toml`, then passed down.

The environment wins over the file. Nothing here reads the process environment itself: `app` passes it in.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from habitus.errors import Invalid, StorageFailed, did_you_mean
from habitus.operating_system import get_account_name


def _parse_name_list(value: object) -> object:
    """Accept a list of names as `a, b` (in a variable) or as a list (in the file)."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_parse_name_list)]


class _SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class UserSettings(_SettingsSection):
    """The settings of one user."""

    admin: bool = Field(default=False, description="May use skills that are for admins only.")
    disabled_skills: Names = Field(default=(), description="Skills disabled for this user.")


class ReviewSettings(_SettingsSection):
    """How changes are reviewed."""

    auto: bool = Field(default=False, description="Apply harmless text changes by agents at once; others need review.")
    somebody_else: bool = Field(
        default=False, description="In a team: people can't approve what they or their own agent proposed."
    )


class ExperimentalSettings(_SettingsSection):
    """Experimental features."""

    features: Names = Field(default=(), description="Enabled features and experimental skills.")


class RetentionSettings(_SettingsSection):
    """Retention periods and caps."""

    turn_days: int = Field(
        default=30, ge=1, description="Days that turns, files of their scratchpads and jobs are kept."
    )
    lessons: int = Field(default=50, ge=1, description="Maximum number of lessons per scope (a user, a project, …).")
    lesson_days: int = Field(default=180, ge=1, description="Days without being shown until a lesson may be archived.")
    degraded_tool_days: int = Field(default=7, gt=0, description="Days after which a degraded tool is retired.")
    degraded_tool_curator_runs: int = Field(
        default=3, gt=0, description="Runs of 'habitus learn curate' after which it is retired, too."
    )


class EvidenceSettings(_SettingsSection):
    """How evidence is collected."""

    withhold: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="The share of offers (skills, lessons, tools) withheld at random to measure what helps; 0 is off.",
    )
    compare_versions: float = Field(
        default=0.2,
        ge=0,
        le=0.5,
        description="The share of conversations that get the version before an approved improvement, to compare them; "
        "0 is off.",
    )


DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_AT = r"( at (?P<hour>[01]?\d|2[0-3])(:(?P<minute>[0-5]\d))?)?"
SCHEDULE_PATTERN = rf"off|hourly|(daily|weekly( on (?P<day>{'|'.join(DAYS)}))?){_AT}"


def _validate_schedule(text: str) -> str:
    """Validate and normalize a schedule such as 'daily at 3:30'."""
    text = " ".join(text.lower().split())
    if re.fullmatch(SCHEDULE_PATTERN, text) is None:
        raise ValueError("write off, hourly, 'daily at 3:30' or 'weekly on sunday at 3'")
    return text


_ScheduleText = Annotated[str, AfterValidator(_validate_schedule)]


class ScheduleSettings(_SettingsSection):
    """Scheduled work, run by a worker or 'habitus up'."""

    curate: _ScheduleText = Field(default="daily at 3", description="When lessons and tools are curated.")
    learn: _ScheduleText = Field(
        default="hourly", description="When sessions of other agents, recorded by hooks, are learned from."
    )
    mine: _ScheduleText = Field(
        default="daily at 3",
        description="When procedures and tasks are mined; off also stops mining after sessions recorded by hooks.",
    )
    verify: _ScheduleText = Field(default="off", description="When unverified lessons are tested; calls a model.")
    dream: _ScheduleText = Field(default="off", description="When self-play runs; calls a model.")
    improve: _ScheduleText = Field(default="off", description="When skills with tasks are improved; calls a model.")
    timezone: str = Field(
        default="", description="Time zone of the schedules, such as Europe/Berlin; default is this machine's."
    )


class JobsSettings(_SettingsSection):
    """Limits of background jobs."""

    per_model: int = Field(default=0, ge=0, description="Concurrent jobs per model, on all hosts; 0 is unlimited.")
    per_user: int = Field(default=0, ge=0, description="Concurrent jobs per user, on all hosts; 0 is unlimited.")


class SandboxSettings(_SettingsSection):
    """Where code runs."""

    runtime: str = Field(
        default="local",
        pattern=r"^(local|ssh://\S+)$",
        description="Where scratchpads run: local, or ssh://user@host:port/folder.",
    )


def _validate_networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        ipaddress.ip_network(one)
    return value


class WebSettings(_SettingsSection):
    """The web server."""

    proxy_header: str = Field(
        default="", description="The header in which a proxy says who has signed in; see proxies."
    )
    proxies: Annotated[Names, AfterValidator(_validate_networks)] = Field(
        default=(), description="Addresses or networks whose proxy_header is believed, such as 10.0.0.0/8."
    )
    metrics: bool = Field(
        default=False, description="`habitus up` serves /metrics for Prometheus, with a token of its own."
    )
    address: str = Field(
        default="",
        pattern=r"^(https?://[^/\s]+)?$",
        description="The address under which people reach `habitus up`, such as https://habitus.example.org.",
    )


class OidcSettings(_SettingsSection):
    """Sign-in with OpenID Connect."""

    issuer: str = Field(
        default="",
        pattern=r"^(https://\S+|http://(localhost|127\.0\.0\.1)[:/]\S*)?$",
        description="The address of the provider, as its discovery document states it; empty is off.",
    )
    client_id: str = Field(default="habitus", description="What the provider calls this application.")
    client_secret_file: Path = Field(
        default=Path("oidc-secret"), description="The file with the client's secret, in the home unless absolute."
    )
    scopes: Names = Field(default=("openid", "profile", "email"), description="What the provider is asked for.")
    name_claim: str = Field(
        default="preferred_username", description="The claim that gives a new account its name; what follows @ is cut."
    )
    groups_claim: str = Field(default="groups", description="The claim that lists a person's groups.")
    admins: Names = Field(default=(), description="Groups whose members are admins; * is everyone at the provider.")
    reviewers: Names = Field(default=(), description="Groups whose members are reviewers.")
    viewers: Names = Field(default=(), description="Groups whose members are viewers; without a group, nobody gets in.")


class SearchEncoderKind(StrEnum):
    """The models that turn texts into vectors for search."""

    # Bundled, and takes no time.
    STATIC = "static"
    # Understands paraphrases better, at about 20 ms per request.
    MINILM = "minilm"


class SearchSettings(_SettingsSection):
    """How skills are searched."""

    encoder: SearchEncoderKind = Field(
        default=SearchEncoderKind.STATIC, description="static, or minilm: finds paraphrases better, slower, 90 MB."
    )
    server_above: int = Field(
        default=20_000,
        ge=0,
        description="With more skills than this, a shared PostgreSQL searches them instead of each host.",
    )


class MemoryLearningMode(StrEnum):
    """How memory treats automatic learning."""

    # Lessons are stored immediately.
    AUTOPILOT = "autopilot"
    # A person reviews uncertain lessons.
    COPILOT = "copilot"
    # Nothing is learned, and no model is called for learning.
    OFF = "off"


class DetectorActivityMode(StrEnum):
    """The activity of the detectors."""

    OFF = "off"
    # Lessons at the end of a turn.
    PASSIVE = "passive"
    # Also nudges while the turn runs.
    ACTIVE = "active"


class Settings(_SettingsSection):
    """All settings; field names are the keys of habitus.toml."""

    home: Path = Field(description="Home directory of Habitus (HABITUS_HOME).")
    cwd: Path = Field(description="The directory Habitus was started in; project layers are found from here.")
    user_home: Path = Field(description="The person's home directory, where other agents keep their folders.")
    database: str | None = Field(default=None, description="SQL address; without one, habitus.db in the home.")
    workspace: str = Field(
        default="",
        pattern=r"^([a-z0-9-]{1,40})?$",
        description="A part of a PostgreSQL database that shares nothing with the others; its schema has this name.",
    )
    database_connections: int | None = Field(
        default=None,
        ge=2,
        le=100,
        description="How many a process may have to a shared database; 2, and 8 for 'up' and 'mcp --http'. "
        "One that does jobs has one more for its worker.",
    )
    user: str = Field(default="local", description="The user; default is the account of this process.")
    is_claimed: bool = Field(default=False, description="Whether the user's name is not the account's, only claimed.")
    owner: str = Field(default="", description="Who owns the home, if the user signed in as somebody else.")
    operator_skills: Path | None = Field(default=None, description="A directory of skills an operator provides.")
    git_host: str = Field(default="", description="Host of OWNER/REPO; default is GitHub.")
    bot_name: str = Field(default="Habitus", description="What {BOT_NAME} becomes in skills.")
    disabled_skills: Names = Field(default=(), description="Skills disabled for all users.")
    skill_config: dict[str, Any] = Field(
        default_factory=dict, description="What skills' command lines ask of the settings, by name; no secrets."
    )
    layers: Names = Field(default=(), description="Offer only skills of these layers; empty means all.")
    users: dict[str, UserSettings] = Field(default_factory=dict, description="Known users and their rights.")
    experimental: ExperimentalSettings = Field(default_factory=ExperimentalSettings)
    review: ReviewSettings = Field(default_factory=ReviewSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    evidence: EvidenceSettings = Field(default_factory=EvidenceSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    jobs: JobsSettings = Field(default_factory=JobsSettings)
    sandbox: SandboxSettings = Field(default_factory=SandboxSettings)
    search: SearchSettings = Field(default_factory=SearchSettings)
    web: WebSettings = Field(default_factory=WebSettings)
    oidc: OidcSettings = Field(default_factory=OidcSettings)
    context_tokens: int = Field(default=200_000, gt=0, description="The model's context.")
    menu_tokens: int = Field(
        default=1_000, ge=0, le=4_000, description="Tokens of the skill menu, within 2 % of the context."
    )
    menu_pinned: Names = Field(default=(), description="Skills that the menu of a large library always lists.")
    model: str = Field(default="", description="The model, as provider:model.")
    cheap_model: str = Field(default="", description="Model for drafts and lessons; default is the main model.")
    base_url: str = Field(default="", description="Address of an OpenAI-compatible server, for openai:… models.")
    model_silence: float = Field(default=300.0, gt=0, description="Seconds without output before a model call fails.")
    model_total: float = Field(default=1800.0, gt=0, description="Maximum seconds per model call.")
    memory: MemoryLearningMode = Field(
        default=MemoryLearningMode.AUTOPILOT, description="autopilot, copilot (asks) or off."
    )
    acc_mode: DetectorActivityMode = Field(
        default=DetectorActivityMode.PASSIVE, description="off, passive (lessons) or active (nudges too)."
    )
    learning_tokens: int = Field(default=200_000, ge=0, description="Tokens a day that learning may spend on models.")
    success_cents: float = Field(
        default=0.0,
        ge=0,
        description="Cents that one more success is worth: scheduled improvement leaves out what costs more than it is "
        "expected to gain; 0 spends the daily tokens.",
    )
    reliable: float = Field(
        default=0.7, ge=0, le=1, description="Reliability above which a tool or recipe is preferred to steps."
    )
    install_missing: bool = Field(default=False, description="Install a missing module into a scratchpad unasked.")
    allow_weaker_sandbox: bool = Field(
        default=False, description="Run tools and cells even where files, network or limits are not protected."
    )
    look_every: float = Field(default=2.0, ge=0, description="Seconds between two checks of the skill directories.")
    durable: bool = Field(default=True, description="Wait for the disk, so that a power cut loses nothing.")
    notify_url: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="Webhook that gets a JSON with names, once, when a new item is pending review.",
    )
    editor: str = Field(default="", description="Command that edits a file; else VISUAL, EDITOR, vi.")
    warnings: tuple[str, ...] = Field(default=(), description="Warnings about the settings.")

    def for_server(self) -> Settings:
        """Return the settings for a server process, with more database connections."""
        return self if self.database_connections else self.model_copy(update={"database_connections": 8})

    @property
    def author_name(self) -> str:
        """The user's name as it appears on their changes."""
        return f"{self.user}{CLAIMED_SUFFIX}" if self.is_claimed else self.user

    @property
    def is_admin(self) -> bool:
        """True for admins; without a users section, the local user is one."""
        if not self.users:
            return True
        known = self.users.get(self.user)
        return known is not None and known.admin

    def as_user(self, name: str, *, is_admin: bool | None = None) -> Settings:
        """Return the settings of another user: signed in with a role, or only claimed without one."""
        changed: dict[str, Any] = {"user": name, "is_claimed": is_admin is None, "owner": ""}
        if is_admin is not None:
            changed["owner"] = self.owner or self.user
            theirs = self.users.get(name, UserSettings()).model_copy(update={"admin": is_admin})
            changed["users"] = {**self.users, name: theirs}
        return self.model_copy(update=changed)

    @property
    def is_guest(self) -> bool:
        """Whether the user signed in, and does not own the home."""
        return bool(self.owner)

    @property
    def is_guest_admin(self) -> bool | None:
        """Whether a guest, who signed in and does not own the home, is an admin; None for anybody else."""
        return self.is_admin if self.is_guest else None

    @property
    def disabled_skill_names(self) -> frozenset[str]:
        """The skills that are disabled for this user or for everyone."""
        mine = self.users.get(self.user, UserSettings()).disabled_skills
        return frozenset((*self.disabled_skills, *mine))


SETTINGS_FILE = "habitus.toml"
# Follows a name that is not the account's.
CLAIMED_SUFFIX = " (claimed)"
_NOT_IN_FILE = {"home", "cwd", "user_home", "warnings", "is_claimed", "owner"}
# Sections whose keys the user chooses.
_FREE_SECTIONS = {"users", "skill_config"}


def list_setting_keys() -> tuple[str, ...]:
    """Return all setting keys, as `section.key` inside a section, without the free sections."""
    return tuple(
        key
        for name in Settings.model_fields
        if name not in _NOT_IN_FILE | _FREE_SECTIONS
        for key in ([f"{name}.{inner}" for inner in _SECTIONS[name].model_fields] if name in _SECTIONS else [name])
    )


def get_setting_environment_variable(key: str) -> str:
    """Return the environment variable that overrides a setting."""
    return f"HABITUS_{key.replace('.', '_')}".upper()


def describe_setting_and_choices(key: str) -> tuple[str, tuple[str, ...]]:
    """Return the description of a setting, and its possible values if they are few."""
    section, _, name = key.rpartition(".")
    field = (_SECTIONS[section] if section else Settings).model_fields[name]
    kind = field.annotation
    if kind is bool:
        return field.description or "", ("true", "false")
    choices = tuple(kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else ()
    return field.description or "", choices


def parse_setting_value(key: str, text: str) -> Any:
    """Return the value that a text gives to a setting; raise Invalid if it is not allowed."""
    section, _, name = key.rpartition(".")
    given: dict[str, Any] = {section: {name: text}} if section else {name: text}
    places = {"home": Path(), "cwd": Path(), "user_home": Path()}
    try:
        made = Settings.model_validate(places | given)
    except ValidationError as error:
        raise Invalid(_describe_first_error(error), hint="See docs/reference/settings.md.") from None
    return getattr(getattr(made, section) if section else made, name)


def load_settings(environ: Mapping[str, str], cwd: Path, home: Path | None = None, *, account: str = "") -> Settings:
    """Load the settings of a process; `home` wins over HABITUS_HOME, `account` over USER."""
    user_home, where = _get_user_home(environ), resolve_home(environ, cwd, home)
    from_file, warnings = _read_settings_file(where / SETTINGS_FILE)
    warnings += _build_unknown_variables_warning(environ)
    values = _apply_environment(from_file, environ)
    account = account or environ.get("USER") or environ.get("LOGNAME") or get_account_name()
    values.setdefault("user", account)
    values.setdefault("editor", environ.get("VISUAL") or environ.get("EDITOR") or "vi")
    values |= {"home": where, "cwd": cwd, "user_home": user_home, "warnings": tuple(warnings)}
    values["is_claimed"] = values["user"] != account
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise Invalid(
            _describe_first_error(error), hint=f"Fix it in {where / SETTINGS_FILE} or the environment."
        ) from None


def resolve_home(environ: Mapping[str, str], cwd: Path, home: Path | None = None) -> Path:
    """Return the home directory of Habitus; `home` wins over HABITUS_HOME."""
    user_home = _get_user_home(environ)
    return cwd / _expand_home(home or Path(environ.get("HABITUS_HOME") or user_home / ".habitus"), user_home)


def _get_user_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _expand_home(path: Path, user_home: Path) -> Path:
    """Expand `~` to the home of the user the settings are for, who may not own this process."""
    if path.parts[:1] == ("~",):
        return user_home.joinpath(*path.parts[1:])
    try:
        return path.expanduser()
    except RuntimeError:
        raise Invalid(f"There is no user for '{path}'.", hint="Write the path out.") from None


def _read_settings_file(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        return {}, []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}.", hint="Correct that line, or move the file away.") from None
    except OSError as error:
        hint = "Set HABITUS_HOME to a directory." if isinstance(error, NotADirectoryError) else "Check its permissions."
        raise StorageFailed(f"Can't read {path}: {error.strerror}.", hint=hint) from None
    known = set(Settings.model_fields) - _NOT_IN_FILE
    warnings = _list_unknown_key_warnings(path.name, "", values, known)
    for section in (key for key in values if key in _SECTIONS):
        warnings += _list_unknown_key_warnings(
            path.name, f"[{section}] ", values[section], set(_SECTIONS[section].model_fields)
        )
    users = values.get("users")
    for name, user in users.items() if isinstance(users, dict) else ():
        warnings += _list_unknown_key_warnings(path.name, f"[users.{name}] ", user, set(UserSettings.model_fields))
    return {key: value for key, value in values.items() if key in known}, warnings


_SECTIONS: Mapping[str, type[_SettingsSection]] = {
    key: field.annotation
    for key, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, _SettingsSection)
}


def _list_unknown_key_warnings(file: str, section: str, values: object, known: set[str]) -> list[str]:
    return [
        f"{file}: {section}unknown key '{key}' is ignored. {did_you_mean(key, known)}".strip()
        for key in (values if isinstance(values, dict) else ())
        if key not in known
    ]


# Read by other parts than the settings.
_OTHER_VARIABLES = frozenset(
    f"HABITUS_{name}" for name in ("HOME", "DEBUG", "LOG", "VAULT_KEY", "VAULT_KEY_FILE", "ONLY_FIELDS", "BENCH_DATA")
)


def _build_unknown_variables_warning(environ: Mapping[str, str]) -> list[str]:
    """Return one warning that names all unknown variables with our prefix; empty if there are none."""
    known = {get_setting_environment_variable(key) for key in list_setting_keys()} | _OTHER_VARIABLES
    unknown = sorted(name for name in environ if name.startswith("HABITUS_") and name not in known)
    if not unknown:
        return []
    are = "is an unknown variable and is" if len(unknown) == 1 else "are unknown variables and are"
    near = dict.fromkeys(did_you_mean(name, known) for name in unknown)
    return [" ".join(filter(None, [f"{', '.join(unknown)} {are} ignored.", *near]))]


def _apply_environment(from_file: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Apply the variables `HABITUS_KEY`, and `HABITUS_SECTION_KEY` inside a section."""
    values = dict(from_file)
    for key in Settings.model_fields.keys() - _NOT_IN_FILE - _FREE_SECTIONS:
        if key not in _SECTIONS:
            values |= _read_variables(environ, "", [key])
        elif isinstance(values.get(key, {}), dict):
            values[key] = values.get(key, {}) | _read_variables(environ, f"{key}_", _SECTIONS[key].model_fields)
    return values


def _read_variables(environ: Mapping[str, str], prefix: str, names: Iterable[str]) -> dict[str, str]:
    found = {name: environ.get(f"HABITUS_{prefix}{name}".upper(), "") for name in names}
    return {name: value for name, value in found.items() if value}


def _describe_first_error(error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    return f"Setting '{key}' can't be {problem['input']!r}: {problem['msg'].lower().removeprefix('value error, ')}."
