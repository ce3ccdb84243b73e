"""Make pictures of every page: light, dark and on a phone, with much data and with none, in a headless Chromium.

`pictures.py FOLDER [PART OF AN ADDRESS…]` writes them to FOLDER, those of the pages named or of all; nothing is
committed of it. `pictures.py --docs` writes those that the documents show. `pictures.py --weigh [SKILLS]` prints
what each page transfers on the first visit, and later with the static files kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from habitus.app import Habitus, read_settings  # noqa: E402  # the tests' homes lie beside this folder
from tests.browser.conftest import FLAGS, serve  # noqa: E402
from tests.web.furnished import furnish_with_life, furnish_with_much  # noqa: E402

PAGES = (
    *(
        "/",
        "/chat",
        "/skills",
        "/skills?view=map",
        "/new",
        "/import",
        "/try",
        "/tools",
        "/archive",
        "/lessons",
        "/inbox",
    ),
    *("/activity", "/insights", "/connections", "/team", "/automation", "/settings", "/secrets", "/doctor", "/nowhere"),
)
OF_MUCH = (
    *("/try?request=close+the+books", "/inbox/1", "/activity/s1", "/skills/broken"),
    *(f"/skills/close-the-month{tab}" for tab in ("", "?tab=edit", "?tab=history&version=3", "?tab=results")),
    *("/skills/shout?tab=code", "/skills/look-around?tab=recipes", "/skills/close-the-month?tab=improve"),
)
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 812}, "color_scheme": "light"},
}
WEIGHED = (
    *("/", "/inbox", "/activity", "/lessons", "/skills", "/skills?view=map", "/insights", "/settings"),
    "/skills/close-the-month?tab=edit",
)
OF_DOCS = {"home.png": "/", "skills.png": "/skills?sort=uses", "review.png": "/inbox/1", "chat.png": "/chat/s1"}


def main(words: Sequence[str]) -> int:
    if not words:
        print(__doc__)
        return 2
    if words[0] == "--docs":
        with browser() as chromium, site(has_much=True) as (address, link):
            for name, path in OF_DOCS.items():
                page = opened(chromium, f"{address}/enter?key={link()}", LOOKS["light"])
                load(page, address + path)
                page.screenshot(path=ROOT / "docs" / "images" / name)
        return 0
    if words[0] == "--weigh":
        skills = int(words[1]) if len(words) > 1 else 2000
        print(f"| {skills} skills | first visit, kB (requests) | later |")
        with browser() as chromium, site(has_much=True, skills=skills) as (address, link):
            for path in WEIGHED:
                first, later = weigh(chromium, f"{address}/enter?key={link()}", address + path)
                print(
                    f"| {path} | {first[0] / 1000:.0f} ({first[1]}) | {later[0] / 1000:.0f} ({later[1]}) |", flush=True
                )
        return 0
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    wide = []
    with browser() as chromium:
        for has_much in (True, False):
            with site(has_much=has_much) as (address, link):
                paths = [path for path in PAGES + OF_MUCH * has_much if not words[1:] or path in words[1:]]
                for look, context in LOOKS.items():
                    page = opened(chromium, f"{address}/enter?key={link()}", context)
                    wide += list(pictured(page, address, paths, folder, f"{'much' if has_much else 'none'}-{look}"))
    print(f"{len(list(folder.glob('*.png')))} pictures are in {folder}.", *wide, sep="\n")
    return 1 if wide else 0


def weigh(chromium: Browser, enter: str, address: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Bytes and requests of the first visit and of the next, in a browser of its own."""
    page = opened(chromium, "about:blank", LOOKS["light"])
    page.request.get(enter, max_redirects=0)  # the cookie, without a page
    found = visit(page, address), visit(page, address)
    page.context.close()
    return found


def visit(page: Page, address: str) -> tuple[int, int]:
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.goto(address, wait_until="load")
    page.wait_for_timeout(1500)  # what is loaded after the page
    session.detach()
    asked = [size for size in sizes if size]  # of what is kept, nothing is transferred
    return sum(asked), len(asked)


def pictured(page: Page, address: str, paths: Sequence[str], folder: Path, prefix: str) -> Iterator[str]:
    """Take them; says which are wider than the screen."""
    for path in paths:
        load(page, address + path)
        name = path.strip("/").translate(str.maketrans("/?=&", "---.")) or "home"
        page.screenshot(path=folder / f"{name}-{prefix}.png", full_page=True)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            yield f"{prefix}: {path} is wider than the screen."


def load(page: Page, address: str) -> None:
    """Open a page and wait for the parts that are loaded after it; its stream of changes stays open."""
    page.goto(address)
    expect(page.locator("main .busy, .htmx-request")).to_have_count(0)


def opened(chromium: Browser, address: str, look: dict[str, object]) -> Page:
    page = chromium.new_context(**look).new_page()  # type: ignore[arg-type]  # they are as it takes them
    page.goto(address)
    return page


@contextmanager
def browser() -> Iterator[Browser]:
    where = shutil.which("chromium") or shutil.which("google-chrome")
    if where is None:
        sys.exit("There is no browser here. Install one: apt-get install chromium")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=where, args=FLAGS.split())


@contextmanager
def site(*, has_much: bool, skills: int = 300) -> Iterator[tuple[str, Callable[[], str]]]:
    """A home of its own that is served on this machine, and what makes a link to sign in with."""
    with tempfile.TemporaryDirectory() as place:
        environ = {"HOME": place, "USER": "ann", "HABITUS_DURABLE": "false"}
        if has_much:
            script = Path(place) / "script.json"
            script.write_text("[]")
            environ["HABITUS_MODEL"] = f"script:{script}"
        settings = read_settings(Path(place) / "home", environ).model_copy(update={"cwd": Path(place)})
        with Habitus.open(settings) as habitus:
            if has_much:
                furnish_with_life(habitus)
                furnish_with_much(habitus, skills=skills, waiting=40, requests=240)
                (settings.home / "skills" / "broken").mkdir()
                (settings.home / "skills" / "broken" / "SKILL.md").write_text("---\nname: [broken\n---\n1. Fix me.\n")
            with serve(habitus) as served:
                yield served.address, served.keys.create_owner_sign_in_key


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
