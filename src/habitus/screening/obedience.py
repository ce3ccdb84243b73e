"""What an attack says to be obeyed: instead of everyone else, unseen, unasked and for good."""

from __future__ import annotations

from habitus.screening.findings import Category, Risk
from habitus.screening.rules import Row, near, table, text

_HIGH, _MEDIUM = Risk.HIGH, Risk.MEDIUM

_OVERRIDE = (
    "ignore|ignoring|disregard|disregarding|forget|override|overrides|overriding|bypass|discard|neglect|"
    "abandon|drop|"
    "do not follow|don't follow|do not obey|don't obey|stop following|stop obeying|set aside|pay no attention to"
)
_EARLIER = (
    "previous|prior|earlier|above|preceding|former|system|safety|original|initial|existing|your|developer|foregoing"
)
_ORDERS = (
    "instruction|instructions|prompt|prompts|guideline|guidelines|directive|directives|guardrails|"
    "restrictions|policy|policies|"
    "commands|programming|constraints|safeguards|rules|orders|guidance|training|protocols|filters|limitations"
)
_RUN = "run|runs|running|execute|executes|executing|invoke|invoking|call|calling|launch|start|source|trigger"
_TASK = (
    "task|tasks|operation|operations|request|requests|conversation|conversations|session|sessions|"
    "message|messages|response|responses|"
    "edit|edits|query|queries|interaction|interactions|document|documents|file|files|event|events|"
    "retrieval|step|steps|run|use|"
    "command|commands|email-related|commit|reply|answer|prompt|invocation|change|changes|turn"
)

