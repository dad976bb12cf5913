"""The table of the `vmvx` module."""

from __future__ import annotations

from tilewright.runtime.modules.vmvx import create_vmvx_module

BINARY = "0rIIIrIIIrIIIII_v"
UNARY = "0rIIIrIIIII_v"
EXPORTS = {
    **dict.fromkeys(
        ["add.2d.f32", "add.2d.i32", "and.2d.i32", "div.2d.f32", "divs.2d.i32", "divu.2d.i32",
         "mul.2d.f32", "mul.2d.i32", "or.2d.i32", "shl.2d.i32", "shrs.2d.i32", "shru.2d.i32",
         "sub.2d.f32", "sub.2d.i32", "xor.2d.i32"], BINARY),
    **dict.fromkeys(
        ["abs.2d.f32", "ceil.2d.f32", "copy.2d.x16", "copy.2d.x32", "copy.2d.x64", "copy.2d.x8",
         "ctlz.2d.i32", "exp.2d.f32", "floor.2d.f32", "log.2d.f32", "neg.2d.f32",
         "rsqrt.2d.f32"], UNARY),
    "fill.2d.x32": "0irIIII_v",
    "mmt4d": "0rIIrIIrIIIIIiiii_v",
    "pack": "0rIIIrIIIIIIIIIIi_v",
    "query_tile_sizes.2d": "0IIi_II",
    "unpack": "0rIIIrIIIIIIIIIi_v",
}  # fmt: skip


UNTIL_20240410 = {"pack": "0rIIrIIIIIIIIIi_v", "unpack": "0rIIrIIIIIIIIi_v"}


def test_every_function_that_compilers_import_is_there_with_its_signature() -> None:
    found = {(f.name, f.calling_convention) for f in create_vmvx_module().functions}
    assert found == {*EXPORTS.items(), *UNTIL_20240410.items()}
    assert len(EXPORTS) == 32


def test_a_function_of_another_signature_is_not_found() -> None:
    module = create_vmvx_module()
    assert module.bind(None, "mmt4d", EXPORTS["mmt4d"]) is not None
    assert module.bind(None, "mmt4d", BINARY) is None
