"""Models that run on this machine, found by asking the addresses where local servers listen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from habitus.llm.providers.naming import PROVIDERS, choose
from habitus.text import one_line

_PATIENCE_S = 0.5


def running_here(environ: Mapping[str, str]) -> list[str]:
    """One model of every local server that answers, as HABITUS_MODEL names it."""
    local = [name for name, provider in PROVIDERS.items() if provider.address]
    with ThreadPoolExecutor(len(local)) as asking:
        found = asking.map(lambda name: _first(name, environ), local)
        return [name for name in found if name]


def _first(provider: str, environ: Mapping[str, str]) -> str:
    choice = choose(f"{provider}:any", environ)
    address = urlsplit(choice.address)
    if not choice.is_on_this_machine or address.scheme != "http":
        return ""
    try:
        with closing(HTTPConnection(address.hostname or "", address.port or 80, timeout=_PATIENCE_S)) as server:
            server.request("GET", f"{address.path.rstrip('/')}/models")
            listed = json.loads(server.getresponse().read(1_000_000))
        return f"{provider}:{one_line(str(listed['data'][0]['id']))}"
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return ""
