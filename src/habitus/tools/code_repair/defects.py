"""The ways in which code arrives broken, and what the model is told about each."""

from __future__ import annotations

from enum import StrEnum

from habitus.errors import ToolFailed


class Defect(StrEnum):
    TRUNCATED = "truncated"
    NO_CODE = "no_code"
    SYNTAX = "syntax"
    CDATA = "cdata"
    XML_TAGS = "xml_tags"
    END_TOKENS = "end_tokens"
    FENCE = "fence"
    CHAT = "chat"
    JSON = "json"
    ESCAPES = "escapes"
    ENTITIES = "entities"
    MARKDOWN = "markdown"
    CONTROL_CHARACTERS = "control_characters"
    TYPOGRAPHY = "typography"
    LINE_ENDINGS = "line_endings"
    LINE_PREFIXES = "line_prefixes"
    PROMPTS = "prompts"
    DIFF = "diff"
    INDENTATION = "indentation"
    MIXED_TABS = "mixed_tabs"


ADVICE = {
    Defect.TRUNCATED: "The code stops in the middle. Send all of it again, to the last line; split it if it is long.",
    Defect.NO_CODE: "There is no Python code in this text. Send the source of the tool and nothing else.",
    Defect.SYNTAX: "The code is not valid Python. Correct it and send all of it again.",
    Defect.CDATA: "The code is wrapped in a CDATA section. Send it without `<![CDATA[` and `]]>`.",
    Defect.XML_TAGS: "XML tags are mixed into the code. Send only the source, without tags around or after it.",
    Defect.END_TOKENS: "Chat template tokens such as `<|im_end|>` are mixed into the code. Send only the source.",
    Defect.FENCE: "The code is in Markdown fences. Send one source without ``` lines.",
    Defect.CHAT: "There are sentences around the code. Send only the source; put explanations in comments.",
    Defect.JSON: "The code is wrapped in JSON that holds no readable code. Send the source itself as the string.",
    Defect.ESCAPES: "Line breaks or quotes are escaped twice. Send real line breaks and plain quotes.",
    Defect.ENTITIES: "The code contains HTML entities. Send `<`, `>`, `&` and quotes as plain characters.",
    Defect.MARKDOWN: "The code has backslashes in front of plain signs, as in hello\\_world. Send it without them.",
    Defect.CONTROL_CHARACTERS: "The code contains invisible or control characters. Type it anew as plain text.",
    Defect.TYPOGRAPHY: "The code contains typographic quotes or spaces. Use plain ' and \" and ordinary spaces.",
    Defect.LINE_ENDINGS: "The line endings are broken. Send plain line feeds.",
    Defect.LINE_PREFIXES: "The lines carry numbers or marks in front. Send the source without them.",
    Defect.PROMPTS: "This is an interactive session. Send the source without prompts and output.",
    Defect.DIFF: "This is a diff, not a whole file. Send the complete source.",
    Defect.INDENTATION: "The indentation is inconsistent. Start at column 0 and indent by 4 spaces.",
    Defect.MIXED_TABS: "Tabs and spaces are mixed in the indentation. Indent by 4 spaces everywhere.",
}


class CodeRefused(ToolFailed):
    """The code can't be used as sent; `defect` says why and the message says what to send instead."""

    def __init__(self, defect: Defect, detail: str = "") -> None:
        self.defect = defect
        self.detail = detail
        super().__init__(f"{ADVICE[defect]} ({detail})" if detail else ADVICE[defect])
