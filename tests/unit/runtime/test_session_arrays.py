"""What sessions take and give: arrays of whoever makes them, and what cannot be taken is named."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.sessions import ENGINES, check, inputs, opened, quiet
from tilewright.base.errors import (
    DeviceError,
    InputError,
)
from tilewright.runtime.packed.tensors import tensor_from
from tilewright.runtime.plan_executor import as_array


@pytest.mark.parametrize("engine", ENGINES)
def test_arrays_come_by_place_by_name_or_in_a_mapping(path: Path, engine: str) -> None:
    session = opened(path, engine)
    x, b = inputs(3)
    check(session(x, b), x, b)
    check(session(x, b=b), x, b)
    check(session(b=b, x=x), x, b)
    check(session({"x": x, "b": b}), x, b)
    named = session.run({"x": x, "b": b})
    assert list(named) == ["v", "i", "s"]


@pytest.mark.parametrize("engine", ENGINES)
def test_lists_and_foreign_arrays_are_taken(path: Path, engine: str) -> None:
    session = opened(path, engine)
    x, b = inputs(2)

    class OnlyDlpack:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    class OnlyArray:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return self.array

    check(session(OnlyDlpack(x), OnlyArray(b)), x, b)


def test_dlpack_input_is_not_copied() -> None:
    x = np.zeros(4, np.float32)
    assert np.shares_memory(as_array(memoryview(x)), x)

    class Producer:
        def __dlpack__(self, **options: object) -> object:
            return x.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert np.shares_memory(as_array(Producer()), x)


@pytest.mark.parametrize("given", ["a capsule twice", "nothing", "a number"])
def test_what_gives_no_tensor_is_no_array(given: str) -> None:
    x = np.ones(3, np.float32)
    capsule = x.__dlpack__()
    tensors = {"a capsule twice": capsule, "nothing": None, "a number": 5}

    class Producer:
        def __dlpack__(self, **_: object) -> object:
            return tensors[given]

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    producer = Producer()
    if given == "a capsule twice":
        assert np.shares_memory(as_array(producer), x)
    with pytest.raises(InputError, match="got Producer, expected an array"):
        as_array(producer)


@pytest.mark.parametrize("method", ["__dlpack__", "__array__"])
@pytest.mark.parametrize(
    "raised", [KeyError("memory is\ngone"), AssertionError(), OSError(5, "x")]
)
def test_whatever_the_owner_of_a_tensor_raises_is_told(
    method: str, raised: Exception
) -> None:
    def fails(*_: object, **__: object) -> object:
        raise raised

    owner = type("Owner", (), {method: fails, "__dlpack_device__": lambda _: (1, 0)})()
    with pytest.raises(InputError, match=r"^got Owner, expected an array") as told:
        as_array(owner)
    assert "\n" not in str(told.value)
    with pytest.raises(InputError, match=r"^got Owner that gives no tensor"):
        tensor_from(owner)


@pytest.mark.needs_torch
def test_why_a_tensor_is_no_array_is_told() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"got Tensor, expected an array \(.*to_dense\(\)"):
        as_array(torch.ones(2, 3).to_sparse())


@pytest.mark.needs_torch
def test_torch_tensors_go_in_and_results_come_out_through_dlpack(path: Path) -> None:
    torch = pytest.importorskip("torch")
    x, b = inputs(2)
    results = opened(path)(torch.from_numpy(x).requires_grad_(), torch.from_numpy(b))
    tensor = torch.from_dlpack(results[2])
    assert np.shares_memory(tensor.numpy(), results[2])
    narrow = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    assert as_array(narrow).astype(np.float32).tolist() == [1.5, -2.0]
    assert as_array(narrow.to(torch.float8_e5m2)).astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.needs_torch
@pytest.mark.parametrize("engine", ENGINES)
def test_torch_tensors_that_are_negated_as_they_are_read_give_what_they_say(
    path: Path, engine: str
) -> None:
    torch = pytest.importorskip("torch")
    x, b = inputs(2)
    negated = torch.complex(torch.from_numpy(x), torch.from_numpy(x)).conj().imag
    assert negated.is_neg()
    check(opened(path, engine)(negated, torch.from_numpy(b)), -x, b)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(1 << 40, 5), (1 << 40,), (1, 1 << 40, 6)])
def test_the_shape_of_an_array_is_looked_at_before_it_is_copied(
    path: Path, engine: str, shape: tuple[int, ...]
) -> None:
    session = opened(path, engine)
    for _ in range(3):  # later calls of a shape may be replayed
        with pytest.raises(InputError, match=r"input 'x': got f32\[|sizes are too large"):
            session(np.broadcast_to(np.float32(1), shape), inputs(1)[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_copy_for_which_there_is_no_memory_is_an_error_in_words(
    tmp_path: Path, engine: str
) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[N] x, int64[1] s) => (float[M] y) { y = Slice(x, s, s) }"""
    with quiet():
        tw.compile(onnx.parser.parse_model(text), jobs=1).save(tmp_path / "m.vmfb")
    huge = np.broadcast_to(np.float32(1), (1 << 45,))
    with pytest.raises((DeviceError, InputError), match=r"no memory|too large"):
        opened(tmp_path / "m.vmfb", engine)(huge, np.array([0]))


