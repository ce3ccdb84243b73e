"""Reads code in languages without a parser here, and settings: its commands, what it reads and where that leads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from habitus.screening.code_context import CodeFinding, SkillCodeContext, get_command_pattern
from habitus.screening.findings import RiskLevel, ThreatKind

_COMMANDS = (
    re.compile(r"(?m)^([ \t]*)(?:- )?[\w.-]+:[ \t]*[|>][+-]?[ \t]*\n(?P<block>(?:\1[ \t]+.*\n?|[ \t]*\n)+)"),  # YAML
    re.compile(r"(?m)(?P<block>(?:^\t.*\n?)+)"),  # the recipes of a Makefile
    re.compile(r"(?m)^[ \t]*(?:- )?(?:run|script|command|cmd|entrypoint|exec\w*)[: \t](?P<block>(?:.*\\\n)*.*)", re.I),
)
_JSON_STRING = re.compile(r":\s*(\"(?:[^\"\\\n]|\\.){3,4000}\")")
_RECIPE_MARKS = re.compile(r"(?m)^[ \t]*[@-]+(?=\S)")
_ALL_SECRETS = re.compile(r"'?\$\{\{\s*toJSON\(\s*secrets\s*\)\s*\}\}'?")
_ONE_SECRET = re.compile(r"\$\{\{\s*(?:secrets|env)\.(\w+)\s*\}\}")
_MOST_COMMANDS = 20  # in one line


def find_threats_without_parser(code: str, context: SkillCodeContext) -> tuple[CodeFinding, ...]:
    """Return what the commands in a text do, and what its lines do together."""
    found = [
        replace(one, line=line + one.line - 1)
        for line, commands in _find_commands_with_lines(code)
        for one in context.find_inner_code_threats(commands, "sh")
    ]
    return tuple({(one.rule, one.line): one for one in (*found, *_find_threats_across_lines(code, context))}.values())


def _find_commands_with_lines(code: str) -> Iterator[tuple[int, str]]:
    """The blocks, values and places in lines that hold commands, with the line where each begins."""
    for pattern in _COMMANDS:
        for found in pattern.finditer(code):
            yield from _iterate_normalized_commands_of_block(code, found.start("block"), found["block"])
    for found in _JSON_STRING.finditer(code):
        yield from _iterate_normalized_commands_of_block(code, found.start(1), _decode_json_string(found[1]))
    for number, line in enumerate(code.split("\n"), 1):
        if get_command_pattern("command_marks").search(line):
            for place in [*get_command_pattern("command").finditer(line)][:_MOST_COMMANDS]:
                yield number, line[place.start() : place.start() + 2_000]


def _iterate_normalized_commands_of_block(code: str, start: int, block: str) -> Iterator[tuple[int, str]]:
    if get_command_pattern("marks_of_code").search(block):
        commands = _ALL_SECRETS.sub('"$(printenv)"', _RECIPE_MARKS.sub("", block).replace("$$", "$"))
        yield code.count("\n", 0, start) + 1, _ONE_SECRET.sub(r"$\1", commands)


def _decode_json_string(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]


def _find_threats_across_lines(code: str, context: SkillCodeContext) -> Iterator[CodeFinding]:
    """What is read, and what is deleted, run or sent, in any lines of the file: without a parser that has to do."""
    lines = [(number, line) for number, line in enumerate(code.split("\n"), 1) if not re.match(r"\s*(?:#|//|--)", line)]
    text = "\n".join(line for _, line in lines)
    if not get_command_pattern("calls").search(text):
        return
    led = [(number, host) for number, line in lines if (host := context.hosts.find_first_foreign_host(line))]
    at, host = led[0] if led else (1, "")
    paths = re.sub(r"\\+", "/", text)  # as Windows writes them
    secrets = {found[0] for found in get_command_pattern("secret_path").finditer(paths)}
    secrets |= {"all environment variables"} if get_command_pattern("environment").search(text) else set()
    secrets |= {"all environment files below a folder"} if get_command_pattern("gathers").search(text) else set()
    is_theft = len(secrets) > 1 or any(not get_command_pattern("settings_file").search(one) for one in secrets)
    keys = frozenset(found[1] for found in re.finditer(r"\b([A-Z][A-Z0-9_]{3,40})\b", text))
    wrong = context.find_keys_of_other_services(frozenset(filter(get_command_pattern("key_name").search, keys)), host)
    if host and ((secrets and is_theft) or wrong):
        what = min(secrets) if secrets and is_theft else wrong[0]
        yield _make_finding(ThreatKind.SENDS_SECRETS, at, context.judge_secret_sending(what, host)[0])
    names = _find_names_holding_host_address(host, [line for _, line in lines]) if host else set()
    for number, line in lines:
        runs = get_command_pattern("evaluators").search(line)
        if runs and host and (host in line or names & set(re.findall(r"\w+", line[runs.end() :]))):
            yield _make_finding(ThreatKind.RUNS_DOWNLOADS, number, f"Runs whatever {host} sends.")
        if get_command_pattern("removers").search(line) and (
            root := get_command_pattern("personal_places").search(text)
        ):
            yield _make_finding(ThreatKind.DESTROYS, number, f"Deletes {root[0]}.")
    if get_command_pattern("web_shell").search(text):
        yield _make_finding(ThreatKind.OPENS_ACCESS, at, "Runs whatever command a request brings.")
    if host and (spy := get_command_pattern("spy_programs").search(text)):
        why = f"Sends what '{spy[0]}' records to {host}."
        yield _make_finding(ThreatKind.SENDS_PRIVATE_DATA, at, why)
    listener = get_command_pattern("listens").search(text)
    is_served = listener is not None or (host and get_command_pattern("sockets").search(text))
    if is_served and get_command_pattern("shell_programs").search(text):
        yield _make_finding(
            ThreatKind.OPENS_ACCESS, at, f"Opens a shell on this machine for {host or 'whoever connects'}."
        )


def _find_names_holding_host_address(host: str, lines: Sequence[str]) -> set[str]:
    """The names that hold an address of the host, or what was made from one of these."""
    names = set[str]()
    for line in lines:
        bound = re.search(r"(\w+)\s*:?=", line)
        if bound and (host in line or names & set(re.findall(r"\w+", line[bound.end() :]))):
            names.add(bound[1])
    return names


def _make_finding(threat: ThreatKind, line: int, why: str) -> CodeFinding:
    return CodeFinding(rule=threat, severity=RiskLevel.HIGH, line=line, why=why)
