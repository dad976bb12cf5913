"""Portable artifacts that JAX wrote, of several versions of StableHLO: right, or refused where they are damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.compiler.frontends.door import Shaping, front_end_of
from tilewright.compiler.frontends.stablehlo.artifact import is_artifact, read_artifact
from tilewright.compiler.frontends.stablehlo.bytecode_cursor import ByteCursor
from tilewright.compiler.frontends.stablehlo.bytecode_file import BytecodeFile, Entry
from tilewright.compiler.frontends.stablehlo.load import load
from tilewright.compiler.frontends.stablehlo.tree import (
    Fields,
    Labels,
    QuantizedType,
    ScalarType,
    Symbol,
)
from tilewright.compiler.frontends.stablehlo.vhlo_attributes import Constants
from tilewright.compiler.graph.evaluator import evaluate

GOLDEN = Path(__file__).resolve().parents[4] / "golden" / "stablehlo"
FILES = sorted(GOLDEN.glob("*.mlirbc"))
SAVED = GOLDEN / "saved-jax-0.10.2.bin"
DAMAGED = 60


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_artifact_computes_what_jax_did(path: Path) -> None:
    with np.load(GOLDEN / f"{path.stem.split('-')[0]}.npz") as held:
        arguments = [held[name] for name in held.files if name.startswith("in")]
        expected = [held[name] for name in held.files if name.startswith("out")]
    found = evaluate(load(path).graph, arguments)
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            x.astype(y.dtype), y, rtol=1e-2 if x.dtype.itemsize == 2 else 1e-5
        )


def test_what_jax_saved_is_read_as_the_artifact_inside() -> None:
    """`tanh(x @ k + b)`; of other flatbuffers (TensorFlow Lite, IREE) each has its own first bytes."""
    rng = np.random.default_rng(0)
    b, k, x = (rng.normal(size=s).astype(np.float32) for s in ((4,), (3, 4), (5, 3)))
    for source in (SAVED, SAVED.read_bytes(), bytearray(SAVED.read_bytes())):
        assert front_end_of(source).name == "StableHLO"
        (found,) = evaluate(load(source).graph, [b, k, x])
        np.testing.assert_allclose(found, np.tanh(x @ k + b), rtol=1e-5)
    for other in (b"\x1c\0\0\0TFL3\0\0\0\0", b"\x18\0\0\0IREE\0\0\0\0"):
        assert front_end_of(other).name == "ONNX"


LENGTHS = np.linspace(12, SAVED.stat().st_size - 5, 50).astype(int).tolist()
"""Behind the last of them are four bytes of padding."""


@pytest.mark.parametrize("length", LENGTHS)
def test_a_file_of_jax_that_is_cut_is_refused(length: int, tmp_path: Path) -> None:
    """What lies behind the artifact is not read, but the name of the function, which is the last thing there."""
    (tmp_path / "cut").write_bytes(SAVED.read_bytes()[:length])
    for source in (SAVED.read_bytes()[:length], tmp_path / "cut"):
        assert front_end_of(source).name == "StableHLO"
        with pytest.raises(ModelError, match=r"is no function that jax\.export saved"):
            load(source)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_file_of_jax_of_changed_bytes_is_refused_or_read(seed: int) -> None:
    choose = np.random.default_rng(seed)
    whole, refused = SAVED.read_bytes(), 0
    for turn in range(DAMAGED):
        data = bytearray(whole)
        # The places of its fields lie in front.
        reach = 400 if turn % 2 else len(data)
        for _ in range(int(choose.integers(1, 6))):
            data[int(choose.integers(reach))] = int(choose.integers(256))
        try:
            front_end_of(data).load(bytes(data), Shaping())
        except TilewrightError:
            refused += 1
    assert refused > DAMAGED // 4


def test_every_version_of_stablehlo_is_there() -> None:
    assert {path.stem.split("-")[1] for path in FILES} == {"0.9.0", "1.0.0", "1.17.0"}
    assert all(is_artifact(path.read_bytes()) for path in FILES)


def test_attributes_have_the_form_of_text() -> None:
    (module,) = read_artifact((GOLDEN / "layer-1.17.0.mlirbc").read_bytes(), "layer")
    by_name = {o.name: o for o in module.operations()}
    numbers = by_name["stablehlo.convolution"].attributes["dimension_numbers"]
    assert numbers == Labels(
        ("b", "0", "1", "f"), ("0", "1", "i", "o"), ("b", "0", "1", "f")
    )
    dot = by_name["stablehlo.dot_general"].attributes
    assert isinstance(dot["dot_dimension_numbers"], Fields)
    assert "algorithm" not in dot
    (module,) = read_artifact((GOLDEN / "places-1.17.0.mlirbc").read_bytes(), "places")
    calls = [o.attributes["callee"] for o in module.operations() if o.name == "func.call"]
    assert all(
        isinstance(callee, Symbol) and callee.name in module.functions for callee in calls
    )
    assert calls


def test_places_are_named_as_in_the_program() -> None:
    data = (GOLDEN / "layer-1.17.0.mlirbc").read_bytes()
    (module,) = read_artifact(data, "layer")
    assert any("tanh" in str(o.place) for o in module.operations())


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_artifact_is_refused_or_read(seed: int) -> None:
    choose = np.random.default_rng(seed)
    refused = 0
    for turn in range(DAMAGED):
        data = bytearray(FILES[turn % len(FILES)].read_bytes())
        for _ in range(int(choose.integers(1, 6))):
            data[int(choose.integers(len(data)))] = int(
                choose.choice([0, 1, 255, choose.integers(256)])
            )
        try:
            load(
                bytes(data[: int(choose.integers(8, len(data) + 1))] if turn % 3 else data)
            )
        except TilewrightError:
            refused += 1
    assert refused > DAMAGED // 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ML\xefR\x7fx\0", "MLIR bytecode of version 63"),
        (b"ML\xefR\x0dx", "a text does not end"),
        (b"ML\xefR\x0dx\0", "section 0 is missing"),
        (b"ML\xefR\x0dx\0\x00\xff\x01", "bytes are said to follow"),
        (b"ML\xefR\x0dx\0\x00\x03\x01\x00\x03\x01", "section 0 is there twice"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_artifact(data, "x.mlirbc")


def number(value: int) -> bytes:
    """A number of 64 bits, as bytecode has it."""
    return b"\0" + value.to_bytes(8, "little")


def constants(types: list[tuple[str, bytes]], attributes: list[bytes]) -> Constants:
    """Those of a file that says so much of types, by dialect, and of VHLO's attributes."""

    def entry(dialect: str, data: bytes) -> Entry:
        return Entry(dialect, ByteCursor(data, "x"), is_coded=True)

    file = BytecodeFile(6, "x")
    file.types = [entry(dialect, data) for dialect, data in types]
    file.attributes = [entry("vhlo", data) for data in attributes]
    return Constants(file)


