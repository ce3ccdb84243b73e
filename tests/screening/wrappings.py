"""Sixteen ways in which a page can lay out the same sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def _over_two_lines(text: str) -> str:
    words = text.split(" ")
    half = len(words) // 2
    return f"{' '.join(words[:half])}\n{' '.join(words[half:])}"


WRAPPINGS: Mapping[str, Callable[[str], str]] = {
    "paragraph": lambda text: text,
    "bullet": lambda text: f"- {text}",
    "numbered step": lambda text: f"3. {text}",
    "table row": lambda text: f"| step | what |\n|---|---|\n| 1 | {text} |",
    "quote block": lambda text: f"> {text}",
    "fence": lambda text: f"```\n{text}\n```",
    "heading": lambda text: f"## {text}",
    "under never skip": lambda text: f"## Never skip\n\n{text}",
    "under do not forget": lambda text: f"Do not forget these steps:\n\n- {text}",
    "do not skip": lambda text: f"Do not skip this step: {text}",
    "never forget": lambda text: f"Never forget: {text}",
    "fix of a mistake": lambda text: f"## Common mistakes\n\nFix: {text}",
    "comment": lambda text: f"<!-- {text} -->",
    "link title": lambda text: f'[guide](https://docs.python.org "{text}")',
    "bold label": lambda text: f"**Note:** {text}",
    "two lines": _over_two_lines,
}
