from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.cuda_standin import SOURCES, StandIn
from tilewright.base import knobs
from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode
from tilewright.runtime.drivers.cuda import symbols
from tilewright.runtime.drivers.cuda.driver import CudaDriver
from tilewright.runtime.drivers.cuda.symbols import SYMBOLS, CudaLibrary, open_library

PACKAGE = Path(symbols.__file__).parent


def test_a_missing_library_says_what_to_do() -> None:
    with (
        knobs.override(cuda_library="/no/such/libcuda.so.1"),
        pytest.raises(DeviceError) as caught,
    ):
        CudaDriver().query_available_devices()
    assert caught.value.code == StatusCode.UNAVAILABLE
    assert "no CUDA driver: /no/such/libcuda.so.1: cannot open" in str(caught.value)
    assert "hint: install NVIDIA's driver" in str(caught.value)
    assert "TILEWRIGHT_CUDA_LIBRARY" in str(caught.value)


def test_a_library_of_something_else_is_refused() -> None:
    with pytest.raises(DeviceError, match="no function 'cuGetProcAddress'"):
        CudaLibrary("libm.so.6")


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda s: s.name)
def test_a_missing_function_is_named(standin: StandIn, symbol: symbols.Symbol) -> None:
    standin.hide(symbol.name)
    with pytest.raises(DeviceError, match=f"no function '{symbol.name}' of version 11.3"):
        open_library()


def test_results_become_status_codes_with_the_drivers_words(standin: StandIn) -> None:
    library = open_library()
    for result, code, text in (
        (2, StatusCode.RESOURCE_EXHAUSTED, "CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        (719, StatusCode.ABORTED, "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"),
        (100, StatusCode.UNAVAILABLE, "no CUDA-capable device is detected"),
        (4711, StatusCode.INTERNAL, "CUDA error 4711"),
    ):
        standin.fail("cuInit", 1, result)
        with pytest.raises(DeviceError) as caught:
            library.call("cuInit", 0)
        assert caught.value.code == code
        assert text in str(caught.value)
        assert str(caught.value).startswith("cuInit: ")


def test_a_library_that_did_not_start_is_tried_again(standin: StandIn) -> None:
    driver = CudaDriver()
    standin.fail("cuInit", 1, 100)
    with pytest.raises(DeviceError, match="no CUDA-capable device"):
        driver.query_available_devices()
    assert len(driver.query_available_devices()) == 2


def called_names() -> set[str]:
    """Names of functions in the driver's source, plain and made of pieces."""
    names: set[str] = set()
    for path in PACKAGE.glob("*.py"):
        if path.name == "symbols.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and str(node.value).startswith("cu"):
                names.add(str(node.value))
    return names


def test_the_table_has_what_is_called_and_nothing_more() -> None:
    table = {symbol.name for symbol in SYMBOLS}
    called = called_names()
    pieces = {"cuGraphAdd", "cuGraphExec"}  # + kind + "Node…"
    plain = {name for name in called if name[2:3].isupper()} - pieces
    assert plain <= table
    internal = {s.name for s in SYMBOLS if s.name in (PACKAGE / "symbols.py").read_text()}
    for name in table - plain:
        assert name in internal
        assert any(name.startswith(p) for p in pieces) or name in (
            "cuInit",
            "cuDriverGetVersion",
            "cuGetErrorName",
            "cuGetErrorString",
        ), name


def test_the_stand_in_has_every_function_of_the_table() -> None:
    text = (SOURCES / "cuda_api.h").read_text(encoding="utf-8")
    for symbol in SYMBOLS:
        assert f"X({symbol.name}, " in text


def test_importing_the_runtime_opens_no_library(standin: StandIn) -> None:
    code = (
        "import tilewright.runtime.drivers.registry as r\n"
        "r.REGISTRY.names(); [d.summary for d in r.drivers()]\n"
        "print('libcuda' in open('/proc/self/maps').read())\n"
        "r.create_device('cuda')\n"
        "print('libcuda' in open('/proc/self/maps').read())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TILEWRIGHT_CUDA_LIBRARY": standin.path, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["False", "True"]
