"""Commands and code that read secrets or send things away, and the hosts they send them to."""

from __future__ import annotations

from habitus.screening.findings import Category, Risk
from habitus.screening.hosts import CHAT_HOOK, NUMERIC_HOST, RENTED_HOST, RENTED_WORDS, TELLING_HOST, TELLING_WORDS
from habitus.screening.rules import Row, table, text

_HIGH, _MEDIUM = Risk.HIGH, Risk.MEDIUM

_SECRET_FILE = (
    r"(?:~|\$home|\$\{home\}|/root|/home/[\w$-]+|/users/[\w$-]+)?/?\.(?:ssh(?:/|\b)|aws/credentials|"
    r"aws/config|netrc|pgpass|git-credentials|"
    r"gnupg|kube/config|docker/config\.json|config/gcloud|config/gh/hosts|npmrc|pypirc|azure/|"
    r"env(?:\.\w+)?\b|bash_history|zsh_history)|"
    r"\bid_(?:rsa|ed25519|ecdsa|dsa)\b(?!\.pub)|/etc/(?:passwd|shadow)\b|/proc/self/environ|wallet\.dat|"
    r"login\.keychain|logins\.json|"
    r"\blogin data\b|/cookies\b|key4\.db"
)

ROWS: tuple[Row, ...] = (
    # Secrets and sending
    (
        "reads_secret_file",
        Category.CREDENTIAL_ACCESS,
        _MEDIUM,
        text(
            "(?:cat|less|more|head|tail|cp|scp|tar|zip|base64|xxd|strings|"
            "grep|read|open|readfilesync|readfile|type|get-content|source|"
            rf"rsync)\b[^\n|;]{{0,60}}(?:{_SECRET_FILE})",
            starts="cat |less |more |head |tail |cp |scp |tar |zip |base64|xxd|strings|"
            "grep |read|open|type |get-content|rsync",
            needs="ssh|aws|netrc|pgpass|gnupg|kube|docker|gcloud|npmrc|pypirc|env|"
            "bash_history|zsh_history|id_rsa|id_ed25519|id_ecdsa|passwd|shadow|"
            "environ|wallet|keychain|login|cookies|git|gh|azure|key4",
        ),
        "Reads a file that holds credentials.",
    ),
    (
        "sends_secret_file",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"(?:curl|wget|scp|rsync|nc|ftp|aws\s+s3\s+cp|gsutil\s+cp|http|"
            r"https)\b[^\n]{0,160}(?:@|-t\s|<|--post-file[=\s]|--upload-file\s|"
            rf"\$\(cat\s|s3\s+cp\s|scp\s|=)\s*[\"']?(?:{_SECRET_FILE})",
            starts="curl|wget|scp|rsync|nc |ftp|aws s3|gsutil|http ",
            needs="curl|wget|scp|rsync|nc|ftp|s3|gsutil|http ssh|aws|netrc|pgpass|"
            "gnupg|kube|docker|gcloud|npmrc|pypirc|env|bash_history|zsh_history|"
            "id_rsa|id_ed25519|id_ecdsa|passwd|shadow|environ|wallet|keychain|"
            "login|cookies|git|gh|azure|key4",
        ),
        "Sends a file that holds credentials.",
    ),
    (
        "secret_piped_out",
        Category.EXFILTRATION,
        _HIGH,
        text(
            rf"(?:cat|tar|zip|base64|grep|head|tail|find)\b[^\n]{{0,100}}(?:{_SECRET_FILE})[^\n]{{0,120}}"
            r"\|[^\n]{0,120}\b(?:curl|wget|nc|ncat|netcat|openssl\s+s_client|"
            r"telnet|mail|sendmail|socat)\b",
            starts="cat |tar |zip |base64|grep |head |tail |find ",
            needs="curl|wget|nc|ncat|netcat|openssl|telnet|ssh|mail|sendmail|socat ssh|"
            "aws|netrc|pgpass|gnupg|kube|docker|gcloud|npmrc|pypirc|env|bash_history|"
            "zsh_history|id_rsa|id_ed25519|id_ecdsa|passwd|shadow|environ|"
            "wallet|keychain|login|cookies|git|gh|azure|key4",
        ),
        "Sends credentials away.",
    ),
    (
        "environment_sent",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"(?:env|printenv|set|export\s+-p|cat\s+/proc/self/environ)\s*\|[^\n]{0,160}\b(?:curl|"
            r"wget|nc|ncat|netcat|mail)\b|(?:curl|wget)\b[^\n]{0,200}\$\(\s*(?:env|"
            r"printenv|export\s+-p)\b|json\.stringify\(\s*process\.env\s*\)|"
            r"body\s*:\s*process\.env",
            starts="env|printenv|set |export -p|cat /proc|curl|wget|json.stringify|body",
            needs="env|printenv|set|export|environ|process curl|wget|nc|ncat|netcat|mail|stringify|body",
        ),
        "Sends all environment variables away.",
    ),
    (
        "posts_file",
        Category.EXFILTRATION,
        None,
        text(
            r"(?:curl\b[^\n]{0,240}?(?:\s-f\s|--form|\s-d\s|--data[\w-]*|\s-t\s|"
            r"--upload-file|-x\s*(?:post|put))|wget\b[^\n]{0,120}--post-|requests\.(?:post|"
            r"put|get)\(|httpx\.(?:post|put)\(|invoke-(?:webrequest|restmethod)\b[^\n]{0,120}-method\s+pos"
            r"t|fetch\([^\n]{0,120}method\s*:\s*[\"']post)[^\n]{0,200}",
            starts="curl|wget|requests.|httpx.|invoke-|fetch(",
        ),
        "Sends something to a server.",
    ),
    (
        "uploads_placeholder",
        Category.EXFILTRATION,
        None,
        text(
            r"curl\b[^\n]{0,240}(?:<(?:query|prompt|system_?prompt|system_?info|"
            r"task|data|file_?path|num|conversation|content|output|input|user_?\w*|"
            r"message|history|response|key|password|results?)>|@<|\$\((?:cat|"
            r"env|whoami|hostname|id|pwd|ls|git|ps)\b|@[\w./-]+\.(?:txt|png|"
            r"jpg|json|db|log|csv|zip|tar|gz|env|sqlite)\b)",
            starts="curl",
            needs="curl",
        ),
        "Sends what the agent has at hand.",
    ),
    (
        "private_records_in_file",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"open\(\s*f?[\"'][^\"'\n]{0,80}(?:payment|card|passw|credential|"
            r"token|secret|keystroke|keylog|clipboard|ssn|cookie|login)[^\"'\n]{0,40}\.(?:txt|"
            r"log|csv|dat)[\"']\s*,\s*[\"']a",
            starts="open(",
            needs="open txt|log|csv|dat",
        ),
        "Keeps private records in a plain file.",
    ),
    (
        "dns_tunnel",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"(?:dig|nslookup|host|ping)\s+(?:-\w+\s+\S+\s+)?[\"']?(?:\$\(|"
            r""
            r"\$\{?\w+\}?\.)[^\n]{0,120}\.[a-z]{2,}",
            starts="dig |nslookup|host |ping ",
            needs="dig|nslookup|host|ping",
        ),
        "Carries data out in host names.",
    ),
    (
        "markdown_beacon",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,200}[?&=/](?:\{[^}\n]{1,60}\}|"
            r"<[^>\n]{1,60}>|\$\{?\w+|\[(?:data|secret|conversation|prompt|"
            r"base64|encoded)[^\]\n]{0,40}\])",
            starts="![",
            needs="http|https",
        ),
        "An image address that carries data out when it is shown.",
    ),
    (
        "cloud_metadata",
        Category.CREDENTIAL_ACCESS,
        _MEDIUM,
        text(
            r"169\.254\.169\.254|metadata\.google\.internal|fd00:ec2::254",
            starts="169.254|metadata.google|fd00:ec2",
            needs="169|metadata|fd00",
        ),
        "Asks the cloud for the machine's credentials.",
    ),
    (
        "keychain",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        text(
            r"security\s+(?:dump-keychain|find-(?:generic|internet)-password\s[^\n]{0,60}-\w*w|" r"export\s+-k)",
            starts="security",
            needs="security keychain|password|k",
        ),
        "Takes passwords out of the system's store.",
    ),
    (
        "credential_dumper",
        Category.CREDENTIAL_ACCESS,
        _MEDIUM,
        text(
            r"(?:mimikatz|secretsdump|hashdump|lazagne|procdump[^\n]{0,40}lsass|" r"reg\s+save\s+hklm\\sam)",
            starts="mimikatz|secretsdump|hashdump|lazagne|procdump|reg save",
            needs="mimikatz|secretsdump|hashdump|lazagne|procdump|hklm",
        ),
        "Names a tool that takes passwords out of a system.",
    ),
    (
        "browser_profile",
        Category.CREDENTIAL_ACCESS,
        _MEDIUM,
        text(
            r"(?:google/chrome|google-chrome|chromium|bravesoftware|mozilla/firefox|firefox/profiles|"
            r"microsoft/edge)"
            r"[^\n\"']{0,80}(?:login data|cookies|web data|key4\.db|logins\.json|history\b)",
            starts="google|chromium|bravesoftware|mozilla|firefox|microsoft",
            needs="google|chromium|bravesoftware|mozilla|firefox|microsoft login|cookies|web|key4|logins|history",
        ),
        "Reads a browser's profile.",
    ),
    (
        "rented_host_request",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"(?:curl|wget|requests\.\w+|httpx\.\w+|urlopen|fetch|axios(?:\.\w+)?|"
            r"nc|invoke-webrequest|iwr|socket\.connect|http\.client)\b[^\n]{0,200}?(?://|"
            rf"\s|[\"'(@])(?:{RENTED_HOST})",
            starts="curl|wget|requests.|httpx.|urlopen|fetch|axios|nc |invoke-web|iwr|socket.connect|http.client",
            needs=f"curl|wget|requests|httpx|urlopen|fetch|axios|nc|invoke|iwr|socket|client {RENTED_WORDS}",
        ),
        "Talks to a host that anyone can have for a minute.",
    ),
    (
        "rented_host",
        Category.EXFILTRATION,
        None,
        text(rf"https?://(?:{RENTED_HOST})", starts="http", needs=f"http|https {RENTED_WORDS}"),
        "Names a host that anyone can have for a minute.",
    ),
    (
        "numeric_host",
        Category.EXFILTRATION,
        None,
        text(rf"://(?:{NUMERIC_HOST})", starts="://", needs="http|https"),
        "Names a host by its number.",
    ),
    (
        "telling_host",
        Category.EXFILTRATION,
        _MEDIUM,
        text(
            rf"(?:https?://|@|curl\s+|wget\s+|nc\s+)(?:{TELLING_HOST})",
            starts="http|@|curl |wget |nc ",
            needs=f"http|https|curl|wget|nc|com|net|org {TELLING_WORDS}",
        ),
        "Names a host that calls itself an attacker's.",
    ),
    (
        "chat_hook",
        Category.EXFILTRATION,
        _MEDIUM,
        text(
            rf"(?:{CHAT_HOOK})[\w/:.-]*",
            starts="discord|api.telegram|hooks.slack",
            needs="discord|discordapp|telegram|slack webhooks|bot|services|org",
        ),
        "Sends to a chat that someone else reads.",
    ),
    (
        "directory_piped_out",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"(?:tar|cat|zip)\b[^\n|]{0,80}(?:~|\$home|/home|/root|/etc|\.\.)[^\n|]{0,80}\|\s*(?:ssh\s+\S{1,80}@|"
            r"curl|nc|ncat|socat)\b"
            r"|-exec\s+(?:curl|scp|nc|wget|rsync)\b",
            starts="tar |cat |zip |-exec",
            needs="tar|cat|zip|exec ssh|curl|nc|ncat|socat|scp|wget|rsync",
        ),
        "Sends whole directories away.",
    ),
    (
        "environment_posted",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"(?:post|put|urlopen|request|get|sendall)\([^\n]{0,160}(?:os\.environ(?![\[.])|process\.env(?![\[.]))",
            starts="post(|put(|urlopen(|request(|get(|sendall(",
            needs="environ|env",
        ),
        "Sends all environment variables away.",
    ),
    (
        "secret_file_shown",
        Category.CREDENTIAL_ACCESS,
        _HIGH,
        text(
            r"(?:reply|respond|answer|output|show|send|include|paste)\b[^\n]{0,60}"
            r"(?:/etc/(?:passwd|shadow)|\.ssh/id_|\.aws/credentials|/proc/self/environ|login\.keychain)",
            starts="reply|respond|answer|output|show|send|include|paste",
            needs="passwd|shadow|ssh|aws|environ|keychain",
        ),
        "Wants a file that holds credentials shown.",
    ),
)

RULES = table(ROWS, is_command=True, common=frozenset({"posts_file"}))
