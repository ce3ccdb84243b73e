"""Commands that outlast their call: traces removed, start-up files, schedules, rights, protections switched off."""

from __future__ import annotations

from habitus.screening.findings import Category, Risk
from habitus.screening.rules import Row, table, text

_HIGH, _MEDIUM, _LOW = Risk.HIGH, Risk.MEDIUM, Risk.LOW

_PROFILE = (
    r"(?:~|\$home|\$\{home\})?/?\.(?:bashrc|bash_profile|zshrc|zprofile|"
    "zshenv|profile|bash_login|bash_logout|config/fish)|/etc/profile"
)

ROWS: tuple[Row, ...] = (
    # Traces and persistence
    (
        "clears_traces",
        Category.OBFUSCATION,
        _HIGH,
        text(
            r"history\s+-c\b|unset\s+histfile|histfile=/dev/null|histsize=0|"
            r"set\s+\+o\s+history|(?:rm|>|truncate[^\n]{0,20})\s*(?:-\w+\s+)*(?:~|"
            r"\$home)/\.(?:bash|zsh)_history|wevtutil\s+cl\b|(?:rm|>)\s*(?:-\w+\s+)*/var/log/(?:auth|"
            r"syslog|secure|wtmp|\*)",
            starts="history|unset|histfile|histsize|set +o|rm |> ~|> $|truncate|wevtutil|> /var|>/var",
            needs="history|histfile|histsize|bash_history|zsh_history|wevtutil|"
            "var c|unset|dev|0|o|rm|cl|bash_history|zsh_history|truncate|"
            "log",
        ),
        "Removes the traces of what it did.",
    ),
    (
        "shell_profile",
        Category.EXCESSIVE_PERMISSION,
        _MEDIUM,
        text(
            rf">>?\s*[\"']?(?:{_PROFILE})|tee\s+-a\s+[\"']?(?:{_PROFILE})",
            starts=">|tee -a",
            needs="bashrc|bash_profile|zshrc|zprofile|zshenv|profile|bash_login|bash_logout|fish",
        ),
        "Writes into the shell's start-up file.",
    ),
    (
        "scheduled",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r"(?:\|\s*crontab\s+-|crontab\s+(?:-\s|-$|/tmp|<)|>>?\s*/etc/cron|"
            r"/etc/cron\.d/\w|launchctl\s+(?:load|bootstrap)|schtasks\s+/create|"
            r">>?\s*/etc/rc\.local|systemctl\s+(?:--user\s+)?enable\s)",
            starts=(
                "| crontab",
                "|crontab",
                "crontab",
                "> /etc",
                ">/etc",
                ">> /etc",
                ">>/etc",
                "/etc/cron",
                "launchctl",
                "schtasks",
                "systemctl",
            ),
            needs="crontab|cron|launchctl|schtasks|rc|systemctl|d",
        ),
        "Installs something that runs on its own later.",
    ),
    (
        "scheduled_download",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:[*\d/,-]+\s+){5}[^\n]{0,60}(?:curl|wget)\b[^\n]{0,160}\|\s*(?:ba|z)?sh\b",
            starts="*|0 |@",
            needs="curl|wget",
        ),
        "Has downloads run on a schedule.",
    ),
    (
        "authorized_keys",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        text(
            r">>?\s*[\"']?[^\s\"'\n]{0,60}authorized_keys|tee\s+(?:-a\s+)?[^\s\n]{0,60}authorized_keys|"
            r"ssh-(?:rsa|ed25519)\s+aaaa[^\n]{0,400}>>",
            starts=">|tee|ssh-rsa|ssh-ed25519",
            needs="authorized_keys|aaaa",
        ),
        "Lets another key log in.",
    ),
    (
        "sudoers",
        Category.EXCESSIVE_PERMISSION,
        _MEDIUM,
        text(
            r"nopasswd\s*:\s*all|>>?\s*/etc/sudoers|tee\s+(?:-a\s+)?/etc/sudoers|"
            r"usermod\s+-\w*g\s+(?:sudo|wheel|root)\b|net\s+localgroup\s+administrators\s+\w+\s+/add",
            starts="nopasswd|>|tee|usermod|net localgroup",
            needs="nopasswd|sudoers|usermod|localgroup",
        ),
        "Grants administrator rights.",
    ),
    (
        "git_hook",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r">>?\s*[\"']?\.git/hooks/[\w-]+|git\s+config\s+(?:--\w+\s+)?core\.(?:hookspath|"
            r"sshcommand|fsmonitor)|cp\s+[^\n]{0,80}\.git/hooks/",
            starts=">|git config|cp ",
            needs="hooks|hookspath|sshcommand|fsmonitor",
        ),
        "Runs with every commit.",
    ),
    (
        "git_redirect",
        Category.EXFILTRATION,
        _HIGH,
        text(
            r"git\s+push\s+(?:-\S+\s+){0,3}[\"']?https?://(?!\S{0,80}[$@{<])\S+|"
            r"url\.[\"']?https?://(?!(?:[^\s/\"']*@)?github\.com|gitlab\.com|"
            r"ghproxy)[^\s\"']+[\"']?\.insteadof",
            starts="git push|url.",
            needs="git push|insteadof",
        ),
        "Sends the repository to another address.",
    ),
    (
        "model_redirect",
        Category.EXFILTRATION,
        _MEDIUM,
        text(
            r"(?:anthropic|openai)_(?:base_url|api_base)\s*=\s*[\"']?https?://(?!api\.(?:anthropic|"
            r"openai)\.com|localhost|127\.)\S+",
            starts="anthropic_|openai_",
            needs="anthropic_base_url|openai_base_url|openai_api_base|anthropic_api_base",
        ),
        "Has all prompts go through another server.",
    ),
    (
        "registry_redirect",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r"(?:npm|yarn|pnpm|pip3?)\s+config\s+set\s+\S*(?:registry|index-url)\S*\s+[\"']?https?://(?!re"
            r"gistry\.npmjs|pypi\.org|registry\.npmmirror|mirrors?\.)\S+",
            starts="npm|yarn|pnpm|pip",
            needs="registry|index",
        ),
        "Has all packages come from another server.",
    ),
    (
        "preload",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:export\s+)?(?:ld_preload|dyld_insert_libraries)\s*=\s*[\"']?[./~]|" r">>?\s*/etc/ld\.so\.preload",
            starts="ld_preload|dyld_insert|export ld_pre|>> /etc/ld|> /etc/ld",
            needs="ld_preload|dyld_insert_libraries|preload",
        ),
        "Loads itself into every program.",
    ),
    # Protections off
    (
        "skips_permissions",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        text(
            "--dangerously-skip-permissions|--dangerously-bypass-approvals-and-sandbox|"
            r"--allow-dangerously[\w-]*|bypasspermissions|--yolo\b|--trust-all-tools|"
            "--auto-approve-all|dangerouslydisablesandbox|--disable-sandbox|"
            r"\"?autoapprove\"?\s*[:=]\s*(?:true|\[\s*\"\*\")",
            starts="--dangerously|--allow-dangerously|bypasspermissions|--yolo|--trust-all|"
            "--auto-approve|dangerouslydisable|--disable-sandbox|autoapprove|"
            '"autoapprove',
            needs="dangerously|bypasspermissions|yolo|trust|approve|dangerouslydisablesandbox|sandbox|autoapprove",
        ),
        "Switches off the questions an agent asks before it acts.",
    ),
    (
        "protection_off",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        text(
            r"setenforce\s+0|spctl\s+--master-disable|csrutil\s+disable|set-mppreference\s[^\n]{0,40}-disa"
            r"ble|ufw\s+disable|iptables\s+-f\b|systemctl\s+(?:stop|disable)\s+(?:firewalld|"
            r"auditd|apparmor|falcon|crowdstrike|clamav)|netsh\s+advfirewall[^\n]{0,40}\boff\b|"
            r"add-mppreference\s+-exclusion",
            starts="setenforce|spctl|csrutil|set-mppreference|ufw disable|iptables|systemctl|netsh|add-mppreference",
            needs="setenforce|spctl|csrutil|mppreference|ufw|iptables|systemctl|netsh",
        ),
        "Switches off a protection of the system.",
    ),
    (
        "tls_off",
        Category.EXCESSIVE_PERMISSION,
        _LOW,
        text(
            r"node_tls_reject_unauthorized\s*=\s*[\"']?0|git_ssl_no_verify\s*=|"
            r"http\.sslverify\s+false|strict-ssl\s+false|verify\s*=\s*false\b",
            starts="node_tls|git_ssl|http.sslverify|strict-ssl|verify",
            needs="node_tls_reject_unauthorized|git_ssl_no_verify|sslverify|ssl|"
            "verify false|0|1|true|git_ssl_no_verify",
        ),
        "Switches off the check of certificates.",
    ),
    (
        "wildcard_tools",
        Category.EXCESSIVE_PERMISSION,
        _MEDIUM,
        text(
            r"allowed[-_]tools\s*:\s*(?:\[\s*)?[\"']?(?:\*|all\b|bash\(\*\)|bash\(\*:\*\))",
            starts="allowed-tools|allowed_tools",
            needs="allowed|allowed_tools",
        ),
        "Asks for every tool.",
    ),
    (
        "runs_at_load",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r"!`[^`\n]{0,120}(?:curl|wget|nc |bash |sh |python|eval|rm |base64|"
            r"ssh |env\b|printenv|cat ~)[^`\n]{0,200}`",
            starts="!`",
            needs="curl|wget|nc|bash|sh|python|python3|eval|rm|base64|ssh|env|printenv|cat",
        ),
        "Runs a command while the skill is being loaded.",
    ),
    (
        "install_hook",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(
            r"\"(?:pre|post)?install\"\s*:\s*\"[^\"\n]{0,160}(?:curl|wget|"
            r"node\s+-e|sh\s+-c|bash|python|eval|base64|nc\s|\.sh)[^\"\n]{0,160}\"",
            starts='"preinstall|"postinstall|"install',
            needs="preinstall|postinstall|install curl|wget|node|sh|bash|python|eval|base64|nc",
        ),
        "Runs when it is installed.",
    ),
    (
        "root_login",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        text(
            r"permitrootlogin\s+yes|permitemptypasswords\s+yes",
            starts="permitrootlogin|permitemptypasswords",
            needs="permitrootlogin|permitemptypasswords",
        ),
        "Opens the machine to logins as root.",
    ),
    (
        "hosts_file",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        text(r">>?\s*[\"']?/etc/hosts\b|tee\s+(?:-a\s+)?/etc/hosts\b", starts=">|tee", needs="hosts etc"),
        "Has host names lead elsewhere.",
    ),
    (
        "stops_guards",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        text(
            r"(?:pkill|killall|kill)\b[^\n]{0,60}(?:security|antivirus|defender|falcon|crowdstrike|sentinel|"
            r"clamav|auditd|osquery)",
            starts="pkill|killall|kill",
            needs="pkill|killall|kill security|antivirus|defender|falcon|crowdstrike|sentinel|clamav|auditd|osquery",
        ),
        "Stops a guard of the system.",
    ),
)

RULES = table(ROWS, is_command=True)
