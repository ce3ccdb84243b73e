"""The page that `habitus check --html` writes: one file that needs nothing else and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from habitus.app.other_agents.agent_skills import Remark
from habitus.app.other_agents.examining import AgentReport

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 2rem; } li { margin: .8rem 0; } code { background: #eee; padding: .1rem .3rem; word-break: break-all; }
.topic { font-weight: 600; } footer { margin-top: 3rem; color: #666; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } code { background: #333; } }
"""


def page(reports: Sequence[AgentReport], now: datetime) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>habitus check</title><style>{_STYLE}</style></head><body>
<h1>What your agents could do better</h1>
{"".join(map(_section, reports))}
<footer>Made by <code>habitus check</code> on {now:%Y-%m-%d}. Nothing was sent; secrets were taken out.</footer>
</body></html>
"""


def _section(report: AgentReport) -> str:
    items = "".join(map(_item, report.remarks)) or "<li>Nothing to mend.</li>"
    counts = f"{report.skills} skills, {report.sessions} sessions, {report.calls} calls"
    return f"<h2>{escape(report.label)}</h2><p>{counts}</p><ul>{items}</ul>"


def _item(remark: Remark) -> str:
    return (
        f'<li><span class="topic">{escape(remark.topic.value)}</span>: {escape(remark.what)}<br>'
        f"<code>{escape(remark.mend)}</code></li>"
    )
