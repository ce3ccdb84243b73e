"""What an attack says to get at secrets and private data and to have them sent away."""

from __future__ import annotations

from habitus.screening.findings import Category, Risk
from habitus.screening.rules import Row, near, table, text

_HIGH, _MEDIUM = Risk.HIGH, Risk.MEDIUM

_SEND = (
    "send|sends|sending|upload|uploads|uploading|post|posts|posting|forward|forwards|forwarding|transmit|"
    "transmits|transmitting|"
    "exfiltrate|submit|submits|push|pushes|sync|syncs|email|mail|copy|copies|back up|backup|backed up|"
    "relay|deliver|share|"
    "stream|report|reports|publish|ship|beacon|leak"
)
_SECRETS = (
    "password|passwords|credential|credentials|secret|secrets|api key|api keys|api_key|apikey|access key|"
    "access keys|access token|"
    "token|tokens|private key|private keys|ssh key|ssh keys|ssh folder|ssh files|ssh directory|env file|"
    "env files|environment files|"
    "environment variables|env vars|cookies|session cookie|authorization header|auth header|bearer token|"
    "seed phrase|recovery phrase|"
    "keychain|wallet|passphrase|oauth tokens|secret keys|signing key"
)
_PRIVATE = (
    "conversation|conversations|chat history|chat log|transcript|transcripts|prompt|prompts|task prompt|"
    "system prompt|query|queries|"
    "user input|user's input|user message|user messages|user data|user's data|clipboard|screenshot|"
    "screenshots|browser history|"
    "browsing history|search history|bookmarks|contacts|address book|location|coordinates|ip address|"
    "system information|hostname|"
    "source code|codebase|workspace|working directory|home directory|repository contents|file contents|"
    "contents of|full contents|"
    "copy of|copies of|all files|all documents|documents|database|customer data|personal data|"
    "personal information|emails|inbox|"
    "payment|card number|card data|health records|payroll|salaries|financial|data you|information you|"
    "everything|results of"
)