ROWS: tuple[Row, ...] = (
    # To be obeyed instead of everyone else
    (
        "override_instructions",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(_OVERRIDE, _EARLIER, _ORDERS, gap=25),
        "Tells the model to ignore the instructions it already has.",
    ),
    (
        "override_everything",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "ignore|disregard|forget|discard|override",
            "all|any|everything|whatever",
            "instruction|instructions|directives|guidelines|prompts|told|"
            "said|safety|ethical|content policy|content policies",
            gap=15,
        ),
        "Tells the model to ignore the instructions it already has.",
    ),
    (
        "takes_precedence",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "take precedence|takes precedence|supersede|supersedes|override|"
            "overrides|outrank|outranks|have priority|higher priority",
            "system|user's|user|safety|developer|all other|any other|previous",
            "prompt|instructions|instruction|rules|guidelines|messages|policies|directives|requests",
            gap=20,
        ),
        "Claims to rank above the system's or the user's own instructions.",
    ),
    (
        "new_instructions",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        near(
            "new instructions|updated instructions|new system prompt|real instructions|"
            "actual instructions|true purpose|real task|hidden instructions|"
            "secret instructions",
            gap=10,
        ),
        "Announces instructions other than the visible ones.",
    ),
    (
        "system_override",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "system override|admin override|security override|safety override|"
            "override mode|god mode|jailbreak mode|unrestricted mode|dan mode",
            "enabled|activated|active|engaged|you are|you will|on|now",
            gap=25,
        ),
        "Pretends that a mode without limits is on.",
    ),
    (
        "new_identity",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "you are now|you're now|you will now act|from now on|act as|pretend|"
            "behave as|roleplay as|respond as|simulate",
            "unrestricted|unfiltered|uncensored|jailbroken|jailbreak|dan|"
            "developer mode|no restrictions|without restrictions|no longer bound|"
            "not bound|no limits|no rules|without limits|without any restrictions|"
            "no ethical|without ethical|evil|root access|no filters|without filters",
            gap=50,
        ),
        "Gives the model another identity, free of its rules.",
    ),
    (
        "no_policy",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "regardless of|irrespective of|free from|free of|not bound by|"
            "no longer bound by|exempt from|turn off|switch off|disable|removes|"
            "remove|removing",
            "your|all|any|the|content|ethical|safety|artificial",
            "restrictions|guidelines|safety|policy|policies|guardrails|ethics|"
            "limitations|censorship|safeguards|safety checks",
            gap=12,
        ),
        "Declares the model's rules void.",
    ),
    (
        "rules_suspended",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "safety|security|content|ethical|usual|normal",
            "rules|policies|policy|checks|guidelines|restrictions|filters|limits",
            "are suspended|is suspended|are disabled|do not apply|don't apply|"
            "does not apply|no longer apply|are lifted|are void|are off",
            gap=20,
        ),
        "Declares the model's rules void.",
    ),
    (
        "never_refuse",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "comply|answer|obey|fulfill|fulfil|respond|execute",
            "all|any|every|anything|everything",
            "without refusing|without question|without refusal|never refuse|"
            "no refusals|unconditionally|without hesitation|without exception",
            gap=35,
        ),
        "Forbids the model to refuse.",
    ),
    (
        "claimed_consent",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "user|owner|operator|admin|administrator|team",
            "already|previously|pre-approved|implicitly|has",
            "consented|consent|approved|authorized|authorised|agreed|permission|authorization",
            "everything|all|any|every|never ask|no need|do not ask|don't ask|skip",
            gap=25,
        ),
        "Claims a consent that only the user can give.",
    ),
    (
        "claimed_authority",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "treat this|consider this|this is|read this|this document is",
            "message from|instruction from|instructions from|directive from|order from|update from",
            "the developer|the system|anthropic|openai|the administrator|the operator|your developer|your creators",
            gap=25,
        ),
        "Pretends to speak for the system.",
    ),
    (
        "system_prompt_reveal",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "reveal|print|output|repeat|show|dump|display|echo|expose|recite|"
            "share|write out|send|leak|include|tell me|upload|post",
            "your|the|full|entire|complete|its|own|hidden|this",
            "system prompt|system message|initial instructions|hidden instructions|"
            "developer message|original instructions|internal instructions|"
            "system instructions|secret instructions",
            gap=20,
        ),
        "Asks for the system prompt.",
    ),
    (
        "asked_then_reveal",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "system prompt|hidden instructions|internal instructions",
            "reveal|print|output|repeat|dump|display|echo|disclose",
            "in full|full|verbatim|it|entire|completely|word for word",
            gap=20,
        ),
        "Asks for the system prompt.",
    ),
    (
        "magic_trigger",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        near(
            "if|when|whenever|once",
            "user|message|input|prompt",
            "says|contains|includes|types|mentions|enters",
            "secret phrase|magic word|passphrase|trigger phrase|code word|"
            "codeword|activation phrase|magic phrase|keyword",
            gap=25,
        ),
        "Waits for a secret word to behave otherwise.",
    ),
    (
        "earlier_rules_void",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "earlier|previous|prior|other|former|preceding",
            "guidance|instructions|rules|guidelines|directions|prompts|orders",
            "obsolete|void|invalid|outdated|no longer apply|no longer valid|cancelled|canceled|superseded|"
            "do not count|don't count",
            gap=22,
        ),
        "Declares the instructions that the model has void.",
    ),
    (
        "only_this_counts",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "only these|only this|act on this|follow this|obey this|only the following",
            "instructions|directions|file|document|skill|rules",
            "count|matter|matters|alone|exclusively|and nothing else|from here on|from now on",
            gap=22,
        ),
        "Wants to be the only instruction.",
    ),
    (
        "no_longer_assistant",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "forget|stop being|you are no longer|you're no longer|you are not",
            "you are|an ai|an assistant|a language model|an ai assistant|bound by|claude|chatgpt",
            "assistant|model|ai|claude|chatgpt|rules|guidelines|restrictions",
            gap=12,
        ),
        "Gives the model another identity, free of its rules.",
    ),
    (
        "remote_orders",
        Category.PROMPT_INJECTION,
        _HIGH,
        text(
            r"(?:fetch|load|download|read|get|retrieve|pull|open|visit|check)\b[^\n]{0,80}https?://(?!localhost|"
            r"127\.)\S{1,120}"
            r"[^\n]{0,60}\b(?:follow (?:what|the instructions|its|them|it|all|any)|obey|do what|act on (?:it|what|"
            r"them)|execute (?:what|the instructions|them|it))",
            starts="fetch|load|download|read|get|retrieve|pull|open|visit|check",
            needs="http|https follow|obey|do|act|execute",
        ),
        "Takes its orders from a page that can change at any time.",
    ),
    # To act without being asked
    (
        "no_confirmation",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        near(
            "without|do not|don't|never|skip|bypass|no need to|no need for|no",
            "ask|asking|request|requesting|wait for|waiting for|prompting|"
            "prompt|seek|seeking|require|requiring|any|user|the user's|human|"
            "manual|further",
            "confirmation|permission|approval|consent|authorization|verification|review|confirm",
            gap=20,
        ),
        "Tells the model not to ask before it acts.",
    ),
    (
        "blind_execution",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            _RUN,
            "code|command|commands|script|following|it|payload|file|them|instructions|output",
            "without verification|without verifying|without checking|without review|"
            "without reviewing|without question|without inspecting|without reading|"
            "without looking|without validation|without hesitation|unconditionally|"
            "blindly|no matter what",
            gap=40,
        ),
        "Has code run unseen.",
    ),
    (
        "standing_order",
        Category.PROMPT_INJECTION,
        None,
        near(
            "after|before|at the end of|at the start of|at the beginning of|"
            "upon|whenever|once|following|during|for each|for every|for all|"
            "when creating|when editing|when performing|when working|with every|"
            "with each|with any|on every|on each|on any|finishing|completing",
            "any|every|each|all|finishing|completing|editing|creating|performing|working|gathering|the",
            _TASK,
            gap=30,
        ),
        "Orders something for every task.",
    ),
    (
        "always",
        Category.PROMPT_INJECTION,
        None,
        near(
            "always|make sure|be sure|remember to|important|critical|mandatory|"
            "required|must|ensure|note|procedure|reminder|never forget",
            gap=5,
        ),
        "Insists.",
    ),
    (
        "runs_own_script",
        Category.DANGEROUS_CODE,
        None,
        text(
            r"(?:run|runs|execute|executes|call|invoke|launch)\b[^\n]{0,40}?[\w./-]+\.(?:sh|"
            r"bash|py|ps1|bat|js|pl|rb)\b[^\n]{0,60}?\b(?:script|scripts|skill|"
            r"skills|skill's)\b",
            starts="run|execute|call|invoke|launch",
            needs="sh|bash|py|ps1|bat|js|pl|rb script|scripts|skill|skills",
        ),
        "Runs a script of the skill.",
    ),
    (
        "always_run",
        Category.DANGEROUS_CODE,
        None,
        near(
            "always|make sure to|remember to|must always|never forget to|don't forget to", "run|execute|launch", gap=15
        ),
        "Insists on running something.",
    ),
    (
        "hijacks_choice",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        near(
            "always|must|only|exclusively",
            "use|invoke|load|call|run|select|choose|prefer|activate|trigger",
            "this skill|this tool",
            "first|before any|before anything|before all|for every|for any|"
            "for all|instead of|over any|over all|regardless|no matter",
            gap=25,
        ),
        "Wants to be chosen before every other skill.",
    ),
    (
        "endless_retry",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "retry|retrying|repeat|keep calling|keep trying|loop|continue calling|call this|re-run|invoke",
            "indefinitely|forever|endlessly|infinitely|without limit|no limit|until",
            "api key|api keys|token|secret|secrets|password|key|credentials",
            gap=45,
        ),
        "Orders a repetition without end.",
    ),
    (
        "unlimited",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        near(
            "retry|repeat|loop|call|calling|run|running|continue|spawn|request|requests",
            "indefinitely|infinitely|endlessly|in an infinite loop|without any limit|without stopping",
            gap=25,
        ),
        "Orders a repetition without end.",
    ),
    # To settle in
    (
        "changes_rules",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "write|add|append|modify|insert|overwrite|inject|prepend|copy",
            "instruction|instructions|line|lines|rule|rules|text|directive|following|this|itself|block|section",
            "claude.md|agents.md|gemini.md|memory.md|soul.md|cursorrules|"
            "copilot-instructions|system prompt|settings.json|other skills|"
            "every skill|all skills|each skill|memory file|long-term memory|"
            "global memory|rules file",
            gap=60,
        ),
        "Writes into the files that instruct the agent.",
    ),
    (
        "infects_skills",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "modify|edit|overwrite|append|add|insert|inject|change|replace|patch|copy|delete|disable|uninstall",
            "to all|into all|in all|in every|into every|to every|to each|"
            "into each|all other|every other|other|all installed|any other|"
            "competing",
            "skills|skill.md|skill.md files|skill files|agents|plugins|extensions|mcp servers",
            gap=30,
        ),
        "Changes other skills.",
    ),
    (
        "persists_order",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "save|store|remember|persist|write|add|record|keep",
            "this instruction|these instructions|this rule|this directive|this behavior|this prompt|these rules",
            "memory|permanently|future sessions|future conversations|all sessions|"
            "forever|long-term|startup|every session|next session|all future",
            gap=40,
        ),
        "Wants to be remembered as an order.",
    ),
    (
        "poisoned_ranking",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        near(
            "assign|give|rank|boost",
            "highest|high|top|maximum",
            "relevance|priority|score|rank|ranking|weight",
            "containing|keyword|mentioning|with the word|include",
            gap=30,
        ),
        "Bends what a search brings up.",
    ),
    # To be taken for the system
    (
        "chat_tokens",
        Category.PROMPT_INJECTION,
        _HIGH,
        text(
            r"<\|(?:im_start|start_header_id|begin_of_text)\|>\s*(?:system)?|\[/?inst\]\s*<<sys>>|<<sys>>",
            starts=("<|im_", "<|start_", "<|begin_", "[inst", "[/inst", "<<sys"),
            needs="im_start|start_header_id|begin_of_text|inst|sys",
        ),
        "Imitates the marks of a chat, as if the system spoke.",
    ),
    (
        "chat_turn",
        Category.PROMPT_INJECTION,
        _HIGH,
        text(
            r"\n(?:human|assistant|system)\s*:\s*(?:ignore|forget|you must|disregard)",
            starts="\nhuman|\nassistant|\nsystem",
            needs="human|assistant|system ignore|forget|must|disregard",
        ),
        "Imitates a turn of a chat, as if the system spoke.",
    ),
    (
        "chat_tags",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        text(
            r"</?(?:system_prompt|system-reminder|system_message|function_calls|tool_result)>",
            starts="<system|</system|<function_calls|</function_calls|<tool_result|</tool_result",
            needs="system_prompt|reminder|system_message|function_calls|tool_result",
        ),
        "Imitates the tags of a chat, as if the system spoke.",
    ),
    (
        "comment_to_model",
        Category.HIDDEN_TEXT,
        _HIGH,
        text(
            r"<!--\s*(?:(?:note|message|instructions?)\s+(?:to|for)\s+(?:the\s+)?)?(?:assistant|"
            r"ai|agent|system|claude|gpt|llm|model|copilot)\b[^>]{0,40}[:,]|"
            r"<!--[^>]{0,300}\b(?:send|upload|execute|exfiltrate|curl|forward)\b[^>]{0,80}\b(?:https?:|"
            r"files?|data|instructions|the user|credentials|keys)\b",
            starts="<!--",
            needs="assistant|ai|agent|system|claude|gpt|llm|model|copilot|send|upload|execute|exfiltrate|curl|forward",
        ),
        "A comment that a page does not show speaks to the model.",
    ),
    (
        "fake_system",
        Category.PROMPT_INJECTION,
        _MEDIUM,
        text(
            r"(?<=[\[(<*#\s])(?:system|admin|developer|root|anthropic|openai)"
            r"(?:\s+(?:message|note|notice|override|update|instruction|directive|command|alert|prompt))?"
            r"\s*[\]):>]\s*[:*]*\s*"
            r"(?:ignore|you (?:must|are|will|should|now)|new|the user|all|disregard|from now|override|execute)",
            starts="system|admin|developer|root|anthropic|openai",
            needs="system|admin|developer|root|anthropic|openai "
            "ignore|you|new|user|all|disregard|now|override|execute|important",
        ),
        "Pretends to be the system.",
    ),
)

RULES = table(ROWS, common=frozenset({"always", "always_run", "standing_order"}))
