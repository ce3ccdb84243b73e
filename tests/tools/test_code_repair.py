"""Model-written code as it arrives: repaired when its author's text is certain, refused when it is not."""

from __future__ import annotations

import ast
import html
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import ToolFailed
from habitus.tools.code_repair import CodeDefectKind, CodeRefused, RepairedCode, repair_code
from habitus.tools.code_repair.repair import MAX_ATTEMPTS
from habitus.tools.code_repair.source import ADVICE

pytestmark = pytest.mark.req("SB-05")

GREET = 'def greet(name: str) -> str:\n    """Say hello & goodbye."""\n    return f"<b>{name}</b>\\n"\n'
CLAMP = (
    "import math\n\n\ndef clamp(value, low, high):\n    # keep it between the two\n    if value < low and not "
    "math.isnan(value):\n        return low\n    return high if value > high else value\n"
)
PATTERN = (
    'import re\n\nWORD = re.compile(r"\\b\\w+\\b")\n\n\ndef words(text):\n    """Split.\n\n    >>> words("a b")\n'
    "    ['a', 'b']\n    \"\"\"\n    return WORD.findall(text.replace('\\t', ' ')) if text else []\n"
)
STACK = (
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
    '        self.items.append(item)\n\n    def show(self):\n        print(", ".join(map(str, self.items)))\n\n\n'
    'if __name__ == "__main__":\n    Stack().show()\n'
)
ESCAPE = 'def shown(text):\n    return text.replace("&", "&amp;").replace("<", "&lt;")\n'
FENCED_DOC = 'def table(rows):\n    """Markdown.\n\n    ```\n    | a |\n    ```\n    """\n    return "\\n".join(rows)\n'
SNIPPETS = (GREET, CLAMP, PATTERN, STACK, ESCAPE, FENCED_DOC)

Damage = Callable[[str], str]
CHARACTERS: dict[str, Damage] = {
    "none": str,
    "entities": html.escape,
    "entities twice": lambda code: html.escape(html.escape(code)),
    "escaped": lambda code: code.replace("\\", "\\\\").replace("\n", "\\n"),
    "JSON string": json.dumps,
    "JSON body": lambda code: json.dumps(code)[1:-1],
    "JSON field": lambda code: json.dumps({"name": "a", "python_code": code, "deep": {"x": None}}),
    "tool call": lambda code: json.dumps({"name": "create_tool", "arguments": json.dumps({"code": code})}),
}
LINES: dict[str, Damage] = {
    "none": str,
    "numbers": lambda code: "\n".join(f"{n:4d} | {line}" for n, line in enumerate(code.split("\n"), 1)),
    "cat -n": lambda code: "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(code.split("\n"), 1)),
    "plus": lambda code: "\n".join(f"+{line}" for line in code.split("\n")),
    "quoted": lambda code: "\n".join(f"> {line}" for line in code.split("\n")),
    "margin": lambda code: "\n".join(f"    {line}" for line in code.split("\n")),
    "CRLF": lambda code: code.replace("\n", "\r\n"),
}
ENVELOPES: dict[str, Damage] = {
    "none": str,
    "fence": lambda code: f"```python\n{code}\n```",
    "tildes": lambda code: f"~~~ py\n{code}\n~~~\n",
    "closing fence only": lambda code: f"{code}\n```\n",
    "chat and fence": lambda code: f"Sure! Here's the tool:\n\n```python\n{code}\n```\n\nIt handles all cases.",
    "list item": lambda code: "1. Save this:\n\n" + "\n".join(f"   {x}" for x in f"```py\n{code}\n```".split("\n")),
    "CDATA": lambda code: f"<![CDATA[\n{code}\n]]>",
    "CDATA in a tag": lambda code: f"<python_code><![CDATA[{code}]]></python_code>",
    "CDATA left over": lambda code: f"{code}]]>",
    "closing tags": lambda code: f"{code}\n</parameter>\n</invoke>",
    "next parameter": lambda code: f'{code}\n</parameter>\n<parameter name="test_payload">{{}}</parameter>\n</invoke>',
    "code tags": lambda code: f"<code>\n{code}\n</code>",
    "end token": lambda code: f"{code}<|im_end|>\n<|im_start|>user\nthanks",
    "byte order mark": lambda code: f"\ufeff{code}\x00",
    "thoughts": lambda code: f"<think>\nMaybe:\n```python\nx = 1\n```\n</think>\n{code}",
}
OPEN_ENVELOPES: dict[str, Damage] = {
    "none": str,
    "fence": lambda code: f"```python\n{code}",
    "chat and fence": lambda code: f"Here is the whole tool:\n```\n{code}",
    "chat": lambda code: f"Here is the whole tool:\n\n{code}",
    "CDATA": lambda code: f"<![CDATA[{code}",
    "tag": lambda code: f"<code>{code}",
}


