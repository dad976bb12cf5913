"""VM buffers, lists and types on their own."""

from __future__ import annotations

import pytest

from tilewright.base.errors import DeviceError, InternalError
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.hash import sip_hash
from tilewright.runtime.vm.list import VmList
from tilewright.runtime.vm.ref import Instance


def test_text_ends_before_zeros_and_survives_broken_bytes() -> None:
    assert VmBuffer(b"abc\0").text == "abc"
    assert VmBuffer(b"a\xff").text == "a\ufffd"


def test_absurd_buffers_are_refused() -> None:
    assert len(VmBuffer.allocate(0)) == 0
    for length in (-1, 1 << 60):
        with pytest.raises(DeviceError, match="INVALID_ARGUMENT"):
            VmBuffer.allocate(length)


def test_the_hash_is_the_published_one() -> None:
    data = bytes(range(15))
    assert sip_hash(data) == 0xA129CA6149BE45E5  # the example of the paper's appendix


def test_lists_keep_numbers_and_references_apart() -> None:
    numbers = VmList("i32")
    numbers.resize(1)
    with pytest.raises(DeviceError, match="into a list of i32"):
        numbers.set(0, VmBuffer(b""))
    anything = VmList("?")
    assert VmList("!vm.opaque").element_type == "?"
    anything.resize(2)
    anything.set(0, 5)
    anything.set(1, VmBuffer(b""))
    with pytest.raises(DeviceError, match="element 0 is a number"):
        anything.get_ref(0)
    with pytest.raises(DeviceError, match="element 1 is a reference"):
        anything.get_number(1)


def test_types_have_one_meaning() -> None:
    instance = Instance()
    assert instance.resolve("!vm.buffer") is VmBuffer
    assert instance.resolve("!vm.list<i32>") is VmList
    assert instance.resolve("i32") is None
    assert instance.name_of(VmBuffer(b"")) == "!vm.buffer"
    instance.register_type("vm.buffer", VmBuffer)
    with pytest.raises(InternalError, match="registered twice"):
        instance.register_type("vm.buffer", VmList)
