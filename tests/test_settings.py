"""Settings: where they come from, which one wins, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from habitus import settings
from habitus.errors import Invalid, StorageFailed
from habitus.settings import ExperimentalSettings, RetentionSettings, ReviewSettings, Settings, UserSettings

ENVIRON = {"HOME": "/home/ann", "USER": "ann"}
CWD = Path("/work")


def _load(home: Path, toml: str = "", **environ: str) -> Settings:
    home.mkdir(exist_ok=True)
    (home / "habitus.toml").write_text(toml)
    return settings.load_settings({**ENVIRON, "HABITUS_HOME": str(home), **environ}, CWD)


def test_without_a_file_and_variables_there_are_defaults() -> None:
    assert settings.load_settings(ENVIRON, CWD) == Settings(
        home=Path("/home/ann/.habitus"), cwd=CWD, user_home=Path("/home/ann"), user="ann", editor="vi"
    )


def test_the_home_is_the_option_then_the_variable_then_the_persons(tmp_path: Path) -> None:
    environ = {**ENVIRON, "HABITUS_HOME": str(tmp_path / "variable")}
    assert settings.load_settings(environ, CWD, tmp_path / "option").home == tmp_path / "option"
    assert settings.load_settings(environ, CWD).home == tmp_path / "variable"
    assert settings.load_settings({**ENVIRON, "HABITUS_HOME": ""}, CWD).home == Path("/home/ann/.habitus")


def test_a_relative_home_lies_in_the_working_directory() -> None:
    assert settings.load_settings({**ENVIRON, "HABITUS_HOME": "here"}, CWD).home == CWD / "here"


def test_a_tilde_is_the_person_who_asks() -> None:
    assert settings.load_settings({**ENVIRON, "HABITUS_HOME": "~/mine"}, CWD).home == Path("/home/ann/mine")


def test_a_tilde_of_nobody_is_said() -> None:
    with pytest.raises(Invalid, match="~nobody-here"):
        settings.load_settings({**ENVIRON, "HABITUS_HOME": "~nobody-here/x"}, CWD)


def test_every_key_of_the_file_is_read(home: Path) -> None:
    found = _load(
        home,
        """
        database = "postgresql://db/habitus"
        user = "bea"
        operator_skills = "/srv/skills"
        bot_name = "Nora"
        disabled_skills = ["a", "b"]
        look_every = 0.5
        editor = "code --wait"
        [users.bea]
        admin = true
        disabled_skills = "c, d"
        [experimental]
        features = ["skill_x"]
        [review]
        auto = true
        """,
    )
    assert found == Settings(
        home=home,
        cwd=CWD,
        user_home=Path("/home/ann"),
        database="postgresql://db/habitus",
        user="bea",
        is_claimed=True,
        operator_skills=Path("/srv/skills"),
        bot_name="Nora",
        disabled_skills=("a", "b"),
        look_every=0.5,
        editor="code --wait",
        users={"bea": UserSettings(admin=True, disabled_skills=("c", "d"))},
        experimental=ExperimentalSettings(features=("skill_x",)),
        review=ReviewSettings(auto=True),
    )


def test_a_variable_wins_over_the_file(home: Path) -> None:
    toml = 'bot_name = "File"\ndisabled_skills = ["a"]\neditor = "ed"'
    found = _load(home, toml, HABITUS_BOT_NAME="Variable", HABITUS_DISABLED_SKILLS=" x , y,,", VISUAL="nano")
    assert (found.bot_name, found.disabled_skills, found.editor) == ("Variable", ("x", "y"), "ed")


@pytest.mark.parametrize(
    ("variables", "editor"),
    [
        ({"VISUAL": "code -w", "EDITOR": "nano"}, "code -w"),
        ({"EDITOR": "nano"}, "nano"),
        ({"HABITUS_EDITOR": "ed", "VISUAL": "code"}, "ed"),
        ({}, "vi"),
    ],
)
def test_the_editor_is_the_one_people_set_for_everything(variables: dict[str, str], editor: str) -> None:
    assert settings.load_settings({**ENVIRON, **variables}, CWD).editor == editor


def test_what_has_a_section_is_set_by_variables_too(home: Path) -> None:
    toml = "[retention]\nlessons = 10\nlesson_days = 3\n[review]\nauto = true"
    found = _load(home, toml, HABITUS_RETENTION_LESSONS="12", HABITUS_RETENTION_TURN_DAYS="7", HABITUS_REVIEW_AUTO="0")
    assert found.retention == RetentionSettings(lessons=12, lesson_days=3, turn_days=7)
    assert found.review == ReviewSettings(auto=False)
    with pytest.raises(Invalid, match=r"Setting 'retention\.lessons' can't be 'few'"):
        _load(home, "", HABITUS_RETENTION_LESSONS="few")
    with pytest.raises(Invalid, match="Setting 'retention' can't be 3"):
        _load(home, "retention = 3", HABITUS_RETENTION_LESSONS="4")


def test_an_unknown_key_is_said_with_the_nearest_known_one(home: Path) -> None:
    found = _load(home, 'disabled_skils = ["a"]\nhome = "/elsewhere"\nzzz = 1')
    assert found.home == home
    assert found.warnings == (
        "habitus.toml: unknown key 'disabled_skils' is ignored. Did you mean 'disabled_skills'?",
        "habitus.toml: unknown key 'home' is ignored.",
        "habitus.toml: unknown key 'zzz' is ignored.",
    )


def test_an_unknown_key_of_a_section_is_said_too(home: Path) -> None:
    found = _load(
        home, "[review]\nauot = true\n[experimental]\nfeature = ['x']\n[users.ada]\nadmn = true\nadmin = true"
    )
    assert found.warnings == (
        "habitus.toml: [review] unknown key 'auot' is ignored. Did you mean 'auto'?",
        "habitus.toml: [experimental] unknown key 'feature' is ignored. Did you mean 'features'?",
        "habitus.toml: [users.ada] unknown key 'admn' is ignored. Did you mean 'admin'?",
    )


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("look_every = 'often'", "Setting 'look_every' can't be 'often'"),
        ("look_every = -1", "Setting 'look_every' can't be -1"),
        ("disabled_skills = 5", "Setting 'disabled_skills' can't be 5"),
        ("[users.ann]\nadmin = 'perhaps'", "Setting 'users.ann.admin' can't be 'perhaps'"),
        ("users = 3", "Setting 'users' can't be 3"),
        ("broken =", "is not valid TOML"),
        ("a = 1\na = 2", "is not valid TOML"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_it(home: Path, toml: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        _load(home, toml)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_file_that_is_not_text_is_said(home: Path) -> None:
    (home / "habitus.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid, match="is not valid TOML"):
        settings.load_settings({**ENVIRON, "HABITUS_HOME": str(home)}, CWD)


def test_a_directory_in_its_place_is_said(home: Path) -> None:
    (home / "habitus.toml").mkdir(parents=True)
    with pytest.raises(StorageFailed, match="Can't read"):
        settings.load_settings({**ENVIRON, "HABITUS_HOME": str(home)}, CWD)


@pytest.mark.req("SK-15")
def test_without_users_the_one_local_user_is_admin(home: Path) -> None:
    assert _load(home).is_admin
    users = "[users.ann]\n[users.bea]\nadmin = true\n"
    assert not _load(home, users).is_admin
    assert _load(home, users, HABITUS_USER="bea").is_admin
    assert not _load(home, users, HABITUS_USER="stranger").is_admin


@pytest.mark.req("SK-15")
def test_skills_are_switched_off_for_everybody_and_for_one(home: Path) -> None:
    toml = "disabled_skills = ['a']\n[users.ann]\ndisabled_skills = ['b']\n"
    assert _load(home, toml).disabled_skill_names == {"a", "b"}
    assert _load(home, toml, HABITUS_USER="bea").disabled_skill_names == {"a"}
