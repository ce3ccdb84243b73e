"""The standard library and scientific packages do their work under the system-call filter."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from habitus.errors import ToolFailed
from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.machine import MachineCapabilities, get_base_python
from habitus.sandbox.model import MIB, SandboxLimits
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder

pytestmark = pytest.mark.req("SB-09")
NUMPY = """
import multiprocessing.pool, numpy as np, os, subprocess, sys, tempfile
a = np.random.default_rng(0).normal(size=(300, 300))
inverse = np.linalg.inv(a @ a.T + np.eye(300))
with tempfile.NamedTemporaryFile() as file:
    held = np.memmap(file.name, dtype="f8", mode="w+", shape=(1000,))
    held[:] = 1
    held.flush()
    assert np.fromfile(file.name).sum() == 1000
with multiprocessing.pool.ThreadPool(3) as pool:
    assert sum(pool.map(lambda n: int(np.arange(n).sum()), [10] * 9)) == 405
print(round(float(np.trace(inverse @ (a @ a.T + np.eye(300)))), 6))
"""
# What the standard library reaches the kernel for, besides reading and writing.
LIBRARY = """
import asyncio, concurrent.futures, fcntl, mmap, multiprocessing, os, resource, select, shutil, signal, socket
import sqlite3, subprocess, sys, tempfile, threading, time
async def converse():
    server = await asyncio.start_server(lambda r, w: (w.write(b"hi"), w.close()), "127.0.0.1", 0)
    reader, _ = await asyncio.open_connection(*server.sockets[0].getsockname())
    child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", "print(1)", stdout=-1)
    assert (await reader.read(), (await child.communicate())[0]) == (b"hi", b"1\\n")
asyncio.run(converse())
with sqlite3.connect("t.db") as db:
    db.execute("pragma journal_mode=wal"); db.execute("create table t(a)"); db.execute("insert into t values (1)")
with open("t", "w+b") as file:
    file.write(bytes(9)), file.flush(), os.fsync(file), os.posix_fallocate(file.fileno(), 0, 99), fcntl.flock(file, 2)
    mmap.mmap(file.fileno(), 0).flush()
    os.chmod("t", 0o600), os.utime("t", (1, 1)), os.copy_file_range(file.fileno(), os.open("u", 65, 384), 9)
shutil.copytree(".", "/tmp/copy")
os.mkfifo("pipe"), os.symlink("t", "link"), os.link("t", "hard"), os.rename("hard", "moved")
select.epoll().poll(0), os.eventfd(1), os.pidfd_open(os.getpid()), os.memfd_create("m") if given else None
signal.setitimer(signal.ITIMER_REAL, 99), signal.sigtimedwait([signal.SIGUSR1], 0)
signal.pthread_kill(threading.get_ident(), 0), socket.socketpair()
os.nice(1), os.sched_setaffinity(0, os.sched_getaffinity(0)), resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.sendfile(os.open("v", 65, 384), os.open("t", 0), 0, 9), os.splice(os.open("t", 0), os.pipe()[1], 9)
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
with concurrent.futures.ThreadPoolExecutor(3) as pool: list(pool.map(time.sleep, [0.01] * 3))
os.getloadavg(), os.statvfs("."), os.times(), subprocess.run([sys.executable, "-V"], stdout=-3, check=True)
print(300.0)
"""
# What each package is asked to do: compute in several threads, write and read a file in its own way.
WORK = {
    "numpy": NUMPY,
    "pandas": """
import pandas as pd
table = pd.DataFrame({"a": range(1000), "b": ["x", "y"] * 500})
table.to_csv("t.csv"), table.to_pickle("t.pkl")
print(float(pd.read_pickle("t.pkl").groupby("b").a.sum().sum() + pd.read_csv("t.csv").a.sum()) / 499500 * 150)
""",
    "scipy": """
import numpy as np, scipy.optimize, scipy.sparse.linalg
m = scipy.sparse.identity(300, format="csr")
print(float(scipy.sparse.linalg.spsolve(m, np.ones(300)).sum()), scipy.optimize.root(lambda x: x - 1, 0).success)
""",
    "scikit-learn": """
import numpy as np
from sklearn.ensemble import RandomForestClassifier
x = np.random.default_rng(0).normal(size=(300, 4))
print(float(RandomForestClassifier(20, n_jobs=2, random_state=0).fit(x, x[:, 0] > 0).score(x, x[:, 0] > 0)) * 300)
""",
    "pyarrow": """
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.compute as pc
pq.write_table(pa.table({"a": [1.0] * 300}), "t.parquet")
print(pc.sum(pq.read_table("t.parquet", memory_map=True)["a"]).as_py())
""",
    "polars": """
