"""Host calls get their operands as arrays and write results in place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast, final

import ml_dtypes
import numpy as np
import pytest

from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.formats.plan import encode_attribute
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType, Storage
from tilewright.runtime.modules.tilewright import create_tilewright_module
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.context import Context

DEVICE = registry.create_device("local-sync")


def buffer(array: np.ndarray) -> Buffer:
    made = DEVICE.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), array.nbytes + 8
    )
    made.write(array.tobytes(), 8)
    return made


def described(**members: object) -> VmBuffer:
    text = {
        "op": "scale",
        "attributes": {"by": encode_attribute(3)},
        "present": [1],
        "operand_count": 2,
        "dims": ["N"],
        "types": [["f32", ["N", "2"]], ["f32", ["N*2"]]],
    }
    return VmBuffer(json.dumps(text | members).encode())


def test_operands_attributes_and_dims_reach_the_function() -> None:
    seen: list[object] = []

    def run(
        op: str, attributes: Mapping[str, object], operands: Sequence[np.ndarray | None]
    ) -> Sequence[np.ndarray]:
        seen.extend((op, dict(attributes), operands[0]))
        assert operands[1] is not None
        return [operands[1].reshape(-1) * attributes["by"]]

    call = Context([create_tilewright_module(run)]).lookup("tilewright.host_call")
    source = buffer(np.arange(6, dtype=np.float32))
    target = buffer(np.zeros(6, np.float32))
    call(described(), [(source, 8, 24)], [(target, 8, 24)], [3])
    assert seen == ["scale", {"by": 3}, None]
    assert np.frombuffer(target.read(8), np.float32).tolist() == [0, 3, 6, 9, 12, 15]
    assert target.read(0, 8) == bytes(8)


@final
class HiddenStorage(Storage):
    """Memory that the host does not see: bytes come and go by `read` and `write` alone."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def readonly(self) -> bool:
        return False

    @property
    def is_host_visible(self) -> bool:
        return False

    def map(self, offset: int, length: int) -> memoryview:
        raise AssertionError("mapped")

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self.data[offset : offset + len(target)]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        self.data[offset : offset + len(data)] = data


def test_results_reach_memory_that_the_host_does_not_see() -> None:
    def run(
        op: str, attributes: Mapping[str, object], operands: Sequence[np.ndarray | None]
    ) -> Sequence[np.ndarray]:
        assert operands[1] is not None
        return [operands[1].reshape(-1) * attributes["by"]]

    call = Context([create_tilewright_module(run)]).lookup("tilewright.host_call")
    source = Buffer(HiddenStorage(bytes(8) + np.arange(6, dtype=np.float32).tobytes()))
    target = Buffer(HiddenStorage(bytes(32)))
    call(described(), [(source, 8, 24)], [(target, 8, 24)], [3])
    assert np.frombuffer(target.read(8), np.float32).tolist() == [0, 3, 6, 9, 12, 15]
    assert target.read(0, 8) == bytes(8)


def test_results_of_another_shape_are_refused() -> None:
    call = Context([create_tilewright_module(lambda *_: [np.zeros(5, np.float32)])]).lookup(
        "tilewright.host_call"
    )
    span = (buffer(np.zeros(6, np.float32)), 8, 24)
    with pytest.raises(InputError, match=r"'scale' gave f32\[5\], expected f32\[6\]"):
        call(described(), [span], [span], [3])


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ([np.zeros(6, np.float64)], "node 's': 'scale' gave f64[6], expected f32[6]"),
        ([], "node 's': 'scale' gave 0 results, expected 1"),
    ],
)
def test_results_of_another_type_or_number_are_refused(
    results: list[np.ndarray], text: str
) -> None:
    call = Context([create_tilewright_module(lambda *_: results)]).lookup(
        "tilewright.host_call"
    )
    span = (buffer(np.zeros(6, np.float32)), 8, 24)
    with pytest.raises(InputError) as caught:
        call(described(location="node 's'"), [span], [span], [3])
    assert str(caught.value).splitlines()[0] == text


@pytest.mark.parametrize("is_visible", [True, False])
def test_elements_of_four_bits_have_a_byte_each(is_visible: bool) -> None:
    """As the kernels of the program keep them."""
    numbers = np.array([1, -2, 3, -8, 7], ml_dtypes.int4)

    def run(*given: object) -> Sequence[np.ndarray]:
        (operand,) = cast("Sequence[np.ndarray]", given[-1])
        assert operand.tolist() == numbers.tolist()
        return [operand[::-1]]

    def held(data: bytes) -> Buffer:
        array = np.frombuffer(data, np.uint8)
        return buffer(array) if is_visible else Buffer(HiddenStorage(bytes(8) + data))

    call = Context([create_tilewright_module(run)]).lookup("tilewright.host_call")
    text = described(
        types=[["i4", ["N"]], ["i4", ["N"]]], operand_count=1, present=[0], attributes={}
    )
    target = held(bytes(5))
    call(text, [(held(numbers.tobytes()), 8, 5)], [(target, 8, 5)], [5])
    assert np.frombuffer(target.read(8), ml_dtypes.int4).tolist() == [7, -8, 3, -2, 1]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"op": "x"}', b"\xff"])
def test_malformed_descriptions_are_refused(text: bytes) -> None:
    call = Context([create_tilewright_module(lambda *_: [])]).lookup("tilewright.host_call")
    with pytest.raises(ArchiveError, match="malformed host call"):
        call(VmBuffer(text), [], [], [])


def checks(*rows: list[object]) -> VmBuffer:
    return VmBuffer(json.dumps({"dims": ["N"], "checks": rows}).encode())