@pytest.mark.parametrize("engine", ENGINES)
def test_arrays_for_outputs_that_cannot_take_them_are_named(
    path: Path, engine: str
) -> None:
    session = opened(path, engine)
    x, b = inputs(3)
    given = {"x": x, "b": b}
    read_only = np.zeros((3, 6), np.float32)
    read_only.flags.writeable = False
    for outputs, text in [
        ({"s": read_only}, "output 's': expected a dense array of f32[3, 6] in row-major"),
        ({"s": np.zeros((6, 3), np.float32).T}, "output 's': expected a dense array of"),
        ({"s": np.zeros((3, 6))}, "output 's': got f64[3, 6], expected f32[3, 6]"),
        ({"s": np.ma.zeros((3, 6), np.float32)}, "output 's': got MaskedArray, expected"),
        ({"s": [[0.0] * 6] * 3}, "output 's': got list, expected an array of numpy"),
        ({"z": x}, "got output 'z', expected some of: v, i, s"),
        ([x], "got list for outputs, expected a mapping from names to arrays"),
    ]:
        with pytest.raises(InputError, match=re.escape(text)):
            session.run(given, outputs)  # pyright: ignore[reportArgumentType]
    taken = np.zeros((3, 6), np.float32)
    with pytest.raises(InputError, match="output 's': got"):
        session.run(given, {"v": taken, "s": x[:2]})
    assert not taken.any(), "written, though another cannot be"
    memory = np.zeros((4, 6), np.float32)
    with pytest.raises(
        InputError, match=r"output 's': got f32\[4, 6\], expected f32\[3, 6\]"
    ):
        session.run(given, {"v": memory[:3], "s": memory})
    assert session.run(given, {"s": taken, "v": None})["s"] is taken  # pyright: ignore[reportArgumentType]
    assert np.array_equal(taken, x + b)


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_not_overwritten_by_later_calls(path: Path, engine: str) -> None:
    session = opened(path, engine)
    first = session(*inputs(4))
    kept = [np.copy(r) for r in first]
    for n in (4, 4, 5):
        session(*inputs(n + 10)[:2])
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_wrong_inputs_are_named(path: Path, engine: str) -> None:
    session = opened(path, engine)
    x, b = inputs(2)
    with pytest.raises(InputError, match=r"inputs \['b'\] are missing"):
        session({"x": x})
    with pytest.raises(InputError, match="no further input 'y'"):
        session(x, y=b)
    with pytest.raises(InputError, match=r"'b'.*got"):
        session(x, b[:5])
    with pytest.raises(InputError, match="got str, expected an array"):
        session(x, "b" * 3 + str(object))