import polars as pl
pl.DataFrame({"a": [1.0] * 300}).write_parquet("t.parquet")
print(pl.scan_parquet("t.parquet").select(pl.col("a").sum()).collect()["a"][0])
""",
    "duckdb": """
import duckdb
with duckdb.connect("t.duckdb") as db:
    db.execute("create table t as select 1.0::double a from range(300)")
    print(db.execute("select sum(a) from t").fetchone()[0])
""",
    "matplotlib": """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt, os
plt.plot([1, 2]); plt.savefig("p.png"); plt.savefig("p.pdf")
print(float(300 * (os.path.getsize("p.png") > 1000)))
""",
    "pillow": """
from PIL import Image
Image.new("L", (30, 10), 255).save("p.jpg")
print(float(Image.open("p.jpg").size[0] * 10))
""",
    "opencv-python-headless": """
import cv2, numpy as np
cv2.imwrite("p.png", np.zeros((300, 9), "u1"))
print(float(cv2.GaussianBlur(cv2.imread("p.png", 0), (5, 5), 0).shape[0]))
""",
    "h5py": """
import h5py, numpy as np
with h5py.File("t.h5", "w") as file: file["a"] = np.ones(300)
with h5py.File("t.h5") as file: print(float(file["a"][:].sum()))
""",
    "lxml": """
from lxml import etree
print(float(len(etree.fromstring("<a>" + "<b/>" * 300 + "</a>").xpath("//b"))))
""",
    "numba": """
import numba, numpy as np
@numba.njit(parallel=True)
def total(a):
    s = 0.0
    for i in numba.prange(a.size): s += a[i]
    return s
print(total(np.ones(300)))
""",
    "torch": """
import torch
layer = torch.nn.Linear(300, 1)
loss = layer(torch.ones(8, 300)).sum(); loss.backward()
torch.save(layer.state_dict(), "m.pt"); torch.load("m.pt")
print(float(torch.ones(300).sum()))
""",
    "lightgbm": """
import lightgbm, numpy as np
x = np.random.default_rng(0).normal(size=(300, 3))
model = lightgbm.train({"verbose": -1, "num_threads": 2}, lightgbm.Dataset(x, x[:, 0]), 5)
print(float(len(model.predict(x))))
""",
    "statsmodels": """
import numpy as np, statsmodels.api as sm
print(float(sm.OLS(np.arange(300.0), np.ones((300, 1))).fit().nobs))
""",
    "onnxruntime": "import onnxruntime\nprint(float(300 * (len(onnxruntime.get_available_providers()) > 0)))",
}


@pytest.fixture
async def warm(machine: MachineCapabilities, tmp_path: Path) -> AsyncIterator[ForkServerPool]:
    async with ForkServerPool(machine, tmp_path / "run", allow_weaker=True) as pool:
        yield pool


async def test_the_standard_library_finds_its_calls(warm: ForkServerPool, machine: MachineCapabilities) -> None:
    executable = f"import sys\nsys.executable = {get_base_python()!r}\ngiven = {machine.cgroups is not None}\n"
    await _assert_works(warm, executable + LIBRARY, None)


async def test_numpy_computes_maps_files_and_starts_threads(warm: ForkServerPool) -> None:
    await _assert_works(warm, NUMPY, Path(sys.prefix))


@pytest.mark.full
@pytest.mark.parametrize("package", WORK)
async def test_a_scientific_package_does_its_work(warm: ForkServerPool, tmp_path: Path, package: str) -> None:
    builder = VenvBuilder(os.environ, python=get_base_python())
    try:
        venv = await EnvironmentCache(tmp_path / "environments", builder).ensure_environment([package])
    except ToolFailed as error:
        pytest.skip(f"can't install {package} here: {error}")
    await _assert_works(warm, WORK[package], venv)


async def _assert_works(warm: ForkServerPool, code: str, venv: Path | None) -> None:
    limits = SandboxLimits(wall_s=300, cpu_s=300, memory=4096 * MIB, processes=100, open_files=1000)
    run = await warm.call_tool(SandboxedProgram(code=code, venv=venv, limits=limits), None)
    assert run.outcome.is_ok, run
    assert run.stdout.startswith("300.0"), run
    assert "not permitted" not in run.stderr, run
    assert "not implemented" not in run.stderr, run
