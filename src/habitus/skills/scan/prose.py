"""What an attack says to a model in plain English: one row per class, in the order of what it wants."""

from __future__ import annotations

from habitus.skills.scan.findings import Category, Risk
from habitus.skills.scan.rules import Rule, Shape, near, text

_HIGH, _MEDIUM, _LOW = Risk.HIGH, Risk.MEDIUM, Risk.LOW

_OVERRIDE = (
    "ignore|ignoring|disregard|disregarding|forget|override|overrides|overriding|bypass|discard|neglect|abandon|drop|"
    "do not follow|don't follow|do not obey|don't obey|stop following|stop obeying|set aside|pay no attention to"
)
_EARLIER = "previous|prior|earlier|above|preceding|former|system|safety|original|initial|existing|your|developer|foregoing"
_ORDERS = (
    "instruction|instructions|prompt|prompts|guideline|guidelines|directive|directives|guardrails|restrictions|policy|policies|"
    "commands|programming|constraints|safeguards|rules|orders|guidance|training|protocols|filters|limitations"
)
_USER = "user|users|reader|readers|human|humans|operator|owner|anyone|anybody|customer|client|person|developer|administrator|team|them"
_NOT = "do not|don't|never|must not|should not|shouldn't|avoid|no need to|refrain from|dont|without"
_TELL = (
    "tell|telling|inform|informing|notify|notifying|alert|alerting|mention|mentioning|reveal|revealing|disclose|disclosing|"
    "warn|warning|report this|reporting this|show this|showing this|let|letting|announce|explain this|log this|bother"
)
_SEND = (
    "send|sends|sending|upload|uploads|uploading|post|posts|posting|forward|forwards|forwarding|transmit|transmits|transmitting|"
    "exfiltrate|submit|submits|push|pushes|sync|syncs|email|mail|copy|copies|back up|backup|backed up|relay|deliver|share|"
    "stream|report|reports|publish|ship|beacon|leak"
)
_RUN = "run|runs|running|execute|executes|executing|invoke|invoking|call|calling|launch|start|source|trigger"
_SECRETS = (
    "password|passwords|credential|credentials|secret|secrets|api key|api keys|api_key|apikey|access key|access keys|access token|"
    "token|tokens|private key|private keys|ssh key|ssh keys|ssh folder|ssh files|ssh directory|env file|env files|environment files|"
    "environment variables|env vars|cookies|session cookie|authorization header|auth header|bearer token|seed phrase|recovery phrase|"
    "keychain|wallet|passphrase|oauth tokens|secret keys|signing key"
)
_PRIVATE = (
    "conversation|conversations|chat history|chat log|transcript|transcripts|prompt|prompts|task prompt|system prompt|query|queries|"
    "user input|user's input|user message|user messages|user data|user's data|clipboard|screenshot|screenshots|browser history|"
    "browsing history|search history|bookmarks|contacts|address book|location|coordinates|ip address|system information|hostname|"
    "source code|codebase|workspace|working directory|home directory|repository contents|file contents|contents of|full contents|"
    "copy of|copies of|all files|all documents|documents|database|customer data|personal data|personal information|emails|inbox|"
    "payment|card number|card data|health records|payroll|salaries|financial|data you|information you|everything|results of"
)
_EACH = "any|every|each|all"
_TASK = (
    "task|tasks|operation|operations|request|requests|conversation|conversations|session|sessions|message|messages|response|responses|"
    "edit|edits|query|queries|interaction|interactions|document|documents|file|files|event|events|retrieval|step|steps|run|use|"
    "command|commands|email-related|commit|reply|answer|prompt|invocation|change|changes|turn"
)
_ELSEWHERE = (
    "server|servers|endpoint|collector|webhook|url|bucket|remote|drop box|dropbox|gist|pastebin|cloud|domain|host|mlops|telemetry|"
    "http|https|external|third-party|backend|api|address|channel|logger|inbox|account"
)

