"""One artifact with code for several CPUs: each gives what an artifact made for it alone gives, from weights of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tilewright as tw
from fakes import onnx_models, small_models
from fakes.exported_library import CModel, export
from tilewright.base.target import Target
from tilewright.compiler.packaging.parts import make_artifact
from tilewright.formats.artifact import extract
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import read_archive

RNG = np.random.default_rng(11)
X = RNG.standard_normal((5, 20)).astype(np.float32)
LEVELS = ("v2", "v3", "v4")
PAIRS = ("v3", "znver4")
"""Of these only the second multiplies pairs of bf16."""

pytestmark = pytest.mark.skipif(
    Target.host().arch != "x86_64", reason="levels are those of x86-64"
)


def int8() -> onnx.ModelProto:
    """Two products of bytes with scales; the depth of the first is no whole number of words."""
    body = """graph (float[5, 20] x) => (float[5, 9] y) {
      a, s, z = DynamicQuantizeLinear(x)
      i = MatMulInteger(a, w0, z)
      f = Cast<to = 1>(i)
      h = Mul(f, s)
      b, t, u = DynamicQuantizeLinear(h)
      j = MatMulInteger(b, w1, u)
      g = Cast<to = 1>(j)
      y = Mul(g, t)
    }"""
    proto = onnx_models.parse(body)
    for name, shape in (("w0", (20, 35)), ("w1", (35, 9))):
        array = RNG.integers(-128, 128, shape).astype(np.int8)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def int4() -> onnx.ModelProto:
    return tw.quantize(small_models.mlp(), bits=4, block=16).model


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "f32": small_models.mlp,
    "int8": int8,
    "int4": int4,
}


def device_of(level: str) -> str:
    name = level if level in LEVELS else f"x86_64 -mcpu={level}"
    return f"local-task://?machine={name}"


def runnable(levels: tuple[str, ...]) -> list[str]:
    host = Target.host()
    return [
        each
        for each in levels
        if tw.api.model.resolve_targets("x86_64", [each])[0].runs_on(host)
    ]


def saved(
    folder: Path, *levels: str, model: onnx.ModelProto, precision: str = "f32"
) -> Path:
    path = folder / f"{'-'.join(levels)}.vmfb"
    tw.compile(
        model, target="x86_64", levels=levels, precision=precision, threads=1, jobs=1
    ).save(path, sources=False)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_level_gives_what_it_gives_alone(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    several = saved(tmp_path, *LEVELS, "znver4", model=model)
    for level in runnable((*LEVELS, "znver4")):
        alone = tw.load(saved(tmp_path, level, model=model), threads=1)
        wanted = alone(X)
        for engine in ("plan", "vm"):
            session = tw.load(several, device=device_of(level), engine=engine, threads=1)
            assert alone.variant is not None
            assert session.variant is not None
            assert session.variant.target == alone.variant.target
            np.testing.assert_array_equal(session(X), wanted, err_msg=f"{level} {engine}")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_levels_share_weights_but_for_words_of_the_widest_vectors(name: str) -> None:
    model = tw.compile(MODELS[name](), target="x86_64", levels=(*LEVELS, "znver4"))
    artifact = make_artifact(model.compiled.parts)
    assert artifact.sizes
    sharing = artifact.variants if name == "f32" else artifact.variants[:2]
    assert len({v.constants for v in sharing}) == 1
    assert [artifact.own_bytes(v) for v in sharing] == [0] * len(sharing)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of f32 for one level, of pairs of bf16 for the other; a bias for both."""
    folder = tmp_path_factory.mktemp("pairs")
    return saved(folder, *PAIRS, model=small_models.mlp(), precision="bf16")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_levels_that_multiply_other_words_have_weights_of_their_own(
    engine: str, pairs: Path, tmp_path: Path
) -> None:
    artifact = extract(read_archive(pairs.read_bytes()))
    first, second = artifact.variants
    assert artifact.own_bytes(first) > 0
    assert artifact.own_bytes(second) > 0
    assert set(first.constants) & set(second.constants), "the bias is there once"
    for level in runnable(PAIRS):
        session = tw.load(pairs, device=device_of(level), engine=engine, threads=1)
        alone = saved(tmp_path, level, model=small_models.mlp(), precision="bf16")
        np.testing.assert_array_equal(session(X), tw.load(alone, threads=1)(X))


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_weights_of_levels_that_are_not_chosen_are_not_read(
    engine: str, pairs: Path, tmp_path: Path
) -> None:
    data = bytearray(pairs.read_bytes())
    artifact = extract(read_archive(bytes(data)))
    for index, level in enumerate(PAIRS):
        if level not in runnable(PAIRS):
            continue
        wanted = tw.load(pairs, device=device_of(level), threads=1)(X)
        chosen = artifact.variants[index]
        broken = bytearray(data)
        for place in {*range(len(artifact.sizes))} - {*chosen.constants}:
            segment = bytes(view_bytes(artifact.constants[place]))
            assert data.count(segment) == 1
            begin = data.index(segment)
            broken[begin : begin + len(segment)] = b"\xff" * len(segment)
        assert broken != data
        path = tmp_path / f"{level}.vmfb"
        path.write_bytes(broken)
        session = tw.load(path, device=device_of(level), engine=engine, threads=1)
        np.testing.assert_array_equal(session(X), wanted)


