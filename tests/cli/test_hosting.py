"""The recipes for hosting and releasing, checked by the tools that read them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx2
import psycopg
import pytest
import sqlalchemy as sa
import yaml

from habitus.app import read_settings
from habitus.mcp.http import open_listening_socket
from tests.jobs.counting import until
from tests.web.test_oidc import running_provider

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "examples" / "operations"
CHECKS = {
    "hadolint": ["hadolint", "Dockerfile"],
    "kubernetes-validate": ["kubernetes-validate", "--strict", "examples/operations/kubernetes.yaml"],
    "workflows": [
        "check-jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        ".github/workflows/ci.yml",
        ".github/workflows/release.yml",
    ],
    "compose": ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "examples/operations/compose.yaml"],
    "zizmor": ["zizmor", "--offline", "--quiet", ".github/workflows"],
}


@pytest.mark.full
@pytest.mark.req("OP-07")
@pytest.mark.parametrize("name", CHECKS)
def test_the_tools_that_read_a_recipe_object_to_nothing(name: str) -> None:
    program, *words = CHECKS[name]
    found = shutil.which(program, path=str(Path(sys.executable).parent)) or shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}")
    done = subprocess.run([found, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.req("OP-07")
def test_pods_are_confined_and_take_secrets_by_reference() -> None:
    parts = list(yaml.safe_load_all((OPERATIONS / "kubernetes.yaml").read_text()))
    assert sorted(part["kind"] for part in parts) == [
        *("ConfigMap", "Deployment", "Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service")
    ]
    for pod in [part["spec"]["template"]["spec"] for part in parts if part["kind"] in ("Deployment", "Job")]:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert all("secretKeyRef" in one["valueFrom"] for one in container["env"])


@pytest.mark.req("OP-07")
def test_pods_of_the_page_have_an_address_and_a_provider_that_the_settings_take(tmp_path: Path) -> None:
    parts = list(yaml.safe_load_all((OPERATIONS / "kubernetes.yaml").read_text()))
    (given,) = [part["data"] for part in parts if part["kind"] == "ConfigMap"]
    settings = read_settings(tmp_path, {**given, "HOME": str(tmp_path)})
    assert settings.web.address == "https://habitus.example.org"
    assert (settings.oidc.issuer, settings.oidc.admins) == ("https://login.example.org/realms/main", ("platform",))
    (web,) = [
        part["spec"]["template"]["spec"]
        for part in parts
        if part["metadata"]["name"] == "habitus-web" and part["kind"] == "Deployment"
    ]
    (container,) = web["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": "habitus"}}]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (secret,) = [(one["name"], one["secret"]["items"][0]["path"]) for one in web["volumes"] if "secret" in one]
    assert Path(mounts[secret[0]]) / secret[1] == settings.oidc.client_secret_file


class Host:
    """One machine on which the commands of the guide run, word for word but for its addresses and ports."""

    def __init__(self, root: Path, changes: Mapping[str, str]) -> None:
        self.root = root
        self.environ = {**os.environ, "HOME": str(root), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._changes = changes
        self._background: list[subprocess.Popen[bytes]] = []

    def type(self, line: str) -> str:
        """Run a line in a shell that keeps what it exports; one that ends in `&` goes on."""
        for written, here in self._changes.items():
            line = line.replace(written, here)
        if line.endswith("&"):
            command = ["bash", "-c", f"exec {line.removesuffix('&')}"]
            with (self.root / f"{len(self._background)}.log").open("wb") as log:
                self._background.append(subprocess.Popen(command, env=self.environ, stdout=log, stderr=log))
            return ""
        done = subprocess.run(
            ["bash", "-ec", f"{line}\nenv -0 > {self.root}/env"], env=self.environ, capture_output=True, text=True
        )
        assert done.returncode == 0, line + done.stderr
        pairs = (self.root / "env").read_text().rstrip("\0").split("\0")
        self.environ = dict(pair.split("=", 1) for pair in pairs)
        return done.stdout

    def shut_down(self) -> None:
        for process in self._background:
            process.terminate()
        for process in self._background:
            process.wait()


def find_free_ports(count: int) -> list[int]:
    with ExitStack() as lines:
        found = [lines.enter_context(open_listening_socket("127.0.0.1", 0)) for _ in range(count)]
        return [line.getsockname()[1] for line in found]


@pytest.mark.full
@pytest.mark.req("OP-07", "OP-08")
def test_a_newcomer_hosts_two_replicas_and_two_workers_by_the_guide(tmp_path: Path, postgres_server: str) -> None:
    guide = (ROOT / "docs" / "guides" / "operations.md").read_text()
    (block,) = re.findall(r"^### Without containers\n.*?^```console\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    typed = [line.removeprefix("$ ") for line in block.splitlines()]
    # What needs root or a network; `nginx.conf` has a test of its own.
    lines = [line for line in typed if not line.startswith(("sudo ", "pipx ", "uv "))]
    assert typed[2] in (ROOT / "README.md").read_text()
    assert [line for line in typed if line not in lines][-1].startswith("sudo cp examples/operations/nginx.conf ")
    first, second, provider_port = find_free_ports(3)
    with ExitStack() as around:
        provider = around.enter_context(running_provider(provider_port))
        host = Host(
            tmp_path,
            {
                "postgresql://habitus:change-me@localhost/habitus": f"'{add_database(postgres_server, 'hosted')}'",
                "https://habitus.example.org": f"http://127.0.0.1:{first}",
                "https://login.example.org/realms/main": provider,
                "8765": str(first),
                "8766": str(second),
            },
        )
        around.callback(host.shut_down)
        for line in lines:
            host.type(line)
        addresses = [f"http://127.0.0.1:{port}" for port in (first, second)]
        for address in addresses:
            until(lambda address=address: answers(address))  # type: ignore[misc]
        browser = around.enter_context(httpx2.Client(timeout=60))
        asked = browser.get(f"{addresses[0]}/oidc/sign-in")
        back = httpx2.post(asked.headers["location"], data={"sub": "s-ben"}).headers["location"]
        assert browser.get(back).status_code == 303
        for address in addresses:
            assert "ben, admin" in browser.get(f"{address}/activity").text
        until(lambda: len(json.loads(host.type("habitus jobs workers --json"))["workers"]) == 2)
        job = json.loads(host.type("habitus jobs add curate --json"))["id"]
        until(lambda: json.loads(host.type(f"habitus jobs show {job} --json"))["state"] == "done")
        # Only the replica itself can index what it searches.
        (csrf,) = re.findall(r'"X-CSRF": "(\w+)"', browser.get(f"{addresses[1]}/automation").text)
        added = browser.post(f"{addresses[1]}/api/v1/jobs", json={"kind": "index"}, headers={"X-CSRF": csrf})
        until(lambda: browser.get(f"{addresses[0]}/api/v1/jobs/{added.json()['id']}").json()["state"] == "done")
        # The owner's link leads to the replica that printed it.
        for address, log in zip(addresses, ("0.log", "1.log"), strict=True):
            link = re.findall(r"works once: (\S+)", (tmp_path / log).read_text())[-1]
            assert link.startswith(f"{address}/enter?key=")
            assert httpx2.get(link).status_code == 303


@pytest.mark.full
@pytest.mark.req("OP-07")
def test_the_balancer_passes_on_the_name_streams_and_large_uploads(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.skip("needs nginx")
    front, back = find_free_ports(2)
    site = (OPERATIONS / "nginx.conf").read_text()
    # Without a certificate; the other replica is down, so the balancer has to find this one.
    for written, here in {
        "listen 443 ssl": f"listen 127.0.0.1:{front}",
        "127.0.0.1:8765": f"127.0.0.1:{back}",
        "127.0.0.1:8766": f"127.0.0.1:{find_free_ports(1)[0]}",
    }.items():
        assert written in site
        site = site.replace(written, here)
    site = re.sub(r"^ *ssl_.*$", "", site, flags=re.MULTILINE)
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/nginx;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx").mkdir()
    whole = f"daemon off; master_process off; pid {tmp_path}/pid; events {{}} http {{ {paths} access_log off;\n{site}}}"
    (tmp_path / "nginx.conf").write_text(whole)
    with ExitStack() as around:
        host = Host(tmp_path, {})
        around.callback(host.shut_down)
        host.environ |= {"HABITUS_WEB_ADDRESS": f"http://127.0.0.1:{front}"}
        host.type(f"habitus up --port {back} &")
        host.type(f"{nginx} -c {tmp_path}/nginx.conf -e {tmp_path}/log &")
        address = f"http://127.0.0.1:{front}"
        until(lambda: answers(f"http://127.0.0.1:{back}"))
        until(lambda: answers(address))
        token = re.findall(r"Bearer (\w+)", (tmp_path / "0.log").read_text())[0]
        with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as program:
            job = program.post("/api/v1/jobs", json={"kind": "index"}).json()["id"]
            with program.stream("GET", f"/api/v1/jobs/{job}/events") as events:
                assert events.headers["content-type"].startswith("text/event-stream")
                assert next(events.iter_lines()).startswith("event: ")
            upload = {"file": ("skills.zip", bytes(5 * 1024**2))}
            assert program.post("/api/v1/uploads", files=upload).status_code not in (413, 502)


def answers(address: str) -> bool:
    try:
        return bool(httpx2.get(f"{address}/readyz").json()["status"] == "ready")
    except httpx2.TransportError:
        return False


def add_database(server: str, name: str) -> str:
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}_{os.getpid()}")
    return sa.make_url(server).set(database=f"{name}_{os.getpid()}").render_as_string(hide_password=False)
