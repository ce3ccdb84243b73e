"""The one list of files that version control, editors, shells and agents execute or obey by themselves.

They are judged by normalised name, refused from guests and reported when a skill is imported.
"""

from __future__ import annotations

import re
import unicodedata

from habitus.errors import Refused

# Hooks in them run when their owner next uses the tool, and no history shows them.
_VERSION_CONTROL_NAMES = frozenset({".git", ".hg", ".svn", ".jj", ".sl", ".bzr", ".pijul", "_darcs"})
# `HEAD` turns its folder into a bare repository, whose `config` can name commands for git to run. `.env` is not listed:
# most tools only read values from it, and shell add-ons that run it ask first.
_FILES = frozenset(
    {
        "head",
        *(".envrc", ".autoenv.zsh", ".exrc", ".vimrc", "_vimrc", ".gvimrc", ".nvimrc", ".nvim.lua", ".lvimrc"),
        *(".dir-locals.el", ".dir-locals-2.el", ".emacs", ".gdbinit", ".lldbinit", ".mcp.json", ".aider.conf.yml"),
        *("mise.toml", "mise.local.toml", ".mise.toml", ".mise.local.toml", "mise/config.toml", ".config/mise.toml"),
        *(".rtx.toml", ".devcontainer.json", "opencode.json", "opencode.jsonc", ".crush.json", "crush.json"),
        *(".pre-commit-config.yaml", ".lefthook.yml", "lefthook.yml", ".lefthook.toml", "lefthook.toml"),
        *(".lefthook.json", "lefthook.json", ".gitmodules", ".gitconfig", ".cargo/config", ".cargo/config.toml"),
        *(".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", "bunfig.toml", ".bundle/config"),
        *(".pdbrc", ".pdbrc.py", ".irbrc", ".pryrc", ".byebugrc", ".rprofile", ".renviron", ".rdata", ".ghci"),
        *(".ocamlinit", "jupyter_notebook_config.py", "jupyter_server_config.py", "jupyter_lab_config.py"),
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".xprofile"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login"),
        *("config.fish", ".inputrc", ".xinitrc", ".xsession"),
    }
)
# Every file in these folders is executed or obeyed: agents read settings, hooks, commands and rules there.
_FOLDERS = (
    *(
        ".claude",
        ".codex",
        ".gemini",
        ".cursor",
        ".opencode",
        ".pi",
        ".qwen",
        ".kiro",
        ".roo",
        ".kilocode",
        ".continue",
    ),
    *(".windsurf", ".factory", ".amp", ".iflow", ".junie", ".trae", ".zed", ".crush", ".openhands", ".amazonq"),
    *(".augment", ".goose", ".copilot", ".clinerules", ".github/hooks", ".vscode", ".idea", ".devcontainer"),
    *(".husky", ".githooks", ".config/fish", ".config/mise", ".mise", ".mvn"),
)
# Such a file names tasks and settings, like those in `.vscode`.
_WORKSPACE_SUFFIX = ".code-workspace"
# The short name that Windows gives to `.git`, `.claude` and the like.
_SHORT_NAME = re.compile(r"([a-z0-9_]{2,6})~[0-9]{1,3}")
_SHORT_NAMES = {
    part.lstrip(".")[:6]: part
    for path in (*_VERSION_CONTROL_NAMES, *_FOLDERS, *_FILES)
    if (part := path.split("/")[0]).startswith(".")
}

# Fillers and joiners that Unicode shows as nothing though it counts them as letters or marks, and selectors of a glyph.
_INVISIBLE_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0").union(
    *(map(chr, numbers) for numbers in (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)))
)


def is_vcs_file_or_folder_name(name: str) -> bool:
    """Whether a file or folder name belongs to version control."""
    return _normalize_file_name(name) in _VERSION_CONTROL_NAMES


def is_auto_executed(path: str) -> bool:
    """Whether another tool would execute or obey this file by itself, however its name is spelled."""
    parts = [_normalize_file_name(part) for part in path.replace("\\", "/").split("/")]
    if not _VERSION_CONTROL_NAMES.isdisjoint(parts) or parts[-1].endswith(_WORKSPACE_SUFFIX):
        return True
    if not _FILES.isdisjoint("/".join(parts[-length:]) for length in (1, 2, 3)):
        return True
    inside = "/" + "/".join(parts[:-1]) + "/"
    return any(f"/{folder}/" in inside for folder in _FOLDERS)


def refuse_auto_executed(path: str) -> None:
    """Raise `Refused` for a file that other tools would execute or obey by themselves."""
    if is_auto_executed(path):
        raise Refused(f"'{path}' can't be a file of a skill.", hint="Other tools run it unasked.")


def _normalize_file_name(name: str) -> str:
    """Return the name that a file system may make of it.

    macOS ignores case and invisible characters, Windows ignores case, a stream (`.git::$INDEX_ALLOCATION`) and
    trailing dots and spaces, and knows `.git` as `git~1`.
    """
    visible = "".join(letter for letter in unicodedata.normalize("NFKC", name) if not _is_ignorable_character(letter))
    folded = visible.casefold().partition(":")[0].rstrip(". ").strip()
    short = _SHORT_NAME.fullmatch(folded)
    return _SHORT_NAMES.get(short[1], folded) if short else folded


def _is_ignorable_character(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cf", "Cc") or letter in _INVISIBLE_LETTERS