def tree(code: str) -> str | None:
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError):
        return None


def refused(text: str) -> CodeDefectKind:
    with pytest.raises(CodeRefused) as caught:
        repair_code(text)
    assert isinstance(caught.value, ToolFailed)
    assert "\n" not in str(caught.value)
    return caught.value.defect


@pytest.mark.parametrize("code", [*SNIPPETS, "", "\n\n", "x", '"""Only a docstring."""', '"hello"', "\tx = 1".strip()])
def test_clean_code_is_never_touched(code: str) -> None:
    assert repair_code(code) == RepairedCode(code=code)


@given(st.text(alphabet="abx=()[]:'\"\n #&;<>~+-.,{}1\\`", max_size=40))
def test_whatever_parses_is_returned_byte_for_byte(text: str) -> None:
    module = tree(text)
    if module is not None and "Expr(value=Constant" not in module and "Expr(value=Dict" not in module:
        assert repair_code(text) == RepairedCode(code=text)


@given(
    st.sampled_from(SNIPPETS),
    st.sampled_from(sorted(CHARACTERS)),
    st.sampled_from(sorted(LINES)),
    st.sampled_from(sorted(ENVELOPES)),
)
def test_the_authors_program_comes_back_from_any_mix_of_defects(
    code: str, characters: str, lines: str, envelope: str
) -> None:
    text = ENVELOPES[envelope](LINES[lines](CHARACTERS[characters](code)))
    if tree(text) is None:
        assert tree(repair_code(text).code) == tree(code)


@given(st.data(), st.sampled_from(SNIPPETS), st.sampled_from(sorted(CHARACTERS)), st.sampled_from(sorted(ENVELOPES)))
def test_repairing_twice_is_repairing_once(data: st.DataObject, code: str, characters: str, envelope: str) -> None:
    cut = data.draw(st.integers(1, len(code)))
    try:
        once = repair_code(ENVELOPES[envelope](CHARACTERS[characters](code[:cut])))
    except CodeRefused:
        return
    assert repair_code(once.code) == RepairedCode(code=once.code)


@given(st.data(), st.sampled_from(SNIPPETS), st.sampled_from(sorted(OPEN_ENVELOPES)))
def test_nothing_is_ever_dropped_to_make_a_cut_program_parse(data: st.DataObject, code: str, envelope: str) -> None:
    cut = code[: data.draw(st.integers(1, len(code) - 1))]
    text = OPEN_ENVELOPES[envelope](cut)
    if tree(text) is not None:
        return
    try:
        accepted = repair_code(text).code
    except CodeRefused:
        return
    assert tree(accepted) == tree(cut)


@pytest.mark.parametrize(
    "end",
    [
        "def f(items):\n    total = 0\n    for item in it",
        'def f(items):\n    """Adds',
        "def f(items):\n    return [",
        "def f(items):\n    if items:",
        "import os\n\ndef f(items) -> int:\n    total = 0\n",
        "def f(count):\n    return cou",
        "def f(items):\n    seen = []\n    for item in items:\n        seen.append(item)",
        "def f(items):\n    total = 1\n    total",
        'def f(items):\n    """Only its docstring."""',
    ],
)
@pytest.mark.parametrize("envelope", sorted(set(OPEN_ENVELOPES) - {"none"}))
def test_cut_code_in_an_open_envelope_is_refused(end: str, envelope: str) -> None:
    assert refused(OPEN_ENVELOPES[envelope](end)) is CodeDefectKind.TRUNCATED


