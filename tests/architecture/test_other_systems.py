"""What only Linux has is missed by nothing: all modules can be imported without it, and models compiled and called.

The names are taken out of the standard library in a fresh process, as they are absent on macOS and on Windows.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ABSENT = {
    "macos": {
        "select": "POLLRDHUP epoll",
        "os": (
            "sched_getaffinity sched_setaffinity memfd_create O_TMPFILE posix_fadvise posix_fallocate sched_getparam"
        ),
        "mmap": "MADV_NOHUGEPAGE MADV_HUGEPAGE MADV_POPULATE_READ MAP_POPULATE",
    },
    "windows": {
        "select": "POLLRDHUP POLLHUP POLLERR POLLNVAL epoll poll",
        "os": (
            "sched_getaffinity sched_setaffinity memfd_create O_TMPFILE O_NOFOLLOW O_NONBLOCK RTLD_NOLOAD RTLD_NOW "
            "fork register_at_fork getuid geteuid getgid getegid killpg getpgid setsid sysconf statvfs uname fchmod "
            "posix_fadvise posix_fallocate pread pwrite nice"
        ),
        "mmap": "MADV_NOHUGEPAGE MADV_HUGEPAGE MADV_DONTNEED MADV_WILLNEED",
        "signal": "SIGHUP SIGPIPE SIGALRM setitimer pthread_sigmask",
    },
}
MODULES_OF_POSIX = "resource fcntl termios pwd grp tty pty"
PROGRAM = """
import importlib, os, pkgutil, sys, warnings
# What the packages that this house builds on do with the system is theirs.
import _posixsubprocess, asyncio, ctypes.util, http.server, llvmlite.binding, mmap, multiprocessing, numpy, select
import signal, socketserver, subprocess, tempfile, concurrent.futures, unittest.mock, webbrowser, logging, sqlite3
import onnx, onnx.helper, tvm_ffi, click, rich.console, rich.progress
tempfile._O_TMPFILE_WORKS = False
absent, modules = {absent!r}, {modules!r}
for module, names in absent.items():
    for name in names.split():
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
for name in modules.split():
    sys.modules[name] = None  # which makes `import` fail

import tilewright
skipped = []
for info in pkgutil.walk_packages(tilewright.__path__, "tilewright."):
    if info.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(info.name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("torch", "jax", "mpi4py", "jinja2"):
            skipped.append(info.name)
        else:
            raise

import numpy as np
from onnx import TensorProto, helper
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
compiled = tilewright.compile(model, threads=2)
value = np.ones((2, 3), np.float32)
assert np.allclose(compiled(value), np.exp(value))
path = sys.argv[1]
compiled.save(path)
assert np.allclose(tilewright.load(path)(value), np.exp(value))
print("well")
"""


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize("system", list(ABSENT))
@pytest.mark.sampled(3)
def test_models_are_compiled_and_called_where_the_system_lacks_what_linux_has(
    tmp_path_factory: pytest.TempPathFactory, system: str, native: str
) -> None:
    modules = MODULES_OF_POSIX if system == "windows" else ""
    program = PROGRAM.format(absent=ABSENT[system], modules=modules)
    path = tmp_path_factory.mktemp("model") / "model.vmfb"
    finished = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={**os.environ, "TILEWRIGHT_NATIVE": native},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.stdout.split()[-1:] == ["well"], finished.stderr[-3000:]
