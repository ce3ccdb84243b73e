"""Keys of many kinds, made up and put together from parts, and the ways in which they come to be written."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Mapping
from urllib.parse import quote

MIXED = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzC5eR7tZ2uI9oP4qA6sD"
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

KEYS: Mapping[str, str] = {
    "anthropic": "sk-ant-" + "api03-" + MIXED[:34],
    "openai": "sk-" + "proj-" + MIXED[1:35],
    "aws": "AKIA" + "2B3C4D5E6F7G8H9I",
    "github": "ghp_" + MIXED[2:38],
    "github_app": "ghs_" + MIXED[3:39],
    "github_fine": "github_" + "pat_" + MIXED[:22] + "_" + MIXED[4:34],
    "gitlab": "glpat-" + MIXED[5:25],
    "slack": "xoxb-" + "123456789012-" + MIXED[6:26],
    "slack_app": "xapp-" + "1-A0B1C2D3E4-" + HEX,
    "google": "AIza" + MIXED[7:42],
    "google_oauth": "ya29" + "." + MIXED[8:40],
    "google_client": "GOCSPX" + "-" + MIXED[9:37],
    "stripe": "sk_" + "live_" + MIXED[10:40],
    "stripe_hook": "whsec" + "_" + MIXED[11:43],
    "huggingface": "hf" + "_" + MIXED[12:46],
    "npm": "npm" + "_" + MIXED[13:49],
    "pypi": "pypi" + "-AgEIcHlwaS5vcmc" + MIXED[:44],
    "sendgrid": "SG" + "." + MIXED[14:36] + "." + MIXED[2:45],
    "groq": "gsk" + "_" + MIXED[:52],
    "xai": "xai" + "-" + MIXED[:50],
    "databricks": "dapi" + HEX,
    "digitalocean": "dop_v1" + "_" + HEX + HEX[::-1],
    "age": "AGE-SECRET-KEY-" + "1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVDW0S3JN54KHCE",
    "telegram": "8123456789:" + "AA" + MIXED[15:48],
    "mailgun": "key" + "-" + HEX[::-1],
    "shopify": "shpat" + "_" + HEX,
    "vault": "hvs" + "." + MIXED[16:44],
    "docker": "dckr_pat" + "_" + MIXED[17:44],
    "discord": "MTA" + MIXED[:21] + ".Gb" + MIXED[22:26] + "." + MIXED[4:42],
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiI3In0." + MIXED[:43],
    "replicate": "r8" + "_" + MIXED[:37],
    "figma": "figd" + "_" + MIXED[3:43],
    "linear": "lin_" + "api_" + MIXED[5:45],
    "notion": "ntn" + "_" + MIXED[2:48],
    "pem": "-----BEGIN RSA " + "PRIVATE KEY-----\n" + f"MIIE{MIXED}\n" * 3 + "-----END RSA " + "PRIVATE KEY-----",
}

# The text that stands between the parts of a split key.
SPLITS: Mapping[str, str] = {
    "line": "\n",
    "indented line": "\r\n    ",
    "escaped line": "\\n",
    "backslash": "\\",
    "continued line": "\\\n",
    "plus": "+",
    "joined literals": '" + "',
    "joined lines": "' +\n  '",
    **{f"invisible {ord(letter):04x}": letter for letter in "\u200b\u200c\u200d\u2060\ufeff\u00ad\U000e0041"},
}

WAYS: Mapping[str, Callable[[str], str]] = {
    "json": lambda key: json.dumps({"text": f"first line\n{key}\nlast", "again": json.dumps({"inner": f"\t{key}"})}),
    "repr": lambda key: repr({"said": f"it is\n{key}", "raw": f"\r\n{key}\n".encode()}),
    "shell": lambda key: f"export SERVICE_TOKEN='{key}' && run --verbose $'\\n{key}'",
    "url": lambda key: f"https://x.test/a?access_token={quote(key, safe='')}&next=%0A{quote(key, safe='')}",
    "header": lambda key: f"curl -H 'Authorization: Bearer {key}' -H 'X-Api-Key: {key}' https://x.test/",
    "base64": lambda key: f"Authorization: Basic {_basic(key)}\nauths: {{registry: {_basic(key)}}}",
    "yaml": lambda key: f"service:\n  token: {key}\n  again: |\n    {key}\n  env:\n  - name: TOKEN\n    value: {key}\n",
    "unicode escapes": lambda key: "say " + "".join(f"\\u{ord(letter):04x}" for letter in key) + " now",
    "byte escapes": lambda key: "b'" + "".join(f"\\x{ord(letter):02x}" for letter in key) + "'",
    "entities": lambda key: f"<p>{''.join(f'&#{ord(letter)};' for letter in key)}</p> " + html.escape(f"'{key}'"),
    "hexadecimal": lambda key: f"dump: {key.encode().hex()}, {key.encode().hex().upper()}",
    "plain": lambda key: f"as it is: {key}",
}
"""The last is what a test splits over two writes."""


def _basic(key: str) -> str:
    return base64.b64encode(f"robot:{key}".encode()).decode()


def pieces(key: str) -> tuple[str, ...]:
    """What must not be found anywhere: the telling part of a key, as it is and as the ways above write it."""
    telling = key.split("\n")[1] if "\n" in key else key
    inner = [base64.b64encode(f"robot:{key}".encode()[offset:]).decode()[4:40] for offset in range(3)]
    escaped = ["".join(spelling(letter) for letter in telling) for spelling in _SPELLINGS]
    return (telling, quote(telling, safe=""), telling.encode().hex(), *escaped, *inner)


_SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda letter: f"\\u{ord(letter):04x}",
    lambda letter: f"\\x{ord(letter):02x}",
    lambda letter: f"&#{ord(letter)};",
)