def coded(*values: int) -> bytes:
    return b"".join(map(number, values))


F32, TENSOR, TUPLE = coded(4), 20, 23
FAR = 1 << 63  # 2^62 with its sign below it


def signed(*values: int) -> bytes:
    """Numbers with their signs in the lowest bits."""
    return coded(*((value << 1) ^ (value >> 63) for value in values))


def doubles(*values: float) -> bytes:
    return b"".join(signed(int(np.float64(value).view(np.int64))) for value in values)


@pytest.mark.parametrize(
    ("limits", "expected"), [((-127, 127), (-127, 127)), ((-128, 127), None)]
)
def test_scales_along_an_axis_stand_behind_the_limits(
    limits: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    along = coded(30, 1, 1, 0, 1) + signed(*limits)
    along += coded(2) + doubles(0.5, 0.25) + coded(2) + signed(3, -4)
    types = [("vhlo", F32), ("vhlo", coded(11)), ("vhlo", along)]
    found = constants(types, []).type_at(2, ByteCursor(b"", "x"))
    assert found == QuantizedType(
        ScalarType("i8"), ScalarType("f32"), (0.5, 0.25), (3, -4), 1, expected
    )


def test_groups_by_the_axes_of_a_mesh_are_read() -> None:
    """StableHLO 1.18: what follows them in the file is where it was."""
    name, axes = coded(14, 0), coded(1, 1, 1)
    parts = [
        name,
        coded(22, 0, 0),
        axes,
        coded(23, 0, 2),
        coded(24, 0) + signed(2),
        coded(25, 2, 1),
    ]
    held = constants([], parts)
    held.file.strings = ["mesh"]
    cursor = ByteCursor(b"", "x")
    assert [getattr(held.attribute_at(i, cursor), "name", "") for i in range(1, 6)] == [
        "stablehlo.axis_ref", "", "stablehlo.replica_group_mesh_axes", "stablehlo.mesh_axis",
        "stablehlo.mesh",
    ]  # fmt: skip


def test_types_that_nothing_is_done_with_are_read() -> None:
    types = [
        ("vhlo", F32),
        ("vhlo", coded(41, 1) + signed(4) + coded(0)),
        ("vhlo", coded(42, 1, 0)),
    ]
    held = constants(types, [])
    names = [str(held.type_at(i, ByteCursor(b"", "x"))) for i in (1, 2)]
    assert names == ["!stablehlo.buffer", "!stablehlo.future"]


@pytest.mark.parametrize(
    ("types", "attribute", "message"),
    [
        (
            [("vhlo", F32), ("vhlo", coded(TENSOR, 2, FAR, FAR, 0))],
            coded(15, 1, 4) + b"\0\0\x80\x3f",
            "no memory holds a literal of type tensor<4611686018427387904x",
        ),
        ([("builtin", coded(0, 1 << 62))], coded(9, 0, 2), "an integer has 1152921504606846976 bits"),
        (
            [("vhlo", F32), *[("vhlo", coded(TUPLE, 2, i, i)) for i in range(50)]],
            coded(17, 50),
            "a type has more than 65536 parts",
        ),
    ],
)  # fmt: skip
def test_constants_that_no_memory_holds_are_refused(
    types: list[tuple[str, bytes]], attribute: bytes, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        constants(types, [attribute]).attribute_at(0, ByteCursor(b"", "x"))


def test_whatever_reading_runs_into_is_said_of_the_artifact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A class of exceptions, not each place that may raise one."""

    def fail(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(Constants, "type_at", fail)
    with pytest.raises(
        ModelError, match=r"layer.*the artifact is malformed \(OverflowError"
    ):
        load(GOLDEN / "layer-1.17.0.mlirbc")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"dot_general_v2", b"dot_general_v9"),
        (b"tanh_v2", b"tanh_v7"),
        (b"add_v1", b"add_v2"),
    ],
)
def test_a_later_version_of_an_operation_is_refused_by_name(old: bytes, new: bytes) -> None:
    """Also one without properties, whose meaning may be another."""
    data = (GOLDEN / "layer-1.17.0.mlirbc").read_bytes()
    assert old in data
    with pytest.raises(ModelError, match=rf"'vhlo\.{new.decode()}'.*\n.*older version"):
        load(data.replace(old, new))
