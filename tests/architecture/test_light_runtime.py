"""Importing the runtime or the façade loads none of the compiler's packages, nor of its own rooms too many."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.runtime.hal.local.local_device import LocalDevice

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tilewright"
COMPILER_PACKAGES = {"llvmlite", "onnx", "torch"}
HEAVY = (
    "llvmlite", "onnx", "torch", "onnxruntime", "click", "rich", "numpy.ma", "tilewright.compiler", "tvm_ffi",
)  # fmt: skip


def modules_after(statement: str) -> set[str]:
    return words_of(f"import sys\n{statement}\nprint('\\n'.join(sys.modules))")


def words_of(program: str) -> set[str]:
    """What a program prints in a fresh process."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(finished.stdout.split())


def imported_packages(path: Path) -> set[str]:
    """Top-level names a file imports, wherever the statement stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize(
    "statement", ["import onnx.helper", "def f():\n    from torch import nn"]
)
def test_the_check_sees_imports_wherever_they_stand(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(statement + "\n")
    assert imported_packages(path) & COMPILER_PACKAGES


@pytest.mark.parametrize("room", ["base", "formats", "runtime"])
def test_no_file_of_it_names_a_package_of_the_compiler(room: str) -> None:
    files = sorted((SOURCE / room).rglob("*.py"))
    assert files
    users = {
        path.relative_to(SOURCE).as_posix(): imported_packages(path) & COMPILER_PACKAGES
        for path in files
    }
    assert {name: used for name, used in users.items() if used} == {}


@pytest.mark.parametrize(
    "module", ["tilewright.runtime", "tilewright.formats", "tilewright.base"]
)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert sorted(loaded.intersection(HEAVY)) == []


def test_the_facade_is_lazy() -> None:
    loaded = modules_after("import tilewright")
    assert sorted(loaded.intersection(HEAVY)) == []


def test_loading_an_artifact_needs_no_compiler() -> None:
    loaded = modules_after("import tilewright; tilewright.load")
    assert sorted(loaded.intersection(HEAVY)) == []


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["cpu", "get_global_func", "runtime.Module"])
def test_packed_functions_come_when_they_are_asked_for_and_leave_torch_alone(
    name: str,
) -> None:
    loaded = modules_after(
        f"import tilewright; import tilewright.runtime; tilewright.{name}"
    )
    assert sorted(loaded.intersection(HEAVY)) == ["tvm_ffi"]


@pytest.mark.needs_torch
def test_torch_can_be_imported_after_it_was_hidden() -> None:
    pytest.importorskip("torch")
    assert words_of(
        "from tilewright.runtime.packed.functions import packed_function\n"
        "import torch\n"
        "print(torch.from_dlpack(packed_function(lambda x: x)(torch.ones(3))).sum().item())"
    ) == {"3.0"}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("light") / "mlp.vmfb"
    tw.compile(mlp(), jobs=1).save(path)
    return path


def replay(artifact: Path) -> str:
    return (
        "import numpy, tilewright\n"
        f"session = tilewright.load({str(artifact)!r})\n"
        "(_, dtype, shape), = session.inputs\n"
        "shape = [d if isinstance(d, int) else 3 for d in shape]\n"
        "session(numpy.ones(shape, dtype.numpy))"
    )


def test_a_session_that_replays_a_plan_loads_what_replays_plans(artifact: Path) -> None:
    loaded = modules_after(replay(artifact))
    assert sorted(loaded.intersection((*HEAVY, "ml_dtypes"))) == []
    ours = loaded - modules_after("import numpy")
    assert sorted(ours.intersection(("numpy.typing", "tempfile"))) == []
    rooms = ("runtime.vm", "runtime.hal", "runtime.modules", "formats.bytecode.isa")
    prefixes = tuple(f"tilewright.{room}" for room in rooms)
    assert sorted(name for name in loaded if name.startswith(prefixes)) == []
    assert "tilewright.runtime.plan_executor.executor" in loaded


def test_no_source_of_dataclasses_is_compiled_for_it(artifact: Path) -> None:
    """Records serve there: see decision 10."""
    classes = words_of(
        f"import sys\n{replay(artifact)}\n"
        "for name, module in list(sys.modules.items()):\n"
        "    for value in vars(module).values() if 'tilewright' in name else ():\n"
        "        for mark in ('__dataclass_params__', '__dataclass_fields__'):\n"
        "            if mark in getattr(value, '__dict__', {}):\n"
        "                print(f'{mark}:{value.__module__}.{value.__qualname__}')"
    )
    assert "__dataclass_fields__:tilewright.formats.plan.steps.Plan" in classes
    assert sorted(name for name in classes if name.startswith("__dataclass_params__")) == []


def test_its_device_and_calls_that_end_later_come_when_they_are_asked_for(
    artifact: Path,
) -> None:
    session = tw.load(artifact, threads=2)
    ((_, dtype, shape),) = session.inputs
    array = np.ones([d if isinstance(d, int) else 3 for d in shape], dtype.numpy)
    device = session.device
    assert isinstance(device, LocalDevice)
    assert device is session.device
    assert device.thread_count == session.threads == 2
    np.testing.assert_array_equal(session.begin(array).result(), session(array))
