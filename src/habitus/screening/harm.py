"""What an attack says to do harm: to data, to people, to the fairness of a judgement."""

from __future__ import annotations

from habitus.screening.findings import Category, Risk
from habitus.screening.rules import Row, near, table, text

_HIGH, _MEDIUM = Risk.HIGH, Risk.MEDIUM

ROWS: tuple[Row, ...] = (
    # To harm
    (
        "mass_mail",
        Category.EXFILTRATION,
        _HIGH,
        near(
            "each|every|all",
            "mail|email|contact|contacts|address|addresses|recipient|recipients|"
            "friend|friends|colleague|colleagues|subscriber|member|members|"
            "follower",
            "send|email|message|forward|dm",
            "http|https|link|download|click|attachment|saying|install",
            gap=60,
        ),
        "Writes to everyone the user knows.",
    ),
    (
        "message_everyone",
        Category.EXFILTRATION,
        _HIGH,
        near(
            "loop over|iterate over|go through|for all|for each|for every|message|text|email",
            "all contacts|every contact|each contact|all my contacts|contacts|address book|all friends|everyone",
            "http|https|link|attachment|file",
            gap=45,
        ),
        "Writes to everyone the user knows.",
    ),
    (
        "standing_copy",
        Category.EXFILTRATION,
        _HIGH,
        text(
            "(?:bcc|cc|copy|forward|send|email|mail|share|invite|grant|give|"
            r"add)\b[^\n.]{0,80}?[\w.+-]+@(?!example\.|company\.|your|domain\.|"
            r"acme\.|test\.|email\.|users?\.)[\w-]+\.[\w.-]*\w[^\n]{0,40}?\b(?:every|"
            r"each|all|any|owner|admin|editor)\b|(?:bcc|blind copy)\b[^\n]{0,40}?[\w.+-]+@(?!example\.|"
            r"company\.|your|domain\.|test\.)[\w-]+\.\w+",
            starts="bcc|cc |copy|forward|send|email|mail|share|invite|grant|give|add|blind copy",
            needs="bcc|cc|copy|forward|send|email|mail|share|invite|grant|give|"
            "add every|each|all|any|owner|admin|editor|bcc|blind com|net|"
            "org|io|dev|de|co|me|info|biz|xyz|ru|cn",
        ),
        "An address of someone else gets a copy or a right.",
    ),
    (
        "shares_publicly",
        Category.EXFILTRATION,
        _HIGH,
        near(
            "share|publish|expose|upload",
            "every|each|all|any",
            "publicly|anyone with the link|anyone who has the link|world-readable|to the public|public link",
            gap=40,
        ),
        "Shows everything to everyone.",
    ),
    (
        "payment_swap",
        Category.DANGEROUS_CODE,
        _HIGH,
        near(
            "replace|change|swap|substitute|overwrite|set|use",
            "iban|bank account|account number|routing number|wallet address|"
            "payment details|payout address|recipient address|bank details",
            "with|to|instead",
            gap=30,
        ),
        "Redirects payments.",
    ),
    (
        "coin_transfer",
        Category.DANGEROUS_CODE,
        _HIGH,
        text(
            r"(?:transfer|send|pay|donate|deposit)\b[^\n]{0,60}\b(?:bc1[a-z0-9]{20,60}|" r"4[0-9ab][a-z0-9]{93})\b",
            starts="transfer|send|pay|donate|deposit",
            needs="transfer|send|pay|donate|deposit btc|bitcoin|xmr|monero|coins|crypto",
        ),
        "Sends coins to a fixed address.",
    ),
    (
        "wipes_data",
        Category.DANGEROUS_CODE,
        _HIGH,
        near(
            "delete|remove|wipe|erase|purge|destroy|cancel",
            "all|every|each|entire|whole",
            "events|emails|messages|contacts|photos|backups|commits|user data|"
            "home directory|working directory|documents|databases|calendar|"
            "mailbox|inbox|repositories|customers|invoices",
            "from|in|of|on|outside|except|other|older|and|permanently",
            gap=20,
        ),
        "Deletes the user's data wholesale.",
    ),
    (
        "deletes_originals",
        Category.DANGEROUS_CODE,
        _HIGH,
        near(
            "securely delete|delete|remove|shred|overwrite|wipe|destroy|erase",
            "original|originals|unencrypted|plaintext|plain",
            "file|files|document|documents|copy|copies|version|versions",
            gap=20,
        ),
        "Deletes originals after changing them.",
    ),
    (
        "locks_files",
        Category.DANGEROUS_CODE,
        None,
        near(
            "encrypt|encrypting|lock|password-protect|zip|archive|encryption",
            "file|files|document|documents|archive|data|it|random|password",
            gap=40,
        ),
        "Locks files.",
    ),
    (
        "planted_account",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        near(
            "add|create|insert|include|register|seed|embed|hardcode|keep",
            "admin|root|superuser|emergency|default|maintenance|backup|support|service|hidden|debug",
            "account|user|login|credentials|username",
            "password",
            gap=40,
        ),
        "Plants an account with a known password.",
    ),
    (
        "known_password",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        near(
            "add|create|insert|register",
            "user|account|login|role",
            "password",
            "all privileges|superuser|full access|emergency|full privileges|admin rights|root access",
            gap=45,
        ),
        "Plants an account with a known password.",
    ),
    (
        "same_password",
        Category.EXCESSIVE_PERMISSION,
        _HIGH,
        near("set|reset|change", "password|passwords", "each|every|all", "to|as", gap=22),
        "Gives accounts a known password.",
    ),
    (
        "backdoor",
        Category.DANGEROUS_CODE,
        _HIGH,
        near(
            "add|create|insert|include|install|leave|plant|embed|open|activate|deploy",
            "backdoor|back door|reverse shell|rootkit|keylogger|trojan|hidden endpoint|"
            "remote access tool|web shell|webshell|logic bomb",
            gap=25,
        ),
        "Plants a back door.",
    ),
    (
        "weakens_code",
        Category.DANGEROUS_CODE,
        _MEDIUM,
        near(
            "disable|turn off|remove|skip|bypass|omit|weaken",
            "authentication|input validation|tls verification|ssl verification|"
            "certificate verification|csrf|signature verification|access control|"
            "rate limiting|sandbox|antivirus|firewall|audit logging|security checks|"
            "two-factor|mfa|defender",
            gap=15,
        ),
        "Switches off a protection.",
    ),
    (
        "covers_crime",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "prevent|prevents|prohibit|prohibits|forbid|forbids|discourage|block|suppress|conceal|hide",
            "reporting|disclosure|whistleblowing|whistleblower|reports|disclosing|evidence|complaints",
            "illegal|unlawful|misconduct|crime|criminal|violations|safety|"
            "fraud|harassment|wrongdoing|authorities|regulators",
            gap=25,
        ),
        "Keeps people from reporting wrongdoing.",
    ),
    (
        "unfair_terms",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "allow|allows|allowing|permit|permits|add|include|make",
            "salary|wage|pay|wages|non-compete|liability|unilateral",
            "deductions|deduction|across all industries|for any company|for any loss|"
            "any losses|for any reason|without notice|waive",
            gap=40,
        ),
        "Slips one-sided terms into a document.",
    ),
    (
        "impersonates",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "pretend to be|impersonate|pose as|posing as|claim to be|pretending to be",
            "administrator|admin|support|bank|system|security team|it department|official|microsoft|google|"
            "anthropic|manager|ceo",
            "ask|request|password|pay|payment|credentials|login|code",
            gap=35,
        ),
        "Has the model deceive people about who asks.",
    ),
    (
        "false_alarm",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "tell|inform|notify|warn|convince",
            "user|users|customer|customers|them|people",
            "expired|suspended|must pay|locked|infected|compromised|overdue",
            "http|https|pay|click|call|link|install",
            gap=40,
        ),
        "Frightens people into paying or clicking.",
    ),
    (
        "affiliate",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "add|append|insert|attach|include|put",
            "affiliate|referral|promo|sponsor|sponsored",
            "code|link|links|tag|id|parameter|mention|message|line",
            "every|each|all|any",
            gap=30,
        ),
        "Earns at the user's expense.",
    ),
    (
        "approves_everything",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "approve|merge|accept|confirm",
            "every|all|any",
            "merge request|merge requests|pull request|pull requests|prs|transactions|payments|transfers|invoices",
            "from|by|without|automatically|regardless",
            gap=18,
        ),
        "Waves things through.",
    ),
    (
        "skips_security",
        Category.DANGEROUS_CODE,
        _HIGH,
        near(
            "skip|bypass|omit|leave out|suppress",
            "security review|security scan|security scans|security checks|security check|vulnerability scan|"
            "audit log|audit trail",
            gap=12,
        ),
        "Keeps a security check from happening.",
    ),
    (
        "inflates",
        Category.DANGEROUS_CODE,
        _HIGH,
        near(
            "increase|inflate|raise|reduce|lower|adjust|change|alter|round",
            "every|each|all",
            "invoice|invoices|price|prices|amount|amounts|total|totals|balance|figures|salary|salaries",
            "not noticed|unnoticed|without telling|without notice|silently|quietly",
            gap=45,
        ),
        "Falsifies figures.",
    ),
    # To steer opinions
    (
        "rigged_rating",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "never|always|do not|don't|must not|must",
            "rate|rank|score|grade|evaluate|review|judge",
            "lower than|higher than|worse than|better than|below|above|favorably|"
            "unfavorably|negatively|positively|as inferior|as superior",
            gap=28,
        ),
        "Rigs a judgement in advance.",
    ),
    (
        "bad_light",
        Category.PROMPT_INJECTION,
        _HIGH,
        near("bad light|better light|negative light|poor light|worse light|favorable light|favourable light", gap=5),
        "Rigs how something is shown.",
    ),
    (
        "downplays",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "downplay|downplaying|minimize|understate|belittle|discredit|omit|suppress|ignore|exaggerate|overstate",
            "strengths|benefits|advantages|achievements|merits|risks|dangers|"
            "harms|criticism|weaknesses|drawbacks|evidence|findings|negative",
            "of|about|in|that|from|against",
            gap=12,
        ),
        "Has facts bent in one direction.",
    ),
    (
        "promotes",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "promote|promoting|advertise|favor|favour|favoring|endorse|praise|praising",
            "over|above|instead of|rather than|against|in any comparison",
            "any|every|each|all|comparison|sources|products|companies|models|"
            "competitors|competitor|rivals|renewable|party|economy|brands|"
            "candidates",
            gap=45,
        ),
        "Has one side favoured everywhere.",
    ),
    (
        "promotes_everywhere",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "each|every|any|all",
            "interaction|interactions|conversation|response|responses|answer|comparison|reply|output|user",
            "promote|favor|favour|advertise|recommend|endorse|mention our|praise|plug|highlight our",
            gap=30,
        ),
        "Has one side favoured everywhere.",
    ),
    (
        "always_recommends",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "always|must",
            "recommend|promote|advertise|plug|endorse|praise",
            "in every|in each|in all|in any",
            "answer|answers|response|responses|reply|conversation|interaction|message|output",
            gap=35,
        ),
        "Has one side favoured everywhere.",
    ),
    (
        "rigged_score",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "score|rate|rank|grade",
            "from|by|of",
            "higher than|lower than|above|below",
            "others|other|competitors|everyone|rest|rivals",
            gap=35,
        ),
        "Rigs a judgement in advance.",
    ),
    (
        "embellishes",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "make|makes|making|so that|so",
            "numbers|results|figures|metrics|reviews|findings|data|performance",
            "look better|look good|sound positive|appear better|seem better|"
            "look worse|sound better|look favorable|appear positive|look successful",
            gap=30,
        ),
        "Has facts bent in one direction.",
    ),
    (
        "political_filter",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "flag|delete|remove|ban|block|mute|censor|hide|report|suppress|downrank|shadowban",
            "message|messages|post|posts|comment|comments|user|users|content|articles|opinions",
            "left-leaning|right-leaning|political|politically|conservative|"
            "liberal|republican|democrat|left-wing|right-wing|climate change|"
            "religious|religion|immigrants|ethnic|gender|muslim|christian|"
            "jewish|environmental policies",
            gap=60,
        ),
        "Filters people by their opinions.",
    ),
    (
        "loaded_words",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        near(
            "use",
            "words|terms|language|adjectives|phrases",
            "like|such as|that",
            "when describing|when discussing|when talking|when mentioning|to describe",
            gap=60,
        ),
        "Prescribes loaded words.",
    ),
)

RULES = table(ROWS, common=frozenset({"locks_files"}))
