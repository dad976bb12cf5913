"""Native modules are tables; what they get is checked against them."""

from __future__ import annotations

import pytest

from tilewright.base.errors import DeviceError, InternalError
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.list import VmList
from tilewright.runtime.vm.native_module import FunctionTable, NativeFunction, NativeModule

TYPES = {"bytes": VmBuffer, "list": VmList}


def test_each_context_has_its_own_state() -> None:
    row = NativeFunction("count", ("0v_i",), lambda s: s.append(1) or len(s))
    module = NativeModule("host", (row,), create_state=list)
    first, second = Context([module]), Context([module])
    assert [first.lookup("host.count")() for _ in range(2)] == [1, 2]
    assert second.lookup("host.count")() == 1


def test_references_of_the_wrong_type_are_refused_with_their_place() -> None:
    row = NativeFunction("call", ("0irr_v",), lambda *a: None, "bytes list?")
    call = Context([NativeModule("host", (row,), types=TYPES)]).lookup("host.call")
    call(1, VmBuffer(b""), None)
    call(1, VmBuffer(b""), VmList())
    with pytest.raises(
        DeviceError, match=r"host.call: argument 1 is null, expected VmBuffer"
    ):
        call(1, None, None)
    with pytest.raises(DeviceError, match="argument 2 is VmBuffer, expected VmList"):
        call(1, VmBuffer(b""), VmBuffer(b""))


def test_references_in_lists_are_checked() -> None:
    row = NativeFunction("call", ("0CrDCirD_v",), lambda *a: None, "bytes list?")
    call = Context([NativeModule("host", (row,), types=TYPES)]).lookup("host.call")
    call([VmBuffer(b"")], [(1, None), (2, VmList())])
    with pytest.raises(DeviceError, match="argument 0 is VmList"):
        call([VmBuffer(b""), VmList()], [])
    with pytest.raises(DeviceError, match="argument 1 is int"):
        call([], [(1, 5)])


def test_tables_are_checked_when_they_are_made() -> None:
    with pytest.raises(InternalError, match="1 types for its references"):
        NativeModule("h", (NativeFunction("f", ("0rr_v",), print, "bytes"),), types=TYPES)
    row = NativeFunction("f", ("0v_v",), print)
    with pytest.raises(InternalError, match=r"h.f 0v_v stands twice"):
        NativeModule("h", (row, row))


def test_a_module_lists_its_functions_and_signatures() -> None:
    module = NativeModule("h", (NativeFunction("f", ("0i_v", "0v_v"), print),))
    assert [(f.name, f.calling_convention) for f in module.functions] == [
        ("f", "0i_v"),
        ("f", "0v_v"),
    ]
    assert module.signatures("f") == ("0i_v", "0v_v")
    assert module.signatures("g") == ()


def test_functions_are_entered_by_decoration() -> None:
    table = FunctionTable("host", version=2, types=TYPES)

    @table.function("0r_i", refs="bytes")
    def size(data: VmBuffer) -> int:
        return len(data)

    @table.function("0i_i", "0v_i", name="next")
    def following(value: int = 41) -> int:
        return value + 1

    module = table.module()
    context = Context([module])
    assert module.version == 2
    assert context.lookup("host.size")(VmBuffer(b"abc")) == size(VmBuffer(b"abc")) == 3
    assert context.lookup("host.next")(1) == 2
    old = module.bind(None, "next", "0v_i")
    assert old is not None
    assert old() == following() == 42