ROWS = (["node 'a'", 0, "N", "-N", "N - 1"], ["node 'b'", 1, "7", "0", "7"])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((-(1 << 63), -(1 << 63)), None),
        ((-(1 << 63), 8), "node 'b': index 8 is out of range on axis 1 of size 7, expected 0 .. 7"),
        ((3, 9), "node 'a': index 3 is out of range on axis 0 of size 3, expected -3 .. 2"),
    ],
)  # fmt: skip
def test_the_first_check_that_failed_is_named(
    found: tuple[int, int], message: str | None
) -> None:
    heard: list[object] = []
    module = create_tilewright_module(None, lambda *subject: heard.append(subject))
    call = Context([module]).lookup("tilewright.check_indices")
    records = np.zeros(16, np.int64)
    records[::8] = found
    held = buffer(records)
    if message is None:
        call(checks(*ROWS), held, 8, 128, [3])
    else:
        with pytest.raises(InputError) as caught:
            call(checks(*ROWS), held, 8, 128, [3])
        assert str(caught.value) == message
    assert [subject[:3] for subject in heard] == [(held, 8, 128)]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"dims": [], "checks": []}',
        b'{"dims": ["N"], "checks": [[1]]}',
        b'{"dims": ["N"], "checks": [["a", Infinity, 7, 0, 7]]}',
        b"[" * 100_000,
    ],
)
def test_malformed_checks_are_refused(text: bytes) -> None:
    call = Context([create_tilewright_module(None)]).lookup("tilewright.check_indices")
    with pytest.raises(ArchiveError, match="malformed check of indices"):
        call(VmBuffer(text), buffer(np.zeros(16, np.int64)), 8, 128, [3])


def test_checks_without_records_are_refused() -> None:
    call = Context([create_tilewright_module(None)]).lookup("tilewright.check_indices")
    with pytest.raises(ArchiveError, match="records are missing"):
        call(checks(*ROWS), buffer(np.zeros(16, np.int64)), 8, 64, [3])


def test_an_error_of_a_host_call_names_the_node() -> None:
    def run(*_: object) -> Sequence[np.ndarray]:
        raise InputError("no")

    call = Context([create_tilewright_module(run)]).lookup("tilewright.host_call")
    span = (buffer(np.zeros(6, np.float32)), 8, 24)
    with pytest.raises(InputError, match="m: node 'n': no"):
        call(described(location="m: node 'n'"), [span], [span], [3])


@pytest.mark.parametrize(
    "members",
    [
        {"operand_count": 400_000_000},
        {"operand_count": "2"},
        {"dims": ["N", "M"]},
        {"present": [7]},
        {"types": [["f32", ["N", "2"]]]},
        {"types": [["f32"], ["f32", 5]]},
        {"attributes": [1]},
    ],
)
def test_descriptions_that_do_not_fit_the_call_are_refused(
    members: dict[str, object],
) -> None:
    call = Context([create_tilewright_module(lambda *_: [])]).lookup("tilewright.host_call")
    span = (buffer(np.zeros(6, np.float32)), 8, 24)
    with pytest.raises(ArchiveError, match="malformed host call"):
        call(described(**members), [span], [span], [3])


def calling(**members: object) -> VmBuffer:
    text = {
        "symbol": "ext.scale",
        "location": "m.onnx: node 's'",
        "dims": ["N"],
        "types": [["f32", ["N", "2"]], ["f32", ["N*2"]]],
    }
    return VmBuffer(json.dumps(text | members).encode())


def calling_module(function: object) -> Context:
    pytest.importorskip("tvm_ffi")

    def find(symbol: str) -> object:
        return function if symbol == "ext.scale" else None

    return Context([create_tilewright_module(None, find_function=find)])  # type: ignore[arg-type]


def test_a_packed_function_gets_tensors_in_place() -> None:
    seen: list[object] = []

    def scale(x: object, y: object) -> None:
        source, target = np.from_dlpack(x), np.from_dlpack(y)
        seen.append((source.shape, target.shape))
        target[...] = 3 * source.reshape(-1)

    call = calling_module(scale).lookup("tilewright.call")
    source = buffer(np.arange(6, dtype=np.float32))
    target = buffer(np.zeros(6, np.float32))
    call(calling(), [(source, 8, 24)], [(target, 8, 24)], [3])
    assert seen == [((3, 2), (6,))]
    assert np.frombuffer(target.read(8), np.float32).tolist() == [0, 3, 6, 9, 12, 15]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VmBuffer(b""), "malformed call"),
        (VmBuffer(b"[]"), "malformed call"),
        (VmBuffer(b'{"symbol": "a"}'), "malformed call"),
        (calling(types=[["f32", ["M"]]]), "malformed call"),
        (calling(types=[["f32", ["N"]]]), "do not have the bytes"),
        (calling(symbol="b"), "m.onnx: node 's': no module has the function 'b'"),
    ],
)
def test_malformed_calls_are_refused(text: VmBuffer, message: str) -> None:
    call = calling_module(lambda *_: None).lookup("tilewright.call")
    span = (buffer(np.zeros(6, np.float32)), 8, 24)
    with pytest.raises(ArchiveError, match=message):
        call(text, [span], [span], [3])


def test_tensors_of_four_bits_are_not_passed_to_packed_functions() -> None:
    """DLPack has two of them in a byte, programs have one."""
    call = calling_module(lambda *_: None).lookup("tilewright.call")
    span = (buffer(np.zeros(3, np.int8)), 8, 3)
    text = calling(types=[["i4", ["N"]], ["i4", ["N"]]])
    with pytest.raises(UserError, match=r"(?s)'s'.*i4.*packed"):
        call(text, [span], [span], [3])
