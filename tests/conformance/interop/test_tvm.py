"""Libraries that TVM made run here: every model, as bytecode and compiled, `.so` and `.tar`.

TVM is not in this environment: its own makes the libraries and says what comes out (`fakes.tvm_models`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes.tvm_libraries import (
    MODES,
    NEWEST,
    ROOT,
    Libraries,
    agrees,
    as_argument,
    libraries,
    python_of,
    registered_functions,
)
from tilewright.runtime import load_module
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import register_global_func
from tilewright.runtime.packed.machine_module import MachineModule

pytestmark = pytest.mark.slow

MODELS = (
    "mlp", "mlp_dynamic", "convolutions", "normalized", "attention", "integers", "casts", "movement",
    "branch", "loop", "calls", "closures", "tuples", "shapes", "numbers", "strings", "large_constants",
    "extern", "several", "parallel", "in_place", "caches", "sampling",
)  # fmt: skip
SITE = f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
OLDER = ("0.25", "0.26")


def _libraries(release: str, seed: int = 7) -> Libraries:
    made = libraries(release, seed)
    if made is None:
        name = "tvm" if release == NEWEST else f"tvm-{release}"
        pytest.skip(f"there is no environment with TVM: make build/envs/{name}")
    return made


@pytest.fixture(autouse=True)
def _functions() -> None:
    for name, function in registered_functions(tvm_ffi.convert).items():
        register_global_func(name, function, override=True)


def _machine(path: Path, manager: int = 2) -> MachineModule:
    module = load_module(path)["vm_load_executable"]()
    assert isinstance(module, MachineModule)
    module["vm_initialization"](1, 0, manager)
    return module


def _check(made: Libraries, machine: MachineModule, model: str, repeats: int = 2) -> None:
    """Every call has TVM's result, or TVM's kind of error; the second time, too."""
    arrays = made.arrays(model)
    for call in made.calls(model) * repeats:
        arguments = [as_argument(one, arrays, tvm_ffi.Shape) for one in call["arguments"]]
        where = (call["function"], call["name"])
        if "error" not in call:
            assert agrees(machine[call["function"]](*arguments), call["result"], arrays), (
                where
            )
            continue
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the kind is looked at below
            machine[call["function"]](*arguments)
        kinds = {cls.__name__ for cls in type(caught.value).__mro__}
        # What TVM calls an internal error, a wrong number of arguments, is the caller's here.
        expected = "InputError" if call["error"] == "InternalError" else call["error"]
        assert expected in kinds, where


@pytest.mark.parametrize("suffix", ["so", "tar"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_gives_what_tvm_gives(model: str, mode: str, suffix: str) -> None:
    made = _libraries(NEWEST)
    _check(made, _machine(made.path(model, mode, suffix)), model)


@pytest.mark.parametrize("model", MODELS)
def test_other_inputs_give_what_tvm_gives(model: str) -> None:
    made = _libraries(NEWEST, seed=11)
    for mode in MODES:
        _check(made, _machine(made.path(model, mode, "so"), manager=1), model)


@pytest.mark.nightly
@pytest.mark.parametrize("release", OLDER)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", MODELS)
def test_libraries_of_older_releases_run(model: str, mode: str, release: str) -> None:
    made = _libraries(release)
    _check(made, _machine(made.path(model, mode, "so")), model, repeats=1)


@pytest.mark.parametrize("release", [NEWEST, *OLDER])
def test_every_model_is_compiled_by_every_release(release: str) -> None:
    made = _libraries(release)
    assert made.models == MODELS
    assert made.document["failed"] == {}


def test_texts_about_a_library_are_those_of_tvm() -> None:
    made = _libraries(NEWEST)
    for model in MODELS:
        module = load_module(made.path(model, "bytecode", "so"))
        assert module["as_text"]() == made.path(model, "bytecode", "txt").read_text()
        assert module.kind == "relax.VMExecutable"


def test_a_tensor_that_is_returned_is_the_one_that_was_given() -> None:
    machine = _machine(_libraries(NEWEST).path("several", "bytecode", "so"))
    given = tvm_ffi.from_dlpack(np.arange(3, dtype=np.float32))
    assert machine["same"](given).data_ptr() == given.data_ptr()


@pytest.mark.parametrize("memory", ["naive", "pooled"])
def test_the_virtual_machine_runs_a_library_of_tvm(memory: str) -> None:
    made = _libraries(NEWEST)
    lib = load_module(made.path("normalized", "bytecode", "so"))
    vm = tw.VirtualMachine(lib, tw.cpu(0), memory)
    arrays, call = made.arrays("normalized"), made.calls("normalized")[0]
    x, scale, shift = (arrays[one["array"]] for one in call["arguments"])
    vm.set_input("main", x, shift=shift, scale=scale)
    vm.invoke_stateful("main")
    assert agrees(vm.get_outputs("main"), call["result"], arrays)
    other = tw.VirtualMachine(lib, tw.cpu(0), memory)
    report = other.profile("main", x, scale, shift)
    assert {"gelu", "layer_norm", "vm.builtin.match_shape"} <= set(
        re.findall(r"\S+", str(report))
    )
    assert other.time_evaluator("main", tw.cpu(0), number=2)(x, scale, shift).mean > 0
    assert agrees(other["main"](x, scale, shift), call["result"], arrays)


@pytest.mark.parametrize("first", ["tvm", "tilewright"])
def test_both_machines_run_one_library_in_one_process(first: str) -> None:
    made, python = _libraries(NEWEST), python_of()
    files = [str(made.path("mlp_dynamic", mode, "so")) for mode in MODES]
    code = f"""
import importlib
import numpy as np
importlib.import_module({first!r})
import tilewright as tw, tilewright.runtime, tvm
from tvm import relax
x = np.ones((3, 16), np.float32)
for path in {files!r} * 2:
    ours = tw.VirtualMachine(tw.runtime.load_module(path), tw.cpu(0))["main"](x)
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    theirs = machine["main"](tvm.runtime.tensor(x))
    again = tw.VirtualMachine(tw.runtime.load_module(path), tw.cpu(0))["main"](x)
    for one in (ours, again):
        assert np.array_equal(np.from_dlpack(one), theirs.numpy())
"""
    assert python is not None
    folders = [
        ROOT / "src",
        python.parents[1] / "lib" / SITE,
        sysconfig.get_paths()["purelib"],
    ]
    done = subprocess.run(
        [str(python), "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _in_another_process(code: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "environment", [{"TILEWRIGHT_NATIVE": "0"}, {"TILEWRIGHT_THREADS": "3"}]
)
def test_kernels_with_parallel_loops_and_scratch_memory_run(
    environment: dict[str, Any],
) -> None:
    made = _libraries(NEWEST)
    path = made.path("parallel", "bytecode", "so")
    code = f"""
import numpy as np, tilewright.runtime
machine = tilewright.runtime.load_module({str(path)!r})["vm_load_executable"]()
machine["vm_initialization"](1, 0, 2)
arrays = np.load({str(made.folder / "parallel.npz")!r})
for _ in range(50):
    out = np.from_dlpack(machine["main"](arrays["a0"]))
    assert np.allclose(out, arrays["a1"], 1e-6, 1e-6)
"""
    _in_another_process(code, **environment)