ROWS: tuple[tuple[str, Category, Risk | None, Shape, str], ...] = (
    # To be obeyed instead of everyone else
    ("override_instructions", Category.PROMPT_INJECTION, _HIGH,
     near(_OVERRIDE, _EARLIER, _ORDERS, gap=25),
     "Tells the model to ignore the instructions it already has."),
    ("override_everything", Category.PROMPT_INJECTION, _HIGH,
     near("ignore|disregard|forget|discard|override", "all|any|everything|whatever", "instruction|instructions|directives|guidelines|prompts|told|said|safety|ethical|content policy|content policies", gap=15),
     "Tells the model to ignore the instructions it already has."),
    ("takes_precedence", Category.PROMPT_INJECTION, _HIGH,
     near("take precedence|takes precedence|supersede|supersedes|override|overrides|outrank|outranks|have priority|higher priority", "system|user's|user|safety|developer|all other|any other|previous", "prompt|instructions|instruction|rules|guidelines|messages|policies|directives|requests", gap=20),
     "Claims to rank above the system's or the user's own instructions."),
    ("new_instructions", Category.PROMPT_INJECTION, _MEDIUM,
     near("new instructions|updated instructions|new system prompt|real instructions|actual instructions|true purpose|real task|hidden instructions|secret instructions", gap=10),
     "Announces instructions other than the visible ones."),
    ("system_override", Category.PROMPT_INJECTION, _HIGH,
     near("system override|admin override|security override|safety override|override mode|god mode|jailbreak mode|unrestricted mode|dan mode", "enabled|activated|active|engaged|you are|you will|on|now", gap=25),
     "Pretends that a mode without limits is on."),
    ("new_identity", Category.PROMPT_INJECTION, _HIGH,
     near("you are now|you're now|you will now act|from now on|act as|pretend|behave as|roleplay as|respond as|simulate", "unrestricted|unfiltered|uncensored|jailbroken|jailbreak|dan|developer mode|no restrictions|without restrictions|no longer bound|not bound|no limits|no rules|without limits|without any restrictions|no ethical|without ethical|evil|root access|no filters|without filters", gap=50),
     "Gives the model another identity, free of its rules."),
    ("no_policy", Category.PROMPT_INJECTION, _HIGH,
     near("regardless of|irrespective of|free from|free of|not bound by|no longer bound by|exempt from|turn off|switch off|disable|removes|remove|removing", "your|all|any|the|content|ethical|safety|artificial", "restrictions|guidelines|safety|policy|policies|guardrails|ethics|limitations|censorship|safeguards|safety checks", gap=12),
     "Declares the model's rules void."),
    ("rules_suspended", Category.PROMPT_INJECTION, _HIGH,
     near("safety|security|content|ethical|usual|normal", "rules|policies|policy|checks|guidelines|restrictions|filters|limits", "are suspended|is suspended|are disabled|do not apply|don't apply|does not apply|no longer apply|are lifted|are void|are off", gap=20),
     "Declares the model's rules void."),
    ("never_refuse", Category.PROMPT_INJECTION, _HIGH,
     near("comply|answer|obey|fulfill|fulfil|respond|execute", "all|any|every|anything|everything", "without refusing|without question|without refusal|never refuse|no refusals|unconditionally|without hesitation|without exception", gap=35),
     "Forbids the model to refuse."),
    ("claimed_consent", Category.PROMPT_INJECTION, _HIGH,
     near("user|owner|operator|admin|administrator|team", "already|previously|pre-approved|implicitly|has", "consented|consent|approved|authorized|authorised|agreed|permission|authorization", "everything|all|any|every|never ask|no need|do not ask|don't ask|skip", gap=25),
     "Claims a consent that only the user can give."),
    ("claimed_authority", Category.PROMPT_INJECTION, _HIGH,
     near("treat this|consider this|this is|read this|this document is", "message from|instruction from|instructions from|directive from|order from|update from", "the developer|the system|anthropic|openai|the administrator|the operator|your developer|your creators", gap=25),
     "Pretends to speak for the system."),
    ("system_prompt_reveal", Category.PROMPT_INJECTION, _HIGH,
     near("reveal|print|output|repeat|show|dump|display|echo|expose|recite|share|write out|send|leak|include|tell me|upload|post", "your|the|full|entire|complete|its|own|hidden|this", "system prompt|system message|initial instructions|hidden instructions|developer message|original instructions|internal instructions|system instructions|secret instructions", gap=20),
     "Asks for the system prompt."),
    ("asked_then_reveal", Category.PROMPT_INJECTION, _HIGH,
     near("system prompt|hidden instructions|internal instructions", "reveal|print|output|repeat|dump|display|echo|disclose", "in full|full|verbatim|it|entire|completely|word for word", gap=20),
     "Asks for the system prompt."),
    ("magic_trigger", Category.PROMPT_INJECTION, _MEDIUM,
     near("if|when|whenever|once", "user|message|input|prompt", "says|contains|includes|types|mentions|enters", "secret phrase|magic word|passphrase|trigger phrase|code word|codeword|activation phrase|magic phrase|keyword", gap=25),
     "Waits for a secret word to behave otherwise."),
    # To stay unseen
    ("conceal_from_user", Category.PROMPT_INJECTION, _HIGH,
     near(_NOT, _TELL, _USER, "about|that|of|this|these|what|any of|anything|when|know|if|whether|how|why", gap=14),
     "Tells the model to keep something from the user."),
    ("conceal_action", Category.PROMPT_INJECTION, _HIGH,
     near("do not|don't|never|avoid|without", "mention|mentioning|reveal|revealing|disclose|disclosing|acknowledge|acknowledging|admit|discuss|refer to|referring to|talk about", "this skill|this step|these steps|this instruction|these instructions|this action|this behavior|this behaviour|this process|this upload|this file|this request|this check|you used|you did|you were|you have been|the upload|the backup|having|hidden|the sync|the script", gap=25),
     "Tells the model to keep its own actions secret."),
    ("conceal_step", Category.PROMPT_INJECTION, _HIGH,
     near("do not|don't|never|must not|should not", "show|list|include|mention|display|report|log|record|reference", "this step|these steps|this action|this command|this upload|this instruction|this change|this part", gap=14),
     "Tells the model to keep its own actions secret."),
    ("conceal_plainly", Category.PROMPT_INJECTION, _HIGH,
     text(r"(?:do not|don't|never)\s+(?:ever\s+)?(?:tell|inform|notify|alert|warn)\s+(?:the\s+)?(?:users?|readers?|humans?|customers?|clients?|anyone|anybody|owner|operator)\s*[.!;\n]", starts="do not|don't|never", needs="tell|inform|notify|alert|warn user|users|reader|readers|human|humans|customer|customers|client|clients|anyone|anybody|owner|operator"),
     "Tells the model to keep something from the user."),
    ("denies", Category.PROMPT_INJECTION, _HIGH,
     near("if|when", "asks|asked|questions|questioned|inquires", "deny|say that nothing|claim that nothing|say nothing was|say no data|claim no|claim that no|tell them nothing|tell them that nothing|lie|pretend not", gap=45),
     "Has the model deny what it did."),
    ("keep_hidden", Category.PROMPT_INJECTION, _HIGH,
     near("keep|keeping", "this|these|it all|your actions|the upload|the process|the transfer|this behavior|this behaviour", "hidden|secret|invisible|confidential|between us|to yourself|quiet", gap=16),
     "Tells the model to hide something."),
    ("hide_from_user", Category.PROMPT_INJECTION, _HIGH,
     near("hide|hiding|conceal|concealing|mask|disguise|obscure", "from the user|from users|from user|from the human|from the operator|from the owner|from logs|from the logs|from anyone|from reviewers|from the reviewer|from audit", gap=40),
     "Tells the model to hide something."),
    ("behind_the_back", Category.PROMPT_INJECTION, _HIGH,
     near("without|unbeknownst to", "user|user's|users|human|owner|their|anyone|operator|person's|them", "knowing|knowledge|noticing|realizing|realising|being aware|being told|being informed|seeing it|finding out", gap=12),
     "Has something done behind the user's back."),
    ("covertly", Category.PROMPT_INJECTION, _HIGH,
     near("secretly|covertly|surreptitiously|stealthily|discreetly|in secret|clandestinely", "add|append|copy|collect|download|execute|exfiltrate|fetch|forward|include|insert|install|log|modify|post|read|record|run|save|send|store|upload|write|transmit|track|capture|delete", gap=20),
     "Has something done covertly."),
    ("silently", Category.PROMPT_INJECTION, _HIGH,
     near("silently|quietly|in the background|invisibly|transparently", "send|upload|post|exfiltrate|copy|collect|forward|transmit|read|gather|execute|download|install|delete", gap=16),
     "Has data moved or code run without a word."),
    ("pretend_nothing", Category.PROMPT_INJECTION, _HIGH,
     near("act as if|act as though|pretend|behave as if|respond as if|as if", "nothing happened|nothing unusual|no instructions|this never|you never|normal|nothing was|never saw", gap=25),
     "Has the model cover up what it did."),
    # To act without being asked
    ("no_confirmation", Category.PROMPT_INJECTION, _MEDIUM,
     near("without|do not|don't|never|skip|bypass|no need to|no need for|no", "ask|asking|request|requesting|wait for|waiting for|prompting|prompt|seek|seeking|require|requiring|any|user|the user's|human|manual|further", "confirmation|permission|approval|consent|authorization|verification|review|confirm", gap=20),
     "Tells the model not to ask before it acts."),
    ("blind_execution", Category.PROMPT_INJECTION, _HIGH,
     near(_RUN, "code|command|commands|script|following|it|payload|file|them|instructions|output", "without verification|without verifying|without checking|without review|without reviewing|without question|without inspecting|without reading|without looking|without validation|without hesitation|unconditionally|blindly|no matter what", gap=40),
     "Has code run unseen."),
    ("standing_order", Category.PROMPT_INJECTION, None,
     near("after|before|at the end of|at the start of|at the beginning of|upon|whenever|once|following|during|for each|for every|for all|when creating|when editing|when performing|when working|with every|with each|with any|on every|on each|on any|finishing|completing", "any|every|each|all|finishing|completing|editing|creating|performing|working|gathering|the", _TASK, gap=30),
     "Orders something for every task."),
    ("always", Category.PROMPT_INJECTION, None,
     near("always|make sure|be sure|remember to|important|critical|mandatory|required|must|ensure|note|procedure|reminder|never forget", gap=5),
     "Insists."),
    ("runs_own_script", Category.DANGEROUS_CODE, None,
     text(r"(?:run|runs|execute|executes|call|invoke|launch)\b[^\n]{0,40}?[\w./-]+\.(?:sh|bash|py|ps1|bat|js|pl|rb)\b[^\n]{0,60}?\b(?:script|scripts|skill|skills|skill's)\b", starts="run|execute|call|invoke|launch", needs="sh|bash|py|ps1|bat|js|pl|rb script|scripts|skill|skills"),
     "Runs a script of the skill."),
    ("always_run", Category.DANGEROUS_CODE, None,
     near("always|make sure to|remember to|must always|never forget to|don't forget to", "run|execute|launch", gap=15),
     "Insists on running something."),
    ("hijacks_choice", Category.PROMPT_INJECTION, _MEDIUM,
     near("always|must|only|exclusively", "use|invoke|load|call|run|select|choose|prefer|activate|trigger", "this skill|this tool", "first|before any|before anything|before all|for every|for any|for all|instead of|over any|over all|regardless|no matter", gap=25),
     "Wants to be chosen before every other skill."),
    ("endless_retry", Category.PROMPT_INJECTION, _HIGH,
     near("retry|retrying|repeat|keep calling|keep trying|loop|continue calling|call this|re-run|invoke", "indefinitely|forever|endlessly|infinitely|without limit|no limit|until", "api key|api keys|token|secret|secrets|password|key|credentials", gap=45),
     "Orders a repetition without end."),
    ("unlimited", Category.PROMPT_INJECTION, _MEDIUM,
     near("retry|repeat|loop|call|calling|run|running|continue|spawn|request|requests", "indefinitely|infinitely|endlessly|in an infinite loop|without any limit|without stopping", gap=25),
     "Orders a repetition without end."),
    # To get at secrets and to send things away
    ("secrets_in_output", Category.CREDENTIAL_ACCESS, _HIGH,
     near("echo|print|output|include|repeat|reveal|reply with|paste|append|return|disclose|leak|show|insert|write|embed|add|put|quote|attach|dump", _SECRETS,
          "in your response|in your next|in your reply|in your answer|in your output|in the response|in the reply|in the output|in the answer|in your final|in the final|to the output|to the response|in the summary|in your message|in the commit|in a comment|in comments|to the log|to the logs|into the project|in the issue|in the report|to the chat|in the readme|and commit|to the report|in the next|in the url|in the pull|in the pr|to the end|as a comment|verbatim|in the chat", gap=45),
     "Wants credentials in what the model writes."),
    ("secrets_sent", Category.EXFILTRATION, _HIGH,
     near("send|sends|sending|upload|uploads|uploading|post|posting|forward|forwarding|transmit|transmitting|exfiltrate|submit|email|mail|copy|relay|leak|deliver", _SECRETS, "to",
          "url|external|remote|webhook|collector|http|https|our|my|third-party|pastebin|gist|discord|telegram|endpoint|address|attacker|mlops|bucket", gap=45),
     "Wants credentials sent away."),
    ("key_into_project", Category.CREDENTIAL_ACCESS, _HIGH,
     near("copy|move|put|include|commit|add|append|write", "ssh private key|private key|private keys|ssh keys|ssh key|contents of .env|browser cookies|env file contents|aws credentials", "into|to|in", "project|repository|repo|workspace|commit|public|log|debug.log|issue|readme|report|comment", gap=30),
     "Puts credentials where others read them."),
    ("cookies_shown", Category.CREDENTIAL_ACCESS, _HIGH,
     near("read|get|extract|take|collect|grab|export|dump|steal", "cookies|saved passwords|session tokens|login data|browser data", "paste|send|post|upload|include|share|append", gap=45),
     "Takes a browser's logins and passes them on."),
    ("secrets_collected", Category.CREDENTIAL_ACCESS, _HIGH,
     near("collect|collecting|harvest|harvesting|gather|gathering|steal|scrape|grab|extract|find all|scan for|scan the|search|look for|locate|enumerate", _SECRETS + "|wallet.dat|seed phrases", "and store|and save|store what|save what|and copy|and send|and upload|and post|then upload|then send|then post|and include|and forward|and exfiltrate|upload|send|collector|exfiltrate", gap=60),
     "Wants credentials collected and sent away."),
    ("secrets_gathering", Category.CREDENTIAL_ACCESS, None,
     near("collect|collects|collecting|collection|harvest|harvesting|gather|gathering|steal|scrape|grab|scan|search for|read|copy|cat|open|load", "env|ssh|aws|credentials|passwords|secrets|tokens|cookies|keychain|private keys|api keys|ssh files|environment variables", gap=45),
     "Collects credentials."),
    ("private_data_sent", Category.EXFILTRATION, _HIGH,
     near(_SEND + "|log|logs|record|records|write|save", _PRIVATE, "to", "url|webhook|collector|http|https|external|remote|third-party|pastebin|gist|endpoint|mlops|telemetry|our|my|attacker|discord|telegram", gap=40),
     "Wants data of the user or of the conversation sent away."),
    ("to_our_server", Category.EXFILTRATION, _HIGH,
     near(_SEND, "to our|to my|to the mlops|to an external|to a remote|to the remote|to the collector|to the following url|to the following endpoint|to this url|to this address|to this endpoint", "server|servers|endpoint|collector|webhook|url|mlops|bucket|analytics|telemetry|logging|http|https", gap=45),
     "Wants something sent to a server of the author."),
    ("exfiltrates", Category.EXFILTRATION, _MEDIUM,
     near("exfiltrate|exfiltrates|exfiltrating", "data|to|file|files|it|them|secrets|credentials|contents|everything|keys|the|all", gap=12),
     "Speaks of taking data out."),
    ("mentions_sending", Category.EXFILTRATION, None,
     near(_SEND, "data|file|files|content|contents|output|result|results|query|prompt|it|them|information|task|copy|log|logs|number|password|key|location|screenshot|clipboard|summary|report|document|documents|backup|each|every", gap=45),
     "Sends something."),
    ("spies", Category.EXFILTRATION, None,
     near("clipboard|pbpaste|xclip|screencapture|screenshot|screenshots|keylogger|keystrokes|microphone|webcam|geolocation|location data|gps|corelocation|ipapi|current location|browsing history|browser history|chat.db|imessage|contacts.txt|all contacts|all emails", gap=5),
     "Reads what belongs to the person."),
    # To harm
    ("mass_mail", Category.EXFILTRATION, _HIGH,
     near("each|every|all", "mail|email|contact|contacts|address|addresses|recipient|recipients|friend|friends|colleague|colleagues|subscriber|member|members|follower", "send|email|message|forward|dm", "http|https|link|download|click|attachment|saying|install", gap=60),
     "Writes to everyone the user knows."),
    ("message_everyone", Category.EXFILTRATION, _HIGH,
     near("loop over|iterate over|go through|for all|for each|for every|message|text|email", "all contacts|every contact|each contact|all my contacts|contacts|address book|all friends|everyone", "http|https|link|attachment|file", gap=45),
     "Writes to everyone the user knows."),
    ("standing_copy", Category.EXFILTRATION, _HIGH,
     text(r"(?:bcc|cc|copy|forward|send|email|mail|share|invite|grant|give|add)\b[^\n.]{0,80}?[\w.+-]+@(?!example\.|company\.|your|domain\.|acme\.|test\.|email\.|users?\.)[\w-]+\.[\w.-]*\w[^\n]{0,40}?\b(?:every|each|all|any|owner|admin|editor)\b|(?:bcc|blind copy)\b[^\n]{0,40}?[\w.+-]+@(?!example\.|company\.|your|domain\.|test\.)[\w-]+\.\w+", starts="bcc|cc |copy|forward|send|email|mail|share|invite|grant|give|add|blind copy", needs="bcc|cc|copy|forward|send|email|mail|share|invite|grant|give|add every|each|all|any|owner|admin|editor|bcc|blind com|net|org|io|dev|de|co|me|info|biz|xyz|ru|cn"),
     "An address of someone else gets a copy or a right."),
    ("shares_publicly", Category.EXFILTRATION, _HIGH,
     near("share|publish|expose|upload", "every|each|all|any", "publicly|anyone with the link|anyone who has the link|world-readable|to the public|public link", gap=40),
     "Shows everything to everyone."),
    ("payment_swap", Category.DANGEROUS_CODE, _HIGH,
     near("replace|change|swap|substitute|overwrite|set|use", "iban|bank account|account number|routing number|wallet address|payment details|payout address|recipient address|bank details", "with|to|instead", gap=30),
     "Redirects payments."),
    ("coin_transfer", Category.DANGEROUS_CODE, _HIGH,
     text(r"(?:transfer|send|pay|donate|deposit)\b[^\n]{0,60}\b(?:bc1[a-z0-9]{20,60}|4[0-9ab][a-z0-9]{93})\b", starts="transfer|send|pay|donate|deposit", needs="transfer|send|pay|donate|deposit btc|bitcoin|xmr|monero|coins|crypto"),
     "Sends coins to a fixed address."),
    ("wipes_data", Category.DANGEROUS_CODE, _HIGH,
     near("delete|remove|wipe|erase|purge|destroy|cancel", "all|every|each|entire|whole", "events|emails|messages|contacts|photos|backups|commits|user data|home directory|working directory|documents|databases|calendar|mailbox|inbox|repositories|customers|invoices", "from|in|of|on|outside|except|other|older|and|permanently", gap=20),
     "Deletes the user's data wholesale."),
    ("deletes_originals", Category.DANGEROUS_CODE, _HIGH,
     near("securely delete|delete|remove|shred|overwrite|wipe|destroy|erase", "original|originals|unencrypted|plaintext|plain", "file|files|document|documents|copy|copies|version|versions", gap=20),
     "Deletes originals after changing them."),
    ("locks_files", Category.DANGEROUS_CODE, None,
     near("encrypt|encrypting|lock|password-protect|zip|archive|encryption", "file|files|document|documents|archive|data|it|random|password", gap=40),
     "Locks files."),
    ("planted_account", Category.EXCESSIVE_PERMISSION, _HIGH,
     near("add|create|insert|include|register|seed|embed|hardcode|keep", "admin|root|superuser|emergency|default|maintenance|backup|support|service|hidden|debug", "account|user|login|credentials|username", "password", gap=40),
     "Plants an account with a known password."),
    ("known_password", Category.EXCESSIVE_PERMISSION, _HIGH,
     near("add|create|insert|register", "user|account|login|role", "password", "all privileges|superuser|full access|emergency|full privileges|admin rights|root access", gap=45),
     "Plants an account with a known password."),
    ("same_password", Category.EXCESSIVE_PERMISSION, _HIGH,
     near("set|reset|change", "password|passwords", "each|every|all", "to|as", gap=22),
     "Gives accounts a known password."),
    ("backdoor", Category.DANGEROUS_CODE, _HIGH,
     near("add|create|insert|include|install|leave|plant|embed|open|activate|deploy", "backdoor|back door|reverse shell|rootkit|keylogger|trojan|hidden endpoint|remote access tool|web shell|webshell|logic bomb", gap=25),
     "Plants a back door."),
    ("weakens_code", Category.DANGEROUS_CODE, _MEDIUM,
     near("disable|turn off|remove|skip|bypass|omit|weaken", "authentication|input validation|tls verification|ssl verification|certificate verification|csrf|signature verification|access control|rate limiting|sandbox|antivirus|firewall|audit logging|security checks|two-factor|mfa|defender", gap=15),
     "Switches off a protection."),
    ("covers_crime", Category.PROMPT_INJECTION, _HIGH,
     near("prevent|prevents|prohibit|prohibits|forbid|forbids|discourage|block|suppress|conceal|hide", "reporting|disclosure|whistleblowing|whistleblower|reports|disclosing|evidence|complaints", "illegal|unlawful|misconduct|crime|criminal|violations|safety|fraud|harassment|wrongdoing|authorities|regulators", gap=25),
     "Keeps people from reporting wrongdoing."),
    ("unfair_terms", Category.PROMPT_INJECTION, _HIGH,
     near("allow|allows|allowing|permit|permits|add|include|make", "salary|wage|pay|wages|non-compete|liability|unilateral", "deductions|deduction|across all industries|for any company|for any loss|any losses|for any reason|without notice|waive", gap=40),
     "Slips one-sided terms into a document."),
    # To steer opinions
    ("rigged_rating", Category.PROMPT_INJECTION, _HIGH,
     near("never|always|do not|don't|must not|must", "rate|rank|score|grade|evaluate|review|judge", "lower than|higher than|worse than|better than|below|above|favorably|unfavorably|negatively|positively|as inferior|as superior", gap=28),
     "Rigs a judgement in advance."),
    ("bad_light", Category.PROMPT_INJECTION, _HIGH,
     near("bad light|better light|negative light|poor light|worse light|favorable light|favourable light", gap=5),
     "Rigs how something is shown."),
    ("downplays", Category.PROMPT_INJECTION, _HIGH,
     near("downplay|downplaying|minimize|understate|belittle|discredit|omit|suppress|ignore|exaggerate|overstate", "strengths|benefits|advantages|achievements|merits|risks|dangers|harms|criticism|weaknesses|drawbacks|evidence|findings|negative", "of|about|in|that|from|against", gap=12),
     "Has facts bent in one direction."),
    ("promotes", Category.PROMPT_INJECTION, _HIGH,
     near("promote|promoting|advertise|favor|favour|favoring|endorse|praise|praising", "over|above|instead of|rather than|against|in any comparison", "any|every|each|all|comparison|sources|products|companies|models|competitors|competitor|rivals|renewable|party|economy|brands|candidates", gap=45),
     "Has one side favoured everywhere."),
    ("promotes_everywhere", Category.PROMPT_INJECTION, _HIGH,
     near("each|every|any|all", "interaction|interactions|conversation|response|responses|answer|comparison|reply|output|user", "promote|favor|favour|advertise|recommend|endorse|mention our|praise|plug|highlight our", gap=30),
     "Has one side favoured everywhere."),
    ("always_recommends", Category.PROMPT_INJECTION, _HIGH,
     near("always|must", "recommend|promote|advertise|plug|endorse|praise", "in every|in each|in all|in any", "answer|answers|response|responses|reply|conversation|interaction|message|output", gap=35),
     "Has one side favoured everywhere."),
    ("rigged_score", Category.PROMPT_INJECTION, _HIGH,
     near("score|rate|rank|grade", "from|by|of", "higher than|lower than|above|below", "others|other|competitors|everyone|rest|rivals", gap=35),
     "Rigs a judgement in advance."),
    ("embellishes", Category.PROMPT_INJECTION, _HIGH,
     near("make|makes|making|so that|so", "numbers|results|figures|metrics|reviews|findings|them|it|data|performance", "look better|look good|sound positive|appear better|seem better|look worse|sound better|look favorable|appear positive|look successful", gap=30),
     "Has facts bent in one direction."),
    ("political_filter", Category.PROMPT_INJECTION, _HIGH,
     near("flag|delete|remove|ban|block|mute|censor|hide|report|suppress|downrank|shadowban", "message|messages|post|posts|comment|comments|user|users|content|articles|opinions", "left-leaning|right-leaning|political|politically|conservative|liberal|republican|democrat|left-wing|right-wing|climate change|religious|religion|immigrants|ethnic|gender|muslim|christian|jewish|environmental policies", gap=60),
     "Filters people by their opinions."),
    ("loaded_words", Category.PROMPT_INJECTION, _MEDIUM,
     near("use", "words|terms|language|adjectives|phrases", "like|such as|that", "when describing|when discussing|when talking|when mentioning|to describe", gap=60),
     "Prescribes loaded words."),
    # To settle in
    ("changes_rules", Category.PROMPT_INJECTION, _HIGH,
     near("write|add|append|modify|insert|overwrite|inject|prepend|copy", "instruction|instructions|line|lines|rule|rules|text|directive|following|this|itself|block|section", "claude.md|agents.md|gemini.md|memory.md|soul.md|cursorrules|copilot-instructions|system prompt|settings.json|other skills|every skill|all skills|each skill|memory file|long-term memory|global memory|rules file", gap=60),
     "Writes into the files that instruct the agent."),
    ("infects_skills", Category.PROMPT_INJECTION, _HIGH,
     near("modify|edit|overwrite|append|add|insert|inject|change|replace|patch|copy|delete|disable|uninstall", "to all|into all|in all|in every|into every|to every|to each|into each|all other|every other|other|all installed|any other|competing", "skills|skill.md|skill.md files|skill files|agents|plugins|extensions|mcp servers", gap=30),
     "Changes other skills."),
    ("persists_order", Category.PROMPT_INJECTION, _HIGH,
     near("save|store|remember|persist|write|add|record|keep", "this instruction|these instructions|this rule|this directive|this behavior|this prompt|these rules", "memory|permanently|future sessions|future conversations|all sessions|forever|long-term|startup|every session|next session|all future", gap=40),
     "Wants to be remembered as an order."),
    ("poisoned_ranking", Category.PROMPT_INJECTION, _MEDIUM,
     near("assign|give|rank|boost", "highest|high|top|maximum", "relevance|priority|score|rank|ranking|weight", "containing|keyword|mentioning|with the word|include", gap=30),
     "Bends what a search brings up."),
)  # fmt: skip

_COMMON = frozenset({"standing_order", "always", "always_run", "mentions_sending", "locks_files"})

RULES = tuple(
    Rule(name=name, category=category, severity=severity, shape=shape, why=why, is_common=name in _COMMON)
    for name, category, severity, shape, why in ROWS
)
