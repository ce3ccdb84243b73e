"""Build the documents as a searchable site in build/site: strictly, so that a broken link or a page that docs/README.md
does not list fails. It needs the extra 'docs'.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES = BUILD / "pages"  # the documents beside each other as in the repository, so that links between them hold
BESIDE = ("benchmarks/README.md", "changelog.d/README.md", "scripts/system-packages.txt", "LICENSE")
CONFIG = """
site_name: Habitus
site_description: Procedural memory for AI agents
docs_dir: pages
site_dir: site
use_directory_urls: false # so that it can be read from the disk, too
theme:
  name: material
  font: false # nothing is fetched from elsewhere
  features: [content.code.copy, navigation.top, search.highlight]
plugins: [search]
markdown_extensions:
  - tables
  - toc: {{permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}}}
  - pymdownx.superfences
  - pymdownx.highlight
nav: {nav}
"""


def navigation(index: str) -> list[dict[str, object]]:
    """The groups of docs/README.md with their pages, between the front page and the papers of the project."""
    groups: list[dict[str, object]] = [{"Habitus": "README.md"}, {"Documents": "docs/README.md"}]
    for title, row in re.findall(r"^\| \*\*(.+?)\*\* \| (.*) \|$", index, re.MULTILINE):
        links = [{name: f"docs/{path}"} for name, path in re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)", row)]
        groups.append({title: links if len(links) > 1 else links[0].popitem()[1]})
    papers = {"How it is built": "ARCHITECTURE", "Contributing": "CONTRIBUTING", "Changes": "CHANGELOG"}
    project = [{title: f"{name}.md"} for title, name in {**papers, "Security": "SECURITY"}.items()]
    return [*groups, {"Examples": "examples/README.md"}, {"Project": project}]


def lay_out() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, PAGES / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*ROOT.glob("*.md"), *(ROOT / name for name in BESIDE)]:
        there = PAGES / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)


def unlisted() -> list[str]:
    """Pages that nobody finds: neither the index of the documents nor that of the decisions has them."""
    docs = ROOT / "docs"
    listed = {docs / "README.md", docs / "decisions" / "README.md"}
    for index in list(listed):
        linked = re.findall(r"\]\(([^)#]+\.md)", index.read_text(encoding="utf-8"))
        listed |= {(index.parent / path).resolve() for path in linked}
    return sorted(str(page.relative_to(ROOT)) for page in set(docs.rglob("*.md")) - listed)


def main() -> int:
    if lost := unlisted():
        print(f"docs/README.md does not list: {', '.join(lost)}.")
        return 1
    lay_out()
    nav = json.dumps(navigation((ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    config = BUILD / "mkdocs.yml"
    config.write_text(CONFIG.format(nav=nav), encoding="utf-8")
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run([zensical, "build", "--strict", "--clean", "--config-file", config], check=False)
    if done.returncode == 0:
        print("wrote build/site; open build/site/index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
