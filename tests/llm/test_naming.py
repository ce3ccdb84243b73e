"""What a `provider:model` stands for, and what is said when it stands for nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from habitus.errors import UserError
from habitus.llm.model import ModelRole, SessionModels
from habitus.llm.providers import ProviderModel, open_provider_model
from habitus.llm.providers.known_providers import PROVIDERS, ProviderDialect, resolve_model_choice
from habitus.llm.scripted import ScriptedModel, says

pytestmark = pytest.mark.req("AG-02")

KEYS = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g"}


@pytest.mark.parametrize(
    ("name", "environ", "base_url", "expected"),
    [
        ("openai:gpt-6-luna", {}, "", (ProviderDialect.OPENAI, "openai:gpt-6-luna", "", "o")),
        (
            "openai:x",
            {},
            "https://gate.example/v1/",
            (ProviderDialect.CHAT, "openai:x", "https://gate.example/v1", "o"),
        ),
        ("openai:x", {"OPENAI_BASE_URL": "gate:80"}, "", (ProviderDialect.CHAT, "openai:x", "http://gate:80", "o")),
        ("Anthropic:c", {}, "http://for-openai-only/v1", (ProviderDialect.ANTHROPIC, "anthropic:c", "", "a")),
        ("google-gla:g", {}, "", (ProviderDialect.GOOGLE, "google:g", "", "g")),
        (
            "google:g",
            {"GEMINI_API_KEY": "", "GOOGLE_API_KEY": " h\n"},
            "",
            (ProviderDialect.GOOGLE, "google:g", "", "h"),
        ),
        ("ollama:qwen3:8b", {}, "", (ProviderDialect.OLLAMA, "ollama:qwen3:8b", "http://127.0.0.1:11434/v1", "")),
        (
            "ollama:q",
            {"OLLAMA_HOST": "0.0.0.0:5"},
            "",
            (ProviderDialect.OLLAMA, "ollama:q", "http://127.0.0.1:5/v1", ""),
        ),
        ("llama.cpp:any", {}, "", (ProviderDialect.CHAT, "llamacpp:any", "http://127.0.0.1:8080/v1", "")),
        (
            "vllm:Qwen/Q3",
            {"VLLM_API_KEY": "v"},
            "",
            (ProviderDialect.CHAT, "vllm:Qwen/Q3", "http://127.0.0.1:8000/v1", "v"),
        ),
    ],
)
def test_a_name_is_a_dialect_an_address_and_a_key(
    name: str, environ: dict[str, str], base_url: str, expected: tuple[ProviderDialect, str, str, str]
) -> None:
    choice = resolve_model_choice(name, {**KEYS, **environ}, base_url)
    assert (choice.dialect, choice.name, choice.address, choice.key) == expected
    assert choice.key == "" or f"key='{choice.key}'" not in repr(choice)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "No model is set. Set HABITUS_MODEL to one like anthropic:claude-sonnet-5-5, "),
        ("anthropic", "'anthropic' names no model. Write provider:model, like anthropic:claude-sonnet-5-5."),
        ("anthropic:", "'anthropic:' names no model. Write provider:model, like anthropic:claude-sonnet-5-5."),
        ("claude-opus-5", "'claude-opus-5' names no provider. Did you mean 'anthropic:claude-opus-5'?"),
        ("GPT-6", "'GPT-6' names no provider. Did you mean 'openai:GPT-6'?"),
        ("mystery", "'mystery' names no provider. Write provider:model, like anthropic:claude-sonnet-5-5."),
        ("antropic:x", "No provider 'antropic'. Did you mean 'anthropic'? Any OpenAI-compatible server works as"),
        ("zzz:x", "No provider 'zzz'. Known are anthropic, openai, google, ollama, llamacpp, vllm."),
        ("openai:x", "No key for openai: OPENAI_API_KEY is not set. Set it: export OPENAI_API_KEY=…"),
        ("anthropic:x", "No key for anthropic: ANTHROPIC_API_KEY is not set. Set it: export ANTHROPIC_API_KEY=…"),
        ("google:x", "No key for google: GEMINI_API_KEY or GOOGLE_API_KEY is not set. Set it: export GEMINI_API_KEY=…"),
    ],
)
def test_a_mistake_in_a_name_is_one_line_with_the_hint(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        open_provider_model(name, {})
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://[::1", "http://h:port", "://"])
def test_an_address_that_is_none_says_so(address: str) -> None:
    with pytest.raises(UserError, match="is no address of a server"):
        resolve_model_choice("openai:x", KEYS, address)


def test_every_example_can_be_opened() -> None:
    for provider in PROVIDERS.values():
        assert isinstance(open_provider_model(provider.example, KEYS), ProviderModel)


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("openai:gpt-5.4-mini", True),
        ("openai:gpt-3.5-turbo", False),
        ("anthropic:claude-haiku-5-5", True),
        ("google:gemini-3.8-flash", True),
        ("ollama:llava:13b", True),
        ("ollama:qwen2.5vl", True),
        ("ollama:llama3.2-vision", True),
        ("ollama:qwen3", False),
        ("vllm:Qwen/Qwen3-VL-8B", True),
        ("llamacpp:smollm2", False),
    ],
)
def test_who_sees_pictures_is_known_from_the_name(name: str, sees: bool) -> None:
    assert open_provider_model(name, KEYS).sees_images is sees


def test_opening_a_model_imports_no_provider_s_library() -> None:
    code = (
        "import sys; from habitus.llm.providers import open_provider_model; from habitus.llm import model, scripted;"
        "open_provider_model('openai:x', {'OPENAI_API_KEY': 'k'}).sees_images;"
        "print(*({'pydantic_ai', 'httpx2', 'openai', 'anthropic', 'google.genai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


async def test_two_roles_are_opened_when_they_are_asked_for() -> None:
    opened: list[str] = []

    def opening(name: str) -> ScriptedModel:
        opened.append(name)
        return ScriptedModel([says("hi")], name=name)

    models = SessionModels("a:big", "b:small", open_model=opening)
    assert opened == []
    assert (models.cheap.name, models.main.name, models[ModelRole.MAIN].name) == ("b:small", "a:big", "a:big")
    assert opened == ["b:small", "a:big"]
    await models.close()


def test_without_a_cheap_model_the_main_one_does_its_work() -> None:
    models = SessionModels("a:big", open_model=lambda name: ScriptedModel([], name=name))
    assert models.cheap is models.main


async def test_roles_let_go_of_connections() -> None:
    models = SessionModels("ollama:qwen3", open_model=lambda name: open_provider_model(name, {}))
    assert models.main.context_tokens is None
    await models.close()
    await models.close()