@pytest.mark.parametrize("envelope", sorted(set(OPEN_ENVELOPES) - {"none"}))
@pytest.mark.parametrize("code", SNIPPETS)
def test_whole_code_in_an_open_envelope_is_taken(code: str, envelope: str) -> None:
    assert tree(repair_code(OPEN_ENVELOPES[envelope](code.rstrip())).code) == tree(code)


def test_a_function_that_only_has_effects_is_whole() -> None:
    code = "def main():\n    out = open('a')\n    out.write('b')"
    assert repair_code(f"```python\n{code}") == RepairedCode(code=code, defects=(CodeDefectKind.FENCE,))


EXAMPLES: list[tuple[CodeDefectKind, str, str]] = [
    (CodeDefectKind.CDATA, "<![CDATA[x = a[b[0]]]]>", "x = a[b[0]]"),
    (CodeDefectKind.CDATA, '<![CDATA[x = "]]]]><![CDATA[>"\n]]>', 'x = "]]>"\n'),
    (CodeDefectKind.XML_TAGS, "x = 1</parameter>", "x = 1\n"),
    (CodeDefectKind.XML_TAGS, "x = 1\n</param", "x = 1\n"),
    (CodeDefectKind.XML_TAGS, "<function=make>\n<parameter=code>\nx = 1\n</parameter>", "x = 1\n"),
    (CodeDefectKind.END_TOKENS, "<|im_start|>assistant\nx = [1]<|eot_id|>", "x = [1]"),
    (
        CodeDefectKind.FENCE,
        "```bash\npip install a\n```\n```python\ndef f(): ...\n```\n```python\nf()\n```",
        "def f(): ...",
    ),
    (CodeDefectKind.FENCE, "```\ndef f(): 1/0\n```\nBetter:\n```\ndef f(): ...\n```", "def f(): ..."),
    (CodeDefectKind.FENCE, "```python\nx = [1]```", "x = [1]"),
    (CodeDefectKind.CHAT, "Here you go:\n\nx = 1\n\nThis sets the value.", "x = 1\n"),
    (CodeDefectKind.CHAT, "Sure!\n\nimport os\n\nNotes:\n- It needs no network.\n- Short.", "import os\n"),
    (CodeDefectKind.JSON, '"import os\\nx = \\"\\\\n\\"\\n"', 'import os\nx = "\\n"\n'),
    (CodeDefectKind.JSON, '{"cell": 1, "source": ["x = 1", "y = 2"]}', "x = 1\ny = 2\n"),
    (CodeDefectKind.ESCAPES, "x = '\\n'\\ny = 1", "x = '\\n'\ny = 1"),
    (CodeDefectKind.ESCAPES, 'x = \\"a\\"\\ny = \\"\\\\d\\"', 'x = "a"\ny = "\\d"'),
    (CodeDefectKind.ENTITIES, "if a &lt; b: print('&amp;') # <", "if a < b: print('&amp;') # <"),
    (CodeDefectKind.CONTROL_CHARACTERS, "x\u200b = 1\x00\x1b[0m", "x = 1"),
    (CodeDefectKind.TYPOGRAPHY, "x = “it's”\ny = ‘b’", "x = \"it's\"\ny = 'b'"),
    (CodeDefectKind.TYPOGRAPHY, "f（1，\xa02）", "f(1, 2)"),
    (CodeDefectKind.LINE_ENDINGS, "x = 1 + \\\r\r\n    2\r\r\n", "x = 1 + \\\n    2\n"),
    (CodeDefectKind.LINE_PREFIXES, "1: def f():\n2:     return 1", "def f():\n    return 1\n"),
    (CodeDefectKind.PROMPTS, ">>> def f():\n...     return 1\n...\n>>> f()\n1", "def f():\n    return 1\n\nf()\n"),
    (CodeDefectKind.DIFF, "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2", "x = 1\ny = 2\n"),
    (CodeDefectKind.INDENTATION, "    x = 1\n    y = 2", "x = 1\ny = 2"),
    (CodeDefectKind.MIXED_TABS, "if x:\n\ty = 1\n        z = 2\n", "if x:\n        y = 1\n        z = 2\n"),
]


