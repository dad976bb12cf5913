"""What an impossible target says."""

import numpy as np
import onnx
import pytest

import tilewright as tw
from tilewright.base.errors import TargetError
from tilewright.base.target import Target


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse("z80")
    assert str(caught.value) == (
        "unknown architecture 'z80'\nhint: architectures: aarch64 riscv64 x86_64; levels of x86_64: v1 v2 v3 v4; back ends: c cpu"
    )


def test_an_unknown_cpu_names_its_architecture() -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse("x86_64 -mcpu=pentium9")
    assert str(caught.value).splitlines()[0] == "unknown CPU 'pentium9' of x86_64"
    assert "znver4" in (caught.value.hint or "")


def test_code_for_another_machine_does_not_run_here() -> None:
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    proto = onnx.parser.parse_model(head + "g (float[2] x) => (y) { y = Abs (x) }")
    host = Target.host()
    other = "aarch64" if host.arch == "x86_64" else "x86_64"
    model = tw.compile(proto, target=other)
    with pytest.raises(TargetError) as caught:
        model(np.zeros(2, np.float32))
    assert str(caught.value) == (
        f"g: no code for this CPU ('{host.arch}', '{host.cpu}'); the artifact has "
        f"'{model.compiled.parts[0].target}'\n"
        "hint: compile with target='x86_64' and levels=('v2', 'v3', 'v4') for any x86-64"
    )
