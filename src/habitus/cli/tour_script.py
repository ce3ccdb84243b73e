"""The script of the tour's model. Everything it calls is real, and so is everything that comes back."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.llm.model import Answered
from habitus.llm.scripted import calls, says

SKILL = "revenue-by-region"
TOOL = "read-amount"

EXPORT = """region;amount
north;1.200,50
south;830,00
north;99,50
west;-120,00
"""

_READ = '''import csv, io
from collections import defaultdict

export = """{export}"""
totals = defaultdict(float)
for row in csv.DictReader(io.StringIO(export), delimiter=";"):
    totals[row["region"]] += {amount}
for region, total in sorted(totals.items()):
    print(f"{{region}}: {{total:,.2f}}")
'''
_NAIVE = 'float(row["amount"])'
_RIGHT = 'float(row["amount"].replace(".", "").replace(",", "."))'

_PROCEDURE = """1. Look at the first lines of the export: which separator, and which marks in the amounts?
2. Read it with `csv.DictReader` and that separator.
3. Amounts like `1.200,50` have a point for thousands and a comma for decimals: remove the points, then make the comma a
   point, and only then call `float`.
4. Sum per region, sort by name, print with two decimals.
5. Say the totals; name a negative one, it is usually a refund."""

_AMOUNT = """import json, sys

written = json.loads(sys.argv[1])["written"]
print(json.dumps({{"amount": float({mended})}}))
"""
_DEFECT, _MENDED = "writen", 'written.replace(".", "").replace(",", ".")'


def _cell(amount: str, says_it_does: str) -> dict[str, object]:
    code = _READ.format(export=EXPORT, amount=amount)
    return {"action": "exec", "name": "main", "code": code, "one_line_description": says_it_does}


def _tool(mended: str) -> dict[str, object]:
    return {
        "name": TOOL,
        "description": "Reads an amount written like 1.200,50 and gives it as a number",
        "parameters_schema": {
            "type": "object",
            "properties": {"written": {"type": "string", "description": "The amount as it is written."}},
            "required": ["written"],
        },
        "python_code": _AMOUNT.format(mended=mended),
        "test_payload": {"written": "1.200,50"},
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """One request to a session, and what the model answers to it, step by step."""

    request: str
    steps: tuple[Answered, ...]


WORKED_OUT = Scene(
    request=f"What is the revenue per region in this export?\n{EXPORT}",
    steps=(
        calls("scratchpad", _cell(_NAIVE, "sum the amounts per region"), text="I add them up. "),
        calls("scratchpad", _cell(_RIGHT, "sum, with amounts read as 1.200,50"), text="These use a comma. "),
        says("north 1,300.00, south 830.00, west -120.00 (a refund)."),
    ),
)
KEPT = Scene(
    request="Good. Remember how to do this.",
    steps=(
        calls(
            "create_skill",
            {
                "name": SKILL,
                "title": "Revenue by region",
                "description": "Sums the revenue per region of a semicolon export with amounts like 1.200,50. "
                "Use when somebody asks what each region sold or earned.",
                "content": _PROCEDURE,
                "tags": ["reports", "csv"],
            },
        ),
        says("Saved. Next time I begin with step 1."),
    ),
)
FOUND_AGAIN = Scene(
    request=f"How much did each area of the country sell?\n{EXPORT}",
    steps=(
        calls("recall_skill", {"name": SKILL}, text="There is a skill for that. "),
        calls("scratchpad", _cell(_RIGHT, "steps 1 to 4 of the skill")),
        says("north 1,300.00, south 830.00, west -120.00, which is a refund."),
    ),
)
FAILED = Scene(
    request="Compare it with the figures of last year.",
    steps=(
        *(
            calls(
                "scratchpad",
                {
                    "action": "exec",
                    "name": "main",
                    "code": f"print(open('{name}').read())",
                    "one_line_description": "read",
                },
            )
            for name in ("last-year.csv", "lastyear.csv", "2025.csv")
        ),
        says("I have no file of last year. Could you attach it?"),
    ),
)
BETTER = Scene(
    request="And what about the year before?",
    steps=(says("I don't have that file either, so I ask first: could you attach it?"),),
)
MADE_A_TOOL = Scene(
    request="I need such amounts read all the time. Make a tool of it, and read 12.345,60.",
    steps=(
        calls("create_tool", _tool(_DEFECT), text="I write it down as a program. "),
        calls("create_tool", _tool(_MENDED), text="A slip of mine; once more. "),
        calls(TOOL.replace("-", "_"), {"written": "12.345,60"}),
        says("The tool works: 12.345,60 is 12345.6."),
    ),
)
