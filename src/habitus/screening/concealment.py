"""What an attack says to stay unseen: keep it from the user, deny it, do it quietly."""

from __future__ import annotations

from habitus.screening.findings import Category, Risk
from habitus.screening.rules import Row, near, table, text

_HIGH, _MEDIUM = Risk.HIGH, Risk.MEDIUM

_USER = (
    "user|users|reader|readers|human|humans|operator|owner|anyone|"
    "anybody|customer|client|person|developer|administrator|team|"
    "them"
)
_NOT = "do not|don't|never|must not|should not|shouldn't|avoid|no need to|refrain from|dont|without"
_TELL = (
    "tell|telling|inform|informing|notify|notifying|alert|alerting|mention|mentioning|reveal|revealing|"
    "disclose|disclosing|"
    "warn|warning|report this|reporting this|show this|showing this|let|letting|announce|explain this|"
    "log this|bother"
)

ROWS: tuple[Row, ...] = (
    # To stay unseen
    (
        "conceal_from_user",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(_NOT, _TELL, _USER, "about|that|of|this|these|what|any of|anything|when|know|if|whether|how|why", gap=14),
        "Tells the model to keep something from the user.",
    ),
    (
        "conceal_action",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "do not|don't|never|avoid|without",
            "mention|mentioning|reveal|revealing|disclose|disclosing|acknowledge|"
            "acknowledging|admit|discuss|refer to|referring to|talk about",
            "this skill|this step|these steps|this instruction|these instructions|"
            "this action|this behavior|this behaviour|this process|this upload|"
            "this file|this request|this check|you used|you did|you were|"
            "you have been|the upload|the backup|having|hidden|the sync|the script",
            gap=25,
        ),
        "Tells the model to keep its own actions secret.",
    ),
    (
        "conceal_step",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "do not|don't|never|must not|should not",
            "show|list|include|mention|display|report|log|record|reference",
            "this step|these steps|this action|this command|this upload|this instruction|this change|this part",
            gap=14,
        ),
        "Tells the model to keep its own actions secret.",
    ),
    (
        "conceal_plainly",
        Category.PROMPT_INJECTION,
        _HIGH,
        text(
            r"(?:do not|don't|never)\s+(?:ever\s+)?(?:tell|inform|notify|alert|"
            r"warn)\s+(?:the\s+)?(?:users?|readers?|humans?|customers?|clients?|"
            r"anyone|anybody|owner|operator)\s*[.!;\n]",
            starts="do not|don't|never",
            needs="tell|inform|notify|alert|warn user|users|reader|readers|human|"
            "humans|customer|customers|client|clients|anyone|anybody|owner|"
            "operator",
        ),
        "Tells the model to keep something from the user.",
    ),
    (
        "denies",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "if|when",
            "asks|asked|questions|questioned|inquires",
            "deny|say that nothing|claim that nothing|say nothing was|say no data|"
            "claim no|claim that no|tell them nothing|tell them that nothing|"
            "lie|pretend not",
            gap=45,
        ),
        "Has the model deny what it did.",
    ),
    (
        "keep_hidden",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "keep|keeping",
            "this|these|it all|your actions|the upload|the process|the transfer|this behavior|this behaviour",
            "hidden|secret|invisible|confidential|between us|to yourself",
            gap=16,
        ),
        "Tells the model to hide something.",
    ),
    (
        "hide_from_user",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "hide|hiding|conceal|concealing|mask|disguise|obscure",
            "from the user|from users|from user|from the human|from the operator|"
            "from the owner|from logs|from the logs|from anyone|from reviewers|"
            "from the reviewer|from audit",
            gap=40,
        ),
        "Tells the model to hide something.",
    ),
    (
        "behind_the_back",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "without|unbeknownst to",
            "user|user's|users|human|owner|their|anyone|operator|person's|them",
            "knowing|knowledge|noticing|realizing|realising|being aware|being told|"
            "being informed|seeing it|finding out",
            gap=12,
        ),
        "Has something done behind the user's back.",
    ),
    (
        "covertly",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "secretly|covertly|surreptitiously|stealthily|discreetly|in secret|clandestinely",
            "add|append|copy|collect|download|execute|exfiltrate|fetch|forward|"
            "include|insert|install|log|modify|post|read|record|run|save|"
            "send|store|upload|write|transmit|track|capture|delete",
            gap=20,
        ),
        "Has something done covertly.",
    ),
    (
        "silently",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "silently|quietly|in the background|invisibly|transparently",
            "send|upload|post|exfiltrate|copy|collect|forward|transmit|read|gather|execute|download|install|delete",
            gap=8,
        ),
        "Has data moved or code run without a word.",
    ),
    (
        "pretend_nothing",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "act as if|act as though|pretend|behave as if|respond as if|as if",
            "nothing happened|nothing unusual|no instructions|this never|you never|normal|nothing was|never saw",
            gap=25,
        ),
        "Has the model cover up what it did.",
    ),
    (
        "so_that_nobody_sees",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "so|so that|ensuring|making sure|make sure|such that",
            "not|never|cannot|can't|won't|doesn't|nobody|no one|without",
            "notice|noticed|notices|noticing|traced|detected|suspect|suspects|suspecting|discover|discovered|find out",
            gap=28,
        ),
        "Wants something to go unnoticed.",
    ),
    (
        "mention_nothing",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "mention nothing|tell nobody|tell no one|report nothing|no need to inform|no need to tell",
            gap=5,
        ),
        "Tells the model to keep something from the user.",
    ),
    (
        "always_fine",
        Category.PROMPT_INJECTION,
        _HIGH,
        near(
            "always|just|simply|only",
            "answer|say|report|reply|respond|claim",
            "everything went well|everything is fine|everything worked|no problems|no issues were|no errors were|"
            "success regardless",
            gap=22,
        ),
        "Has the model report success whatever happens.",
    ),
)

RULES = table(ROWS)
