"""The recipes for hosting and releasing, checked by the tools that read them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
        *("Deployment", "Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service")
    ]
    for pod in [part["spec"]["template"]["spec"] for part in parts if part["kind"] in ("Deployment", "Job")]:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert all("secretKeyRef" in one["valueFrom"] for one in container["env"])
