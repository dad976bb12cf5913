"""Two artifacts in turns: what is printed, and how the process ends."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
import two_artifacts


def artifact(path: Path, name: str, factor: float) -> Path:
    text = (
        '<ir_version: 10, opset_import: ["" : 18]> g (float[N,3] x, int64[N] i) => (float[N,3] y, int64[N] j)'
        f" {{ f = Constant <value = float {{{factor}}}> () y = Mul (x, f) j = Neg (i) }}"
    )
    model = tw.compile(onnx.parser.parse_model(text), threads=1, cache=False)
    model.save(path / name)
    return path / name


def test_equal_artifacts_have_the_same_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [str(artifact(tmp_path, name, 2.0)) for name in ("a.vmfb", "b.vmfb")]
    assert two_artifacts.main([*sides, "--rounds", "5", "--size", "N=9"]) == 0
    printed = capsys.readouterr().out
    assert "a.vmfb" in printed
    assert "same bits" in printed
    assert "after / before" in printed


def test_other_results_are_told_by_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [str(artifact(tmp_path, f"{f}.vmfb", f)) for f in (2.0, 3.0)]
    given = tmp_path / "in.npz"
    np.savez(given, x=np.ones((2, 3), np.float32), i=np.arange(2))
    assert two_artifacts.main([*sides, "--rounds", "5", "--inputs", str(given)]) == 1
    assert "the results differ" in capsys.readouterr().out


def test_signs_of_zeros_are_bits_too() -> None:
    zero, other = [np.float32([0.0])], [np.float32([-0.0])]
    assert two_artifacts.have_same_bits(zero, zero)
    assert not two_artifacts.have_same_bits(zero, other)
    assert not two_artifacts.have_same_bits(zero, [])