@pytest.mark.slow
def test_a_library_has_weights_of_each_level(tmp_path: Path) -> None:
    model = tw.compile(
        small_models.mlp(), target="x86_64", levels=PAIRS, precision="bf16", threads=1
    )
    inside = export(model, tmp_path / "net.so")
    (tmp_path / "far").mkdir()
    beside = export(
        model, tmp_path / "far" / "net.so", weights=tmp_path / "far" / "net.irpa"
    )
    for level in runnable(PAIRS):
        alone = saved(tmp_path, level, model=small_models.mlp(), precision="bf16")
        wanted = tw.load(alone, threads=1)(X)
        for path in (inside, beside):
            library, y = (
                CModel(path, threads=1, level=level.encode()),
                np.empty_like(wanted),
            )
            library.run([X], [y])
            np.testing.assert_array_equal(y, wanted)
            library.close()


@pytest.mark.slow
def test_weights_of_several_levels_lie_in_one_file(tmp_path: Path) -> None:
    model = tw.compile(
        small_models.mlp(), target="x86_64", levels=PAIRS, precision="bf16", threads=1
    )
    path = tmp_path / "net.vmfb"
    model.save(path, weights=tmp_path / "net.irpa")
    for level in runnable(PAIRS):
        alone = saved(tmp_path, level, model=small_models.mlp(), precision="bf16")
        wanted = tw.load(alone, threads=1)(X)
        for engine in ("plan", "vm"):
            session = tw.load(path, device=device_of(level), engine=engine, threads=1)
            np.testing.assert_array_equal(session(X), wanted)


@pytest.mark.slow
def test_an_older_processor_gets_its_code(tmp_path: Path) -> None:
    """Python under an emulator, where `/proc/cpuinfo` is that of the machine below it."""
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64 is not installed (Debian: qemu-user)")
    path = saved(tmp_path, *LEVELS, model=small_models.mlp())
    np.save(tmp_path / "x.npy", X)
    program = """
import sys, numpy as np, tilewright as tw
x = np.load("x.npy")
for engine in ("plan", "vm"):
    session = tw.load(sys.argv[1], engine=engine, threads=1)
    np.save(f"{engine}.npy", session(x))
    print(session.variant.target)
"""
    finished = subprocess.run(
        [
            emulator,
            "-cpu",
            "Nehalem",
            Path(sys.executable).resolve(),
            "-c",
            program,
            path.name,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split("\n")[:2] == ["x86_64 -mcpu=x86-64-v2"] * 2
    alone = tw.load(path, device=device_of("v2"), threads=1)(X)
    for engine in ("plan", "vm"):
        np.testing.assert_array_equal(np.load(tmp_path / f"{engine}.npy"), alone)
