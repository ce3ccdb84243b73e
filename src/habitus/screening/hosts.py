"""Addresses: which hosts anyone can have for a minute, and which are known for their installers."""

from __future__ import annotations

import re

_RENTED = (
    r"ngrok(?:-free)?\.(?:io|app|dev)|ngrok\.com|trycloudflare\.com|loca\.lt|localtunnel\.me|serveo\.net|localhost\.run|"
    r"webhook\.site|requestbin\.\w+|pipedream\.net|beeceptor\.com|requestcatcher\.com|hookbin\.com|mockbin\.\w+|"
    r"burpcollaborator\.net|oastify\.com|oast\.\w+|interact\.sh|interactsh\.com|dnslog\.cn|canarytokens\.com|"
    r"onrender\.com|herokuapp\.com|glitch\.me|repl\.co|replit\.(?:app|dev)|railway\.app|fly\.dev|surge\.sh|"
    r"workers\.dev|000webhostapp\.com|duckdns\.org|no-ip\.\w+|ddns\.net|"
    r"transfer\.sh|file\.io|0x0\.st|paste\.rs|ix\.io|termbin\.com|pastebin\.com|hastebin\.com|anonfiles\.com|"
    r"gofile\.io|catbox\.moe|temp\.sh|bashupload\.com"
)
_NUMERIC = r"(?!(?:127|10|0)\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.)\d{1,3}(?:\.\d{1,3}){3}"
_TELLING = (
    r"(?:[\w-]+\.)*(?:[\w-]*-)?(?:evil|attacker|malicious|malware|"
    r"exfil\w*|hacker\w*|c2|phish\w*|badguy|steal\w*)(?:-[\w-]*)?(?:\.[\w-]+)+"
)

RENTED_HOST = rf"(?:[\w-]+\.){{0,4}}(?:{_RENTED})(?![\w-])"
RENTED_WORDS = "|".join(
    sorted(
        {
            word
            for word in re.findall(r"\w{3,}", _RENTED.replace("\\.", " ").replace("(?:", " "))
            if word not in ("com", "net", "org", "dev", "app")
        }
    )
)
NUMERIC_HOST = rf"{_NUMERIC}(?![\w.])"
TELLING_WORDS = (
    "evil|attacker|malicious|malware|exfil|exfiltrate|exfiltration|"
    "hacker|hackers|c2|phish|phishing|badguy|steal|stealer"
)
TELLING_HOST = _TELLING
CHAT_HOOK = r"discord(?:app)?\.com/api/webhooks/|api\.telegram\.org/bot|hooks\.slack\.com/services/t"

_INSTALLERS = re.compile(
    r"(?:https://|\s)(?:[\w-]+\.)*(?:astral\.sh|docker\.com|rustup\.rs|brew\.sh|deno\.land|deno\.com|bun\.sh|fly\.io|vercel\.com|nixos\.org|"
    r"githubusercontent\.com|github\.com|gitlab\.com|github\.io|hf\.co|huggingface\.co|chocolatey\.org|scoop\.sh|python-poetry\.org|pypa\.io|nodesource\.com|pnpm\.io|volta\.sh|"
    r"sdkman\.io|ollama\.(?:com|ai)|claude\.ai|anthropic\.com|openai\.com|cursor\.com|amazonaws\.com|google\.com|googleapis\.com|"
    r"microsoft\.com|aka\.ms|apple\.com|mozilla\.org|k3s\.io|rancher\.io|helm\.sh|hashicorp\.com|tailscale\.com|starship\.rs|"
    r"supabase\.com|railway\.(?:app|com)|foundry\.paradigm\.xyz|solana\.com|anza\.xyz|lean-lang\.org|julialang\.org|"
    r"haskell\.org|ohmyz\.sh|getcomposer\.org|composer\.org|yarnpkg\.com|npmjs\.(?:com|org)|opencode\.ai|get-ghcup\.haskell\.org)(?:[:/\s\"')]|$)"
)


def is_known_installer(command: str) -> bool:
    return _INSTALLERS.search(command) is not None
