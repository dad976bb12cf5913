"""Exported libraries with branches and loops compute what a session computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes import flow_graphs, flow_models
from fakes.exported_library import CModel, LibraryError, export
from fakes.graphs import parse
from fakes.onnx_models import parse as parse_onnx
from tilewright.base.errors import InputError

MODELS = flow_models.models()


def outputs_of(value: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


def check(model: tw.Model, library: CModel, *inputs: np.ndarray) -> None:
    wanted = outputs_of(model(*inputs))
    found = [np.full_like(w, 9) for w in wanted]
    library.run_tensors(inputs, found)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    [
        "layers_whose_weights_are_stacked",
        "loops_that_swap_and_nest",
        "scan_backwards_along_other_axes",
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_libraries_branch_and_loop(name: str, threads: int, tmp_path: Path) -> None:
    model = tw.compile(MODELS[name].model, threads=threads)
    library = CModel(export(model, tmp_path / "net.so"), threads=threads)
    for inputs in [*MODELS[name].calls, *MODELS[name].calls]:
        check(model, library, *inputs)
    library.close()


@pytest.mark.slow
def test_an_index_of_any_trip_is_looked_at(tmp_path: Path) -> None:
    model = tw.compile(parse(flow_graphs.INDEXING), threads=1)
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    x = np.arange(5, dtype=np.float32)
    check(model, library, x, np.array([4, 0, -2]))
    for place in range(3):
        places = np.array([1, 1, 1])
        places[place] = 5
        with pytest.raises(
            LibraryError, match="index 5 is out of range on axis 0 of size 5"
        ):
            library.run_tensors([x, places], [np.empty((), np.float32)])
    check(model, library, x, np.array([0, 0, 0]))
    library.close()


def check_late(model: tw.Model, library: CModel, *inputs: np.ndarray) -> None:
    """The library makes what the model makes, into memory that is asked for, and into arrays of the right shapes."""
    wanted = outputs_of(model(*inputs))
    found = library.run_allocating(inputs, [w.dtype for w in wanted])
    given = [np.full_like(w, 9) for w in wanted]
    library.run_tensors(inputs, given)
    for one, other, more in zip(found, wanted, given, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(more, other)
        assert one.shape == other.shape


def check_calls(name: str, folder: Path, threads: int) -> None:
    model = tw.compile(MODELS[name].model, threads=threads)
    library = CModel(export(model, folder / "net.so"), threads=threads)
    for inputs in [*MODELS[name].calls, *MODELS[name].calls]:
        check_late(model, library, *inputs)
    library.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["what_a_loop_carries_grows", "rows_that_are_chosen"])
def test_libraries_read_sizes(name: str, tmp_path: Path) -> None:
    check_calls(name, tmp_path, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_whose_sizes_data_decides_is_a_library(
    name: str, threads: int, tmp_path: Path
) -> None:
    check_calls(name, tmp_path, threads)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Model, Path]:
    """Where a tensor is not zero."""
    folder = tmp_path_factory.mktemp("places")
    model = tw.compile(MODELS["places_that_are_not_zero"].model, threads=1)
    return model, export(model, folder / "net.so", header=folder / "net.h")


@pytest.mark.slow
def test_a_library_gives_shapes_that_data_decides(places: tuple[tw.Model, Path]) -> None:
    model, path = places
    library = CModel(path, threads=1)
    for inputs in MODELS["places_that_are_not_zero"].calls:
        check_late(model, library, *inputs)
        check_late(model, library, *(np.zeros_like(x) for x in inputs))
        check_late(model, library, *(np.ones_like(x) for x in inputs))
        check_late(model, library, *(np.zeros((0, *x.shape[1:]), x.dtype) for x in inputs))
    library.close()


def test_what_does_not_fit_is_said(places: tuple[tw.Model, Path]) -> None:
    model, path = places
    library = CModel(path, threads=1)
    inputs = MODELS["places_that_are_not_zero"].calls[0]
    wanted = outputs_of(model(*inputs))
    wrong = [np.zeros((*w.shape[:-1], w.shape[-1] + 1), w.dtype) for w in wanted]
    with pytest.raises(
        LibraryError, match=r"output '\w+': got i64\[.*\], expected i64"
    ) as e:
        library.run_tensors(inputs, wrong)
    assert e.value.args[0] == 1
    with pytest.raises(
        LibraryError, match=r"the caller has no memory for it, \d+ bytes"
    ) as e:
        library.run_allocating(inputs, [w.dtype for w in wanted], gives=False)
    assert e.value.args[0] == 2
    for options in ({"concurrency": 1}, {"workspace": 1 << 20, "workspace_bytes": 64}):
        with pytest.raises(LibraryError, match="sizes that data decides"):
            CModel(path, **options)
    check_late(model, library, *inputs)
    library.close()


def test_the_header_of_a_late_shape_has_no_call_by_addresses(
    places: tuple[tw.Model, Path],
) -> None:
    header = (places[1].parent / "net.h").read_text()
    assert "net_run_allocating(net* model" in header
    assert "int net_run(" not in header
    assert "int net_run_dims(" not in header
    assert "WORKSPACE_BYTES(" not in header


def test_libraries_with_late_shapes_are_loaded_by_python(
    places: tuple[tw.Model, Path],
) -> None:
    model, path = places
    loaded = tw.runtime.load_module(str(path))
    executor = loaded["default"]()
    name = model.inputs[0].name
    for x in [c[0] for c in MODELS["places_that_are_not_zero"].calls] * 2:
        (wanted,) = outputs_of(model(x))
        np.testing.assert_array_equal(np.from_dlpack(loaded["main"](x)), wanted)
        executor.set_input(name, x)
        executor.run()
        np.testing.assert_array_equal(np.from_dlpack(executor.get_output(0)), wanted)


def test_a_size_that_data_gives_is_looked_at(tmp_path: Path) -> None:
    model = tw.compile(MODELS["as_many_as_data_says"].model, threads=1)
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    inputs = MODELS["as_many_as_data_says"].calls[0]
    check_late(model, library, *inputs)
    bad = [np.full_like(x, -3) if x.dtype == np.int64 else x for x in inputs]
    with pytest.raises(InputError) as by_session:
        model(*bad)
    with pytest.raises(LibraryError) as by_library:
        library.run_allocating(bad, [w.dtype for w in outputs_of(model(*inputs))])
    assert by_library.value.args[1] in str(by_session.value)
    check_late(model, library, *inputs)
    library.close()


@pytest.mark.slow
def test_threads_share_what_was_recorded(tmp_path: Path) -> None:
    """Each call has sizes of its own, which grow from trip to trip."""
    case = MODELS["what_a_loop_carries_grows"]
    model = tw.compile(case.model, threads=1)
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    wanted = [outputs_of(model(*inputs)) for inputs in case.calls]

    def work(seed: int) -> None:
        for turn in range(30):
            place = (seed + turn) % len(case.calls)
            types = [w.dtype for w in wanted[place]]
            found = library.run_allocating(case.calls[place], types)
            for one, other in zip(found, wanted[place], strict=True):
                np.testing.assert_array_equal(one, other)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(8)]:
            done.result()
    library.close()


@pytest.mark.slow
def test_a_branch_that_cannot_run_is_no_error_unless_it_runs(tmp_path: Path) -> None:
    """Sizes that only one branch needs to agree."""
    case = MODELS["sizes_that_only_what_runs_compares"]
    model = tw.compile(case.model, threads=1)
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    refused = 0
    for inputs in case.calls:
        check_late(model, library, *inputs)
        other = [np.asarray(~x) if x.dtype == np.bool_ else x for x in inputs]
        problem = error_of(model, *other)
        refused += problem is not None
        if problem is None:
            check_late(model, library, *other)
            continue
        with pytest.raises(LibraryError) as caught:
            library.run_allocating(other, [np.float32] * 2)
        assert caught.value.args[1] in problem
    assert refused
    library.close()


FILLED_UP = """filled (bool c, float[N] x) => (float[P] y) <int64[1] five = {5}> {
    y = If (c) <
        then_branch = g1 () => (float[Q] y1) {
            s = Shape(x)  d = Sub(five, s)  z = ConstantOfShape(d)  y1 = Concat<axis = 0>(x, z)
        },
        else_branch = g2 () => (float[R] y2) { y2 = Identity(x) }>
}"""


@pytest.mark.slow
def test_a_size_below_zero_in_a_kernel_is_an_error_where_it_runs(tmp_path: Path) -> None:
    model = tw.compile(parse_onnx(FILLED_UP), threads=1)
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    for size in (3, 7):
        x = np.arange(size, dtype=np.float32)
        check_late(model, library, np.array(False), x)
        problem = error_of(model, np.array(True), x)
        assert (problem is not None) is (size > 5)
        if problem is None:
            check_late(model, library, np.array(True), x)
            continue
        assert "a size is below zero: (-N + 5) is -2" in problem
        with pytest.raises(LibraryError) as caught:
            library.run_allocating([np.array(True), x], [np.float32])
        assert caught.value.args[1] in problem
    library.close()


def error_of(model: tw.Model, *inputs: np.ndarray) -> str | None:
    """What a session says of inputs that it refuses."""
    try:
        model(*inputs)
    except InputError as error:
        return str(error)
    return None