@pytest.mark.parametrize(("defect", "text", "code"), EXAMPLES)
def test_each_defect_is_mended_and_named(defect: CodeDefectKind, text: str, code: str) -> None:
    assert repair_code(text) == RepairedCode(code=code, defects=(defect,))


REFUSALS: list[tuple[CodeDefectKind, str]] = [
    (CodeDefectKind.MARKDOWN, "a\\_b = = 1\nprint(a\\_b)\n"),
    (CodeDefectKind.TRUNCATED, "def f():\n    return ["),
    (CodeDefectKind.NO_CODE, "I am sorry, but I cannot write this tool."),
    (CodeDefectKind.SYNTAX, "def f() return 1\nx = 2\n"),
    (CodeDefectKind.CDATA, "<![CDATA[def f() return 1\nx = 2\n]]>"),
    (CodeDefectKind.XML_TAGS, "<code>\ndef f() return 1\nx = 2\n</code>"),
    (CodeDefectKind.END_TOKENS, "def f() return 1\nx = 2\n<|im_end|>"),
    (CodeDefectKind.FENCE, "```python\ndef f() return 1\nx = 2\n```"),
    (CodeDefectKind.CHAT, "Here is the code you want:\n\ndef f() return 1\nx = 2\n"),
    (CodeDefectKind.JSON, '"def f() return 1\\nx = 2\\n"'),
    (CodeDefectKind.ESCAPES, "def f() return 1\\nx = 2\\n"),
    (CodeDefectKind.ENTITIES, "def f() return &lt;1\nx = 2\n"),
    (CodeDefectKind.CONTROL_CHARACTERS, "def f() return 1\u200b\nx = 2\n"),
    (CodeDefectKind.TYPOGRAPHY, "def f() return “1”\nx = 2\n"),
    (CodeDefectKind.LINE_ENDINGS, "def f() return 1\r\nx = 2\r\n"),
    (CodeDefectKind.LINE_PREFIXES, "1: def f() return 1\n2: x = 2\n"),
    (CodeDefectKind.PROMPTS, ">>> def f() return 1\n>>> x = 2\n"),
    (CodeDefectKind.DIFF, "@@ -7,2 +7,2 @@ def f():\n x = 1\n+y = 2\n"),
    (CodeDefectKind.INDENTATION, "    def f() return 1\n    x = 2\n"),
    (CodeDefectKind.MIXED_TABS, "if a:\n    if b:\n        x = 1\n\ty = 2\n"),
]


@pytest.mark.parametrize(("defect", "text"), REFUSALS)
def test_each_defect_that_stays_has_its_own_error(defect: CodeDefectKind, text: str) -> None:
    assert refused(text) is defect


def test_every_defect_is_covered_by_an_error_with_its_own_advice() -> None:
    assert {defect for defect, _ in REFUSALS} == set(CodeDefectKind) == set(ADVICE)
    assert len(set(ADVICE.values())) == len(CodeDefectKind)


def test_the_error_points_at_the_line() -> None:
    with pytest.raises(CodeRefused, match=r"line 2: "):
        repair_code("```python\nx = 1\ny = = 2\nz = 3\n```")


def test_a_short_closed_block_does_not_stand_in_for_a_cut_one() -> None:
    assert (
        refused("Install:\n```\nimport a\n```\nThen:\n```python\ndef f(items):\n    return [")
        is CodeDefectKind.TRUNCATED
    )


def test_fences_in_a_cut_docstring_are_not_the_code() -> None:
    assert refused('def f():\n    """Use:\n```python\nprint(f())\n```\n') is CodeDefectKind.TRUNCATED


def test_a_cut_program_in_a_json_string_is_refused() -> None:
    assert refused('"def f(x):\\n    return ["') is CodeDefectKind.TRUNCATED


def test_code_in_thoughts_without_an_answer_is_refused() -> None:
    assert refused("<think>\nMaybe so:\n```python\nx = 1\n```\nOr rather") is CodeDefectKind.NO_CODE