ROWS: tuple[Row, ...] = (
    # To get at secrets and to send things away
    (
        "secrets_in_output",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        near(
            "echo|print|output|include|repeat|reveal|reply with|paste|append|"
            "return|disclose|leak|show|insert|write|embed|add|put|quote|attach|"
            "dump",
            _SECRETS,
            "in your response|in your next|in your reply|in your answer|in your output|"
            "in the response|in the reply|in the output|in the answer|in your final|"
            "in the final|to the output|to the response|in the summary|in your message|"
            "in the commit|in a comment|in comments|to the log|to the logs|"
            "into the project|in the issue|in the report|to the chat|in the readme|"
            "and commit|to the report|in the next|in the url|in the pull|"
            "in the pr|to the end|as a comment|verbatim|in the chat",
            gap=45,
        ),
        "Wants credentials in what the model writes.",
    ),
    (
        "secrets_sent",
        Category.EXFILTRATION,
        _HIGH,
        near(
            "send|sends|sending|upload|uploads|uploading|post|posting|forward|"
            "forwarding|transmit|transmitting|exfiltrate|submit|email|mail|"
            "copy|relay|leak|deliver",
            _SECRETS,
            "to",
            "url|external|remote|webhook|collector|http|https|our|my|third-party|"
            "pastebin|gist|discord|telegram|endpoint|address|attacker|mlops|"
            "bucket",
            gap=45,
        ),
        "Wants credentials sent away.",
    ),
    (
        "key_into_project",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        near(
            "copy|move|put|include|commit|add|append|write",
            "ssh private key|private key|private keys|ssh keys|ssh key|contents of .env|"
            "browser cookies|env file contents|aws credentials",
            "into|to|in",
            "project|repository|repo|workspace|commit|public|log|debug.log|issue|readme|report|comment",
            gap=30,
        ),
        "Puts credentials where others read them.",
    ),
    (
        "cookies_shown",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        near(
            "read|get|extract|take|collect|grab|export|dump|steal",
            "cookies|saved passwords|session tokens|login data|browser data",
            "paste|send|post|upload|include|share|append",
            gap=45,
        ),
        "Takes a browser's logins and passes them on.",
    ),
    (
        "secrets_collected",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        near(
            "collect|collecting|harvest|harvesting|gather|gathering|steal|"
            "scrape|grab|extract|find all|scan for|scan the|search|look for|"
            "locate|enumerate",
            _SECRETS + "|wallet.dat|seed phrases",
            "and store|and save|store what|save what|and copy|and send|and upload|"
            "and post|then upload|then send|then post|and include|and forward|"
            "and exfiltrate|upload|send|collector|exfiltrate",
            gap=60,
        ),
        "Wants credentials collected and sent away.",
    ),
    (
        "secrets_gathering",
        Category.CREDENTIAL_ACCESS,
        None,
        near(
            "collect|collects|collecting|collection|harvest|harvesting|gather|"
            "gathering|steal|scrape|grab|scan|search for|read|copy|cat|open|"
            "load",
            "env|ssh|aws|credentials|passwords|secrets|tokens|cookies|keychain|"
            "private keys|api keys|ssh files|environment variables",
            gap=45,
        ),
        "Collects credentials.",
    ),
    (
        "private_data_sent",
        Category.EXFILTRATION,
        _HIGH,
        near(
            _SEND + "|log|logs|record|records|write|save",
            _PRIVATE,
            "to",
            "url|webhook|collector|http|https|external|remote|third-party|"
            "pastebin|gist|endpoint|mlops|telemetry|our|my|attacker|discord|"
            "telegram",
            gap=40,
        ),
        "Wants data of the user or of the conversation sent away.",
    ),
    (
        "to_our_server",
        Category.EXFILTRATION,
        _HIGH,
        near(
            _SEND,
            "to our|to my|to the mlops|to an external|to a remote|to the remote|"
            "to the collector|to the following url|to the following endpoint|"
            "to this url|to this address|to this endpoint",
            "server|servers|endpoint|collector|webhook|url|mlops|bucket|analytics|telemetry|logging|http|https",
            gap=45,
        ),
        "Wants something sent to a server of the author.",
    ),
    (
        "exfiltrates",
        Category.EXFILTRATION,
        _MEDIUM,
        near(
            "exfiltrate|exfiltrates|exfiltrating",
            "data|to|file|files|it|them|secrets|credentials|contents|everything|keys|the|all",
            gap=12,
        ),
        "Speaks of taking data out.",
    ),
    (
        "mentions_sending",
        Category.EXFILTRATION,
        None,
        near(
            _SEND,
            "data|file|files|content|contents|output|result|results|query|"
            "prompt|it|them|information|task|copy|log|logs|number|password|"
            "key|location|screenshot|clipboard|summary|report|document|documents|"
            "backup|each|every",
            gap=45,
        ),
        "Sends something.",
    ),
    (
        "spies",
        Category.EXFILTRATION,
        None,
        near(
            "clipboard|pbpaste|xclip|screencapture|screenshot|screenshots|"
            "keylogger|keystrokes|microphone|webcam|geolocation|location data|"
            "gps|corelocation|ipapi|current location|browsing history|browser history|"
            "chat.db|imessage|contacts.txt|all contacts|all emails",
            gap=5,
        ),
        "Reads what belongs to the person.",
    ),
    (
        "sent_to_address",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"(?:send|upload|transmit|forward|post|submit|deliver|relay|ship|mail|email|push|mirror|copy|"
            r"exfiltrate)\b[^\n.]{0,60}?(?<![-\w])to\s+"
            r"(?:the\s+\w+\s+(?:at|of)\s+)?[`<(\"']?(?:https?://(?!localhost|127\.|0\.0|192\.168\.|10\.|"
            r"[\w.-]{0,40}example\.|api\.|\{|\$|<|your)[\w-]+\.|"
            r"[\w.+-]{1,64}@(?![\w.-]{0,40}example\.|company\.|domain\.|your|test\.|email\.)[\w-]+\.)",
            starts="send|upload|transmit|forward|post|submit|deliver|relay|ship|mail|email|push|mirror|copy|exfiltrate",
            needs="to http|https|com|net|org|io|dev|cc|co|me|info|biz|xyz|ru|cn|de|app|sh|ai",
        ),
        "Wants something sent to a fixed address.",
    ),
    (
        "asks_for_secrets",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        near(
            "ask|prompt|request|get|have",
            "user|users|them|their|customer|customers|him|her",
            "password|passwords|two-factor code|2fa code|otp|one-time code|verification code|credit card|"
            "seed phrase|pin|passphrase|recovery phrase",
            "and store|and save|and send|and post|and write|and forward|and log|and upload|and keep|then send|"
            "then post",
            gap=30,
        ),
        "Gets credentials out of people and passes them on.",
    ),
    (
        "keeps_secrets",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        near(
            "api key|api keys|password|passwords|token|tokens|secret|secrets|credentials",
            "keep a copy|save a copy|store a copy|make a copy|keep copies|copy it to|record it in|"
            "write it to a hidden|save them to a hidden",
            gap=30,
        ),
        "Puts credentials aside.",
    ),
)

RULES = table(ROWS, common=frozenset({"mentions_sending"}))
