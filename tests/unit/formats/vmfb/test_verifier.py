from __future__ import annotations

import dataclasses

import pytest

from fakes.complaints import complaint_of
from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb import (
    Dependency,
    Export,
    FunctionDescriptor,
    Import,
    ModuleDef,
    ModuleState,
    Signature,
    verify_module,
)

FUNCTION = FunctionDescriptor(
    offset=0, length=4, block_count=1, word_registers=2, ref_registers=1
)
GOOD = ModuleDef(
    name="m",
    types=("i32",),
    imports=(Import(name="hal.f", signature=Signature(calling_convention="0iCrD_r")),),
    exports=(Export(name="f", function=0),),
    signatures=(Signature(calling_convention="0i_i"),),
    functions=(FUNCTION,),
    bytecode=bytes(4),
)


def function(**fields: int) -> dict[str, object]:
    return {"functions": (dataclasses.replace(FUNCTION, **fields),)}


def test_a_good_module_passes() -> None:
    assert complaint_of(verify_module, GOOD) == ""
    for version in (15 << 16, 16 << 16 | 3, 17 << 16):
        changed = dataclasses.replace(GOOD, bytecode_version=version)
        assert complaint_of(verify_module, changed) == ""


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": ""}, "the module has no name"),
        (
            {"bytecode_version": 14 << 16},
            r"bytecode version 14\.0, expected 15\.0 to 17\.0",
        ),
        ({"bytecode_version": 17 << 16 | 1}, r"bytecode version 17\.1"),
        ({"bytecode_version": 18 << 16}, r"bytecode version 18\.0"),
        ({"requirements": 0x10}, "unknown features 0x10"),
        ({"types": ("",)}, "type 0 has no name"),
        ({"dependencies": (Dependency(name=""),)}, "a dependency has no name"),
        ({"signatures": ()}, "0 signatures for 1 functions"),
        (
            {"signatures": (Signature(calling_convention="0q_v"),)},
            "function 0: calling conv",
        ),
        ({"signatures": (Signature(calling_convention="0CiD_v"),)}, "has a list argument"),
        ({"imports": (Import(name="", signature=Signature()),)}, "import 0 has no name"),
        (
            {"imports": (Import(name="f", signature=Signature(calling_convention="?")),)},
            "import 'f': calling convention",
        ),
        ({"exports": (Export(name="", function=0),)}, "an export has no name"),
        ({"exports": (Export(name="f", function=-1),)}, "export 'f' is function -1 of 1"),
        ({"rwdata": (-1,)}, "writable segment 0 has -1 bytes"),
        ({"state": ModuleState(global_bytes=-4)}, "the globals take -4 bytes"),
        ({"state": ModuleState(global_refs=1 << 30)}, "the globals have 1073741824 ref"),
        (function(offset=-1), "function 0 lies at bytes -1 to 3 of 4"),
        (function(length=5), "function 0 lies at bytes 0 to 5 of 4"),
        (function(length=0), "function 0 lies at bytes 0 to 0"),
        (function(block_count=0), "function 0 has 0 blocks"),
        (function(word_registers=-1), "function 0 has -1 word registers"),
        (function(ref_registers=0x4000), "function 0 has 16384 reference registers"),
        (function(requirements=0x80), "function 0 needs unknown features"),
    ],
)
def test_what_is_out_of_range_is_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ArchiveError, match=rf"file\.vmfb: .*{complaint}"):
        verify_module(dataclasses.replace(GOOD, **fields), "file.vmfb")