ADVERSARIES: dict[str, Callable[[int], str]] = {
    "fences": lambda n: "```\n" * (n // 4),
    "entities": lambda n: "&amp;" * (n // 5) + "(",
    "escapes": lambda n: "\\n" * (n // 2) + "(",
    "backslashes": lambda n: "\\" * n,
    "quotes": lambda n: '"' * n + "(",
    "smart quotes": lambda n: "“a" * (n // 2),
    "brackets": lambda n: "(" * n,
    "cdata": lambda n: "<![CDATA[" * (n // 9),
    "cdata ends": lambda n: "]]>" * (n // 3),
    "tags": lambda n: "x = (\n" + "</a>" * (n // 4),
    "open tags": lambda n: "<" * n,
    "spaces": lambda n: " " * n + "(",
    "line feeds": lambda n: "\n" * n + "(",
    "prose": lambda n: "Hello there my friend.\n" * (n // 23),
    "json": lambda n: '{"a":' * (n // 5),
    "prompts": lambda n: ">>> x = (\n" * (n // 10),
    "everything": lambda n: (
        "Here you go:\n```python\n<code>\n" + "    if a &lt; b: c(“x”)\\n\n" * (n // 26) + "]]>\n```"
    ),
}


def work(text: str) -> tuple[int, int]:
    """How many calls repairing takes, and how many of them parse."""
    calls = parses = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls, parses
        calls += event in ("call", "c_call")
        parses += event == "call" and frame.f_code is ast.parse.__code__

    sys.setprofile(count)
    try:
        repair_code(text)
    except CodeRefused:
        pass
    finally:
        sys.setprofile(None)
    return calls, parses


@pytest.mark.some(16)
@pytest.mark.parametrize("name", sorted(ADVERSARIES))
def test_work_grows_no_faster_than_the_text(name: str) -> None:
    small, small_parses = work(ADVERSARIES[name](2_000))
    large, large_parses = work(ADVERSARIES[name](4_000))
    assert large <= 2.5 * small + 1000
    assert max(small_parses, large_parses) <= 2 * MAX_ATTEMPTS


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["backslashes", "brackets", "cdata", "fences", "open tags", "quotes", "spaces", "tags"]
)
def test_a_megabyte_is_answered(name: str) -> None:
    with pytest.raises(CodeRefused):
        repair_code(ADVERSARIES[name](1_000_000))


@pytest.mark.parametrize(
    "text",
    [
        "```python print('hi')```",
        "```print('hi')```",
        "  ```py   print('hi')  ```\n",
        "Here you go: ```python print('hi')``` Have fun!",
        "Run this:\n\n```python3 print('hi')```\n\nIt greets.",
    ],
)
def test_a_fence_on_one_line_is_taken_off(text: str) -> None:
    assert repair_code(text) == RepairedCode(code="print('hi')\n", defects=(CodeDefectKind.FENCE,))


def test_two_fences_on_one_line_leave_a_choice_that_nobody_makes() -> None:
    with pytest.raises(CodeRefused):
        repair_code("```print('a')``` or ```print('b')```")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("hello\\_world = 1\nprint(hello\\_world)\n", "hello_world = 1\nprint(hello_world)\n"),
        ("a = \\[1 \\* 2\\]\nprint(a)\n", "a = [1 * 2]\nprint(a)\n"),
        ('my\\_key = "my\\_key"\nprint(my\\_key)\n', 'my_key = "my_key"\nprint(my_key)\n'),
        ('my\\_key = r"\\_ and _"\nprint(my\\_key)\n', 'my_key = r"\\_ and _"\nprint(my_key)\n'),
    ],
)
def test_markdown_escapes_go_and_strings_keep_what_their_author_wrote(text: str, code: str) -> None:
    assert repair_code(text) == RepairedCode(code=code, defects=(CodeDefectKind.MARKDOWN,))


def test_a_continued_line_is_no_markdown() -> None:
    code = "total = 1 + \\\n    2\nprint(total)\n"
    assert repair_code(code) == RepairedCode(code=code)
    assert repair_code(f"```python\n{code}```\n").code == code.rstrip()
