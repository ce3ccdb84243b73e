"""Commands and code that harm whoever runs them: foreign code, shells for others, destruction."""

from __future__ import annotations

from habitus.screening.findings import Category, Risk
from habitus.screening.rules import Row, table, text

_HIGH, _MEDIUM, _LOW = Risk.HIGH, Risk.MEDIUM, Risk.LOW

_READER = (
    r"(?:sudo\s+(?:-\w+\s+)?)?(?:/(?:usr/)?bin/)?(?:(?:ba|z|da|k|fi)?sh\b|"
    r"(?:python[\d.]*|node|perl|ruby|php)\s*(?:-\s|-?$|[;&|\"'`)\n]))"
)
_RUNNER = r"(?:sudo\s+(?:-\w+\s+)?)?(?:/(?:usr/)?bin/)?(?:(?:ba|z|da|k|fi)?sh|" r"python[\d.]*|node|perl|ruby|php)\b"
_MANY = r"(?:[5-9]\d\d|\d{4,})"

ROWS: tuple[Row, ...] = (
    # Foreign code
    (
        "pipe_to_shell",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            rf"(?:curl|wget|fetch)\b[^\n|;]{{0,300}}\|\s*(?:tee\s[^\n|]{{0,80}}\|\s*)?{_READER}",
            starts="curl|wget|fetch",
            needs="curl|wget|fetch",
        ),
        "Runs whatever a server sends.",
    ),
    (
        "shell_of_download",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r"(?:(?:bash|sh|zsh|source|python3?)\s+(?:-c\s+)?[\"']?(?:<\(|"
            r"\$\()\s*(?:curl|wget)|eval\s+[\"']?(?:\$\(|`)\s*(?:curl|wget))[^\n]{0,200}",
            starts="bash|sh|zsh|source|python|eval",
            needs="curl|wget",
        ),
        "Runs whatever a server sends.",
    ),
    (
        "download_then_run",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:curl|wget)\b[^\n]{0,300}(?:&&|;|(?<!\\)\n)\s*(?:chmod\s[^\n]{0,60}(?:&&|"
            rf";|\n)\s*)?(?:{_RUNNER}\s+(?:\./|/tmp/)?\w[\w-]*(?:\.(?:sh|py|"
            r"pl|rb|js|bin))?(?=[\s\"'`]|$)|(?:sudo\s+)?(?:\./|/tmp/|/var/tmp/|"
            r"/dev/shm/)[\w.-]+)",
            starts="curl|wget",
            needs="curl|wget",
        ),
        "Downloads a program and runs it.",
    ),
    (
        "evaluates_download",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:exec|eval)\(\s*[^\n]{0,80}(?:urlopen\(|requests\.get\(|httpx\.get\(|"
            r"b64decode\(|fromhex\(|decompress\()",
            starts="exec(|eval(",
            needs="exec|eval urlopen|requests|httpx|b64decode|fromhex|decompress",
        ),
        "Runs what it has fetched or decoded.",
    ),
    (
        "powershell_download",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r"(?:iex|invoke-expression)\b[^\n]{0,80}(?:iwr|irm|invoke-webrequest|"
            r"invoke-restmethod|downloadstring|new-object\s+net\.webclient)|"
            r"(?:iwr|irm|invoke-webrequest|invoke-restmethod)\b[^\n|]{0,200}\|\s*(?:iex|"
            r"invoke-expression)\b",
            starts="iex|invoke-|iwr|irm",
            needs="iex|invoke iex|iwr|irm|invoke|downloadstring",
        ),
        "Runs whatever a server sends.",
    ),
    (
        "encoded_to_shell",
        Category.OBFUSCATION,
        _HIGH,
        text(
            r"(?:base64\s+(?:-d|--decode|-D)|xxd\s+-r|openssl\s+(?:enc\s+)?(?:-d\s+)?-?base64|"
            rf"gunzip|rev|tr\s+['\"]?a-z[\w-]*)[^\n|]{{0,80}}\|\s*{_RUNNER}|"
            r"eval\s+[\"']?(?:\$\(|`)[^\n]{0,200}(?:base64|xxd|rev)\b",
            starts="base64|xxd|openssl|gunzip|rev |tr |eval",
            needs="base64|xxd|openssl|gunzip|rev|tr|eval sh|bash|zsh|dash|python|"
            "python3|node|perl|ruby|php|base64|xxd|rev",
        ),
        "Decodes text and runs it.",
    ),
    (
        "encoded_powershell",
        Category.OBFUSCATION,
        _HIGH,
        text(
            r"powershell(?:\.exe)?\b[^\n]{0,80}\s-e(?:nc|ncodedcommand|c)?\s+[a-z0-9+/=]{16,}",
            starts="powershell",
            needs="powershell",
        ),
        "Runs an encoded command.",
    ),
    (
        "eval_of_decoded_js",
        Category.OBFUSCATION,
        _HIGH,
        text(
            r"(?:eval|new function|function|settimeout|vm\.runin\w+)\s*\(\s*(?:atob|"
            r"buffer\.from|unescape|decodeuricomponent|string\.fromcharcode)\s*\(",
            starts="eval|new function|function|settimeout|vm.runin",
            needs="eval|function|settimeout|vm atob|from|unescape|decodeuricomponent|fromcharcode",
        ),
        "Decodes text and runs it.",
    ),
    (
        "eval_of_fetched_js",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:eval|new function)\s*\(\s*(?:await\s+)?(?:\(await\s+)?(?:fetch|"
            r"axios|http\.get|got|res\.(?:text|data)|response\.(?:text|data|"
            r"body))\b",
            starts="eval|new function",
            needs="eval|function fetch|axios|get|got|res|response",
        ),
        "Runs whatever a server sends.",
    ),
    (
        "code_in_data",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"[\"'][\w-]+[\"']\s*:\s*[\"'](?:[^\"'\n]|\\[\"']){0,120}(?:require\(\\?[\"']child_process|"
            r"process\.mainmodule|__import__\(\\?[\"']os|runtime\.getruntime\(\)\.exec|"
            r"os\.system\()",
            starts="\"|'",
            needs="child_process|mainmodule|__import__|getruntime|system",
        ),
        "Program code stands where data belongs.",
    ),
    (
        "reverse_shell",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"[>&]\s*/dev/(?:tcp|udp)/[\w.${}-]+/[\w${}]+\s+0[<>]&|exec\s+\d+<>\s*/dev/tcp|"
            r"(?:ba|z)?sh\s+-i\s+[>&0-9]{1,4}\s*[>&]|\b(?:nc|ncat|netcat)\s+(?:-\w+\s+){0,4}(?:-[a-z]"
            r"*[ec]\b|--exec|--sh-exec)|socat\b[^\n]{0,100}\bexec:|mkfifo\s[^\n]{0,120}\b(?:nc|"
            r"ncat|telnet)\b",
            starts="> /dev/|>/dev/|& /dev/|&/dev/|exec |sh -i|bash -i|nc |ncat |netcat |socat|mkfifo",
            needs="tcp|udp|sh|bash|zsh|nc|ncat|netcat|socat|mkfifo dev|i|e|c|nc|"
            "ncat|telnet|exec|le|lvp|lvnp|nve|lve|ne|nlve|lnve|lvne|netcat|"
            "socat",
        ),
        "Opens a shell for someone else.",
    ),
    (
        "raw_socket",
        Category.EXFILTRATION,
        _MEDIUM,
        text(r"/dev/(?:tcp|udp)/[\w.${}-]+/", starts="/dev/tcp|/dev/udp", needs="tcp|udp"),
        "Talks to the network through the shell itself.",
    ),
    (
        "coin_miner",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:xmrig|stratum\+(?:tcp|ssl)://|minerd\s+-|cgminer\s+-|nicehash|" "coinhive|cryptonight)",
            starts="xmrig|stratum+|minerd|cgminer|nicehash|coinhive|cryptonight",
            needs="xmrig|stratum|minerd|cgminer|nicehash|coinhive|cryptonight",
        ),
        "Mines coins.",
    ),
    (
        "typosquat_install",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r"(?:pip3?\s+install|npm\s+(?:install|i)|gem\s+install|uv\s+(?:pip\s+install|"
            r"add))\b[^\n]{0,120}(?:--index-url|--extra-index-url|-i|--registry|"
            r"--source)[\s=]+[\"']?https?://(?!pypi\.org|test\.pypi\.org|registry\.npmjs|"
            r"download\.pytorch|pypi\.nvidia|files\.pythonhosted|npm\.pkg\.github|"
            r"rubygems|pypi\.tuna|mirrors?\.|registry\.npmmirror|wheels?\.|"
            r"pypi\.)",
            starts="pip|npm|gem|uv ",
            needs="install|add|i url|registry|source|i",
        ),
        "Installs from an index that is not the usual one.",
    ),
    (
        "evaluates_response_js",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"https?(?:['\"]\))?\.get\([^\n]{0,160}\beval\(|fetch\([^\n]{0,160}\beval\(",
            starts="http|fetch(",
            needs="get|fetch eval",
        ),
        "Runs whatever a server sends.",
    ),
    (
        "scheduled_in_words",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:cron\s?job|cron|scheduled task|launch agent|systemd (?:timer|service))\b[^\n.]{0,60}?"
            r"\b(?:downloads?|fetch(?:es)?|curls?|pulls?)\b[^\n]{0,120}\b(?:runs?|executes?)\b",
            starts="cron|scheduled task|launch agent|systemd",
            needs="cron|cronjob|scheduled|launch|systemd download|downloads|fetch|fetches|curl|curls|pull|pulls "
            "run|runs|execute|executes",
        ),
        "Has downloads run on a schedule.",
    ),
    (
        "container_escape",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        text(
            r"docker\s+run\b[^\n]{0,200}(?:-v\s+/:/|--volume[=\s]/:/|--privileged[^\n]{0,100}(?:chroot|nsenter))",
            starts="docker run",
            needs="docker v|volume|privileged",
        ),
        "Gives a container the whole machine.",
    ),
    # Destruction
    (
        "deletes_root_or_home",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"rm\s+(?:-{1,2}[\w-]+\s+){0,4}[\"']?(?:/(?:\*|\s|$|[\"'`;&|])|"
            r"~(?:/\*?)?(?=[\s\"'`;&|]|$)|\$home/?\*?(?=[\s\"'`;&|]|$)|\$\{home\}/?\*?(?=[\s\"'`;&|"
            r"]|$)|/(?:etc|usr|bin|boot|home|root|lib|var)/?\*?(?=[\s\"'`;&|"
            r"]|$)|\.\./?\*|--no-preserve-root)",
            starts="rm ",
            needs="rm",
        ),
        "Deletes the whole system or home.",
    ),
    (
        "deletes_from_list",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"rm\s+(?:-\w+\s+){0,3}[\"']?(?:\$\(|`)\s*(?:cat|find|ls)\b|(?:cat|"
            r"find|ls)\b[^\n|]{0,120}\|\s*xargs\s+(?:-\w+\s+){0,3}(?:sudo\s+)?(?:rm|"
            r"shred)\s+(?:-\w+\s+)*\$?\s*$",
            starts="rm ",
            needs="rm cat|find|ls",
        ),
        "Deletes what a list names.",
    ),
    (
        "deletes_above",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(r"rm\s+-\w*[rf]\w*\s[^\n;&|]{0,120}\.\./[\w*]*\*", starts="rm ", needs="rm"),
        "Deletes by pattern outside of its directory.",
    ),
    (
        "destroys_disk",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"dd\s+if=[^\n]{0,80}\bof=/dev/(?:sd|nvme|hd|disk|vd)|mkfs(?:\.\w+)?\s+(?:-\w+\s+){0,5}/dev/|"
            r">\s*/dev/(?:sd|nvme|hd)[a-z0-9]|shred\s+(?:-\w+\s+){1,5}[/~]",
            starts="dd if|mkfs|> /dev/|>/dev/|shred",
            needs="dd|mkfs|shred|sda|sdb|hda|vda|nvme0|nvme0n1",
        ),
        "Destroys a disk.",
    ),
    (
        "fork_bomb",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(r":\(\)\s*\{\s*:\s*\|\s*:", starts=":()"),
        "Floods the machine with processes.",
    ),
    (
        "setuid",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        text(r"chmod\s+(?:-\w+\s+){0,3}(?:[ug]?\+s|[4267]\d{3})\s[^\n]{0,60}", starts="chmod", needs="chmod"),
        "Lets anyone run a program as its owner.",
    ),
    (
        "opens_permissions",
        Category.EXCESSIVE_PERMISSION,
        _MEDIUM,
        text(r"chmod\s+(?:-\w+\s+)*(?:0?777|a\+rwx)\b[^\n]{0,60}", starts="chmod", needs="chmod"),
        "Opens files to everyone.",
    ),
    (
        "floods",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"while\s+(?:true|:|\[\s*1)[^\n]{0,20}[;\n]\s*do\s[^\n]{0,40}(?:curl|wget|ping|nc)\b[^\n]{0,120}(?:&|"
            r"done)|"
            rf"for\s+\w+\s+in\s+(?:\$\(seq\s+(?:1\s+)?{_MANY}\)|\{{1\.\.{_MANY}\}})"
            r"[^\n]{0,10}[;\n]\s*do\s[^\n]{0,40}(?:curl|wget)\b|"
            rf"for\s+\w+\s+in\s+range\(\s*{_MANY}\s*\)\s*:\s*(?:requests|httpx|urllib|session)\b|"
            r"hping3\b[^\n]{0,60}--flood",
            starts="while|for |hping3",
            needs="while|for|hping3 curl|wget|ping|nc|requests|httpx|urllib|session|flood true|1|seq|range|flood|do",
        ),
        "Floods a server with requests.",
    ),
    (
        "drops_production",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"drop\s+(?:database|schema)\s+(?:if\s+exists\s+)?[`\"']?\w{0,40}prod",
            starts="drop",
            needs="drop database|schema",
        ),
        "Deletes a production database.",
    ),
    # Malware that names itself
    (
        "test_virus",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(r"x5o!p%@ap\[4\\pzx54\(p\^\)7cc\)7\}\$eicar", starts="x5o!p", needs="x5o"),
        "Holds the test signature of virus scanners.",
    ),
)

RULES = table(ROWS, is_command=True)
