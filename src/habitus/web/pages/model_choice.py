"""Choose a model: what is found on this machine, a key for the vault, and a test. For the owner alone."""

from __future__ import annotations

import os
import time
from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.conversations import models
from habitus.app.operating import configuring
from habitus.errors import HabitusError
from habitus.llm.providers.known_providers import PROVIDERS
from habitus.web.api.schemas import RequestHome
from habitus.web.home_pool import get_home_pool, get_request_home
from habitus.web.rendering import FlashMessage, render_fragment, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()

ModelName = Annotated[str, Form(max_length=200)]


@router.get("/model", access=Access.OWNER)
def show_models(request: Request, habitus: RequestHome) -> HTMLResponse:
    return _render_models(request, habitus)


def _render_models(request: Request, habitus: Habitus, said: FlashMessage | None = None) -> HTMLResponse:
    return render_page(
        request,
        "model.html",
        said=said,
        required_access=Access.OWNER,
        current=models.resolve_main_and_cheap_model_names(habitus.settings, os.environ)[0],
        options=models.list_usable_models(habitus.settings, os.environ),
        providers=[(name, spec.keys[0]) for name, spec in PROVIDERS.items() if spec.main],
    )


@router.post("/model/use", access=Access.OWNER)
def use_model(request: Request, habitus: RequestHome, name: ModelName) -> HTMLResponse:
    """Use a model for chat, drafts and lessons."""
    with get_home_pool(request).reopen_home_with_settings_changed_in_block():
        done = configuring.set_setting_for_remote_user(habitus, "model", name.strip())
    said = FlashMessage(text=f"{name.strip()} is used from now on.", undo=done.undo)
    return _render_models(request, get_request_home(request), said)


@router.post("/model/key", access=Access.OWNER)
def save_provider_key(
    request: Request,
    habitus: RequestHome,
    provider: ModelName,
    key: Annotated[str, Form(max_length=1000)],
) -> HTMLResponse:
    """Keep a provider's key in the vault and use its model; the key is never shown again."""
    return use_model(request, habitus, models.store_provider_key_and_get_default_model(habitus.vault, provider, key))


@router.post("/model/test", access=Access.OWNER)
def try_model(habitus: RequestHome, name: ModelName) -> HTMLResponse:
    """Ask a model one short question and return how it answered."""
    began = time.monotonic()
    try:
        answer, failed = models.ask_model_for_test_answer(habitus.settings, name.strip()), ""
    except HabitusError as error:
        answer, failed = "", str(error)
    return render_fragment("model_tested.html", answer=answer, failed=failed, seconds=time.monotonic() - began)
