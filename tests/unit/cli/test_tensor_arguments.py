"""Inputs and outputs by name, and archives of numpy."""

from __future__ import annotations

import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fakes.command_line import tilewright
from tilewright.base.dtypes import f32
from tilewright.base.errors import InputError
from tilewright.base.symbolic import symbol
from tilewright.cli.tensor_arguments import read_inputs
from tilewright.formats.tensor_spec import TensorSpec

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SCALE = np.array([1, 2, 3], np.float32)


def test_inputs_come_by_name_in_any_order_and_beside_others() -> None:
    plain, named = read_inputs(["b=3xf32=1 2 3", "2xf32=5 6"], ["a", "b"])
    assert [a.tolist() for a in plain] == [[5, 6]]
    assert {name: a.tolist() for name, a in named.items()} == {"b": [1, 2, 3]}


def test_a_name_may_hold_anything_also_what_looks_like_a_type() -> None:
    names = ["f32", "a=b", "a", "x:0"]
    plain, named = read_inputs(["f32=1.5", "a=b=2", "x:0=2xf32=3"], names)
    assert plain == []
    assert {name: a.tolist() for name, a in named.items()} == {
        "f32": 1.5, "a=b": 2, "x:0": [3, 3],
    }  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_an_archive_comes_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.npz"
    np.savez(tmp_path / "all.npz", scale=SCALE, x=X)
    os.mkfifo(pipe)
    writer = threading.Thread(
        target=lambda: pipe.write_bytes((tmp_path / "all.npz").read_bytes())
    )
    writer.start()
    _, named = read_inputs([f"@{pipe}"], ["x", "scale"])
    writer.join()
    np.testing.assert_array_equal(named["x"], X)
    np.testing.assert_array_equal(named["scale"], SCALE)


def test_an_archive_gives_every_array_its_input(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    np.savez(path, scale=SCALE, x=X)
    assert read_inputs([f"@{path}"], ["x", "scale"])[1].keys() == {"x", "scale"}
    assert read_inputs([f"x=@{path}"], ["x", "scale"])[1].keys() == {"x"}
    np.savez(path, X, SCALE)  # without names: in order
    named = read_inputs([f"@{path}"], ["x", "scale"])[1]
    np.testing.assert_array_equal(named["scale"], SCALE)
    with pytest.raises(InputError, match="has 2 arrays, expected at most 1"):
        read_inputs([f"@{path}"], ["x"])


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["x=1", "x=2"], "input 'x' is given twice"),
        (["@{npz}"], "there is no input 'scael'"),
        (["y=2xf32=1"], "there is no input 'y'\nhint: inputs: x, scale"),
        (["y=@{npy}"], "there is no input 'y'"),
        (["f32=@/none.bin"], "cannot read '/none.bin'"),
        (["float=1.5"], "unknown data type 'float'"),
        (["2xfloat=@{npy}"], "unknown data type 'float'"),
        (["scale=@{npz}"], "has no array 'scale'"),
        (["@{npy}"], "not a .npz file"),
        (["@/none.npz"], "cannot read '/none.npz': No such file or directory"),
    ],
)
def test_what_is_wrong_is_said(values: list[str], text: str, tmp_path: Path) -> None:
    npz, npy = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(npz, scael=SCALE)
    with npy.open("wb") as file:
        np.save(file, X)
    with pytest.raises(InputError) as caught:
        read_inputs([v.format(npz=npz, npy=npy) for v in values], ["x", "scale"])
    assert text in str(caught.value)


def test_a_model_runs_by_names(scale_vmfb: Path, tmp_path: Path) -> None:
    x, inputs, outputs = tmp_path / "x.npy", tmp_path / "in.npz", tmp_path / "out.npz"
    np.save(x, X)
    np.savez(inputs, x=X, scale=SCALE)
    done = tilewright(
        "run", scale_vmfb, "--input=scale=3xf32=1 2 3", f"--input=x=@{x}",
        f"--output=@{outputs}",
    )  # fmt: skip
    assert (done.code, done.out, done.err) == (0, "", "")
    with np.load(outputs) as found:
        expected = {name: found[name] for name in found.files}
    assert set(expected) == {"y", "z"}
    z = tmp_path / "z.npy"
    done = tilewright(
        "run", scale_vmfb, f"--input=@{inputs}", f"--output=z=@{z}", "--output=y=-"
    )
    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(z), expected["z"])
    assert done.out.startswith("y:\n2x3xf32=")


def test_outputs_without_a_name_are_those_that_none_names(
    scale_vmfb: Path, tmp_path: Path
) -> None:
    z, y = tmp_path / "z.npy", tmp_path / "y.npy"
    call = ("run", scale_vmfb, "--random")
    assert tilewright(*call, f"--output=@{y}", f"--output=z=@{z}").code == 0
    assert (np.load(y).shape, np.load(z).shape) == ((1, 3), (3, 1))
    done = tilewright(*call, f"--output=@{tmp_path / 'none.npy'}")
    assert done.code == 1
    assert done.err == (
        "error: got 1 --output for 2 results\n"
        "hint: one for each of y, z, or by name: --output=y=@file.npy\n"
    )
    assert not (tmp_path / "none.npy").exists()


def test_an_output_that_there_is_not_is_said_before_the_work(scale_vmfb: Path) -> None:
    done = tilewright("run", scale_vmfb, "--random", "--output=zz=@z.npy")
    assert (done.code, done.err) == (
        1,
        "error: there is no output 'zz'\nhint: did you mean 'z'?\n",
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("value", ["@{}", "x=@{}"])
@pytest.mark.parametrize("is_named", [True, False])
def test_an_archive_that_does_not_fit_is_refused_by_its_heads(
    tmp_path: Path, value: str, is_named: bool
) -> None:
    path, wide = tmp_path / "all.npz", np.zeros((2, 1 << 22), np.float32)
    specs = [TensorSpec("x", f32, (symbol("N"), 3))]
    if is_named:
        np.savez_compressed(path, x=wide)
    elif value == "@{}":
        np.savez_compressed(path, wide)
    else:
        pytest.skip("an array without a name is not asked for by name")
    tracemalloc.start()
    words = r"is float32\[2, 4194304\], expected x: f32\[N, 3\]"
    with pytest.raises(InputError, match=words):
        read_inputs([value.format(path)], ["x"], specs)
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()
    np.savez_compressed(path, x=X)
    assert read_inputs([value.format(path)], ["x"], specs)[1]["x"].shape == (2, 3)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("value", ["@{}", "x=@{}"])
@pytest.mark.parametrize(
    ("given", "words", "hint"),
    [
        ("<f8", "'x' is float64[2097152, 3], ", "convert it with .astype('float32')"),
        (">f4", "'x' is float32[2097152, 3] of the other byte order, ", None),
        ("<V4", "'x' is void32[2097152, 3], ", None),
    ],
)
def test_an_archive_of_another_element_type_is_refused_by_its_heads(
    tmp_path: Path, value: str, given: str, words: str, hint: str | None
) -> None:
    path = tmp_path / "all.npz"
    np.savez_compressed(path, x=np.zeros((1 << 21, 3), given))
    specs = [TensorSpec("x", f32, (symbol("N"), 3))]
    tracemalloc.start()
    with pytest.raises(InputError) as refused:
        read_inputs([value.format(path)], ["x"], specs)
    assert refused.value.message == f"{words}expected x: f32[N, 3]"
    assert refused.value.hint == hint
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()
