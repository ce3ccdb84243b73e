"""Archives with very many files: refused by their list of contents, or left to a worker."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.library import uploading
from habitus.app.operating.jobs import open_job_queue, run_home_worker

API = "/api/v1/uploads"
SKILL = "---\nname: s{0}\ndescription: How to do {0}.\n---\n1. Do {0}.\n"


def packed(files: Iterable[tuple[str, str]]) -> dict[str, tuple[str, bytes]]:
    sent = io.BytesIO()
    with zipfile.ZipFile(sent, "w") as archive:
        for path, text in files:
            archive.writestr(path, text)
    return {"file": ("many.zip", sent.getvalue())}


@pytest.mark.some(1)
@pytest.mark.req("SC-01", "SK-18")
@pytest.mark.parametrize("path", ["f{0}.txt", "s/{0}/notes.txt", "s{0}/SKILL.md", "skill/f{0}.txt"])
def test_too_many_files_are_refused_before_any_is_unpacked(
    api: TestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = packed([("skill/SKILL.md", SKILL.format(0)), *((path.format(number), "") for number in range(6_000))])
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("A file was unpacked."))
    refused = api.post(API, files=files)
    assert (refused.status_code, "files" in refused.text, "at most 5,000" in refused.text) == (422, True, True)
    (only,) = api.post(f"{API}?save=true", files=files).json()["results"]
    assert (only["verdict"], "at most 5,000" in only["reason"]) == ("refused", True)


@pytest.mark.req("CL-02", "CL-03")
def test_a_large_upload_is_shown_in_part_and_left_to_a_worker(
    api: TestClient, browser: TestClient, habitus: Habitus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert uploading.MAX_SKILLS == 3_000
    monkeypatch.setattr(uploading, "MAX_SKILLS", 2)  # as 3,000 would be
    files = packed((f"s{number}/SKILL.md", SKILL.format(number)) for number in range(3))
    looked = api.post(API, files=files).json()
    assert ([one["name"] for one in looked["scanned"]], looked["is_cut"]) == (["s0", "s1"], True)
    assert "There are more" in browser.post("/import/look", files=files).text
    job = api.post(f"{API}?save=true", files=files).json()
    assert (job["kind"], job["state"], api.get("/api/v1/skills/s2").status_code) == ("import", "pending", 404)
    assert "a worker imports it" in browser.post("/import/take", files=files).text
    other = api.post(f"{API}?save=true", files=files).json()
    assert api.post(f"/api/v1/jobs/{other['id']}/cancel").status_code == 200
    assert other["id"] not in [folder.name for folder in (habitus.settings.home / uploading.UPLOADS_DIR).iterdir()]
    with run_home_worker(habitus, queue := open_job_queue(habitus, for_worker=True), starts_due=False):
        while queue.count_unfinished_jobs():
            pass
    done = api.get(f"/api/v1/jobs/{job['id']}").json()
    assert (done["state"], done["parts_done"], done["result"]["imported"]) == ("done", 2, 3)
    assert api.get("/api/v1/skills/s2").status_code == 200
    assert list((habitus.settings.home / uploading.UPLOADS_DIR).iterdir()) == []
