"""Models as programs: their arguments and what they print are those of `tilewright run`."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import small_models
from fakes.command_line import tilewright

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
passed (float[n,2] a, double[3] b, float16[4] c, bfloat16[4] d, int8[3] e, int64[2] f, uint8[2] g, bool[3] h,
        float k) => (float[n,2] A, double[3] B, float16[4] C, bfloat16[4] D, int8[3] E, int64[2] F, uint8[2] G,
        bool[3] H, float K) {
  A = Neg (a)
  B = Neg (b)
  C = Relu (c)
  D = Relu (d)
  E = Neg (e)
  F = Neg (f)
  G = Add (g, g)
  H = Not (h)
  K = Neg (k)
}"""
VALUES = {
    "a": "3x2xf32=1 -2.5 3e10 0x1p-3 nan inf",
    "b": "3xf64=0.1 1e-300 -7",
    "c": "4xf16=0.1 65504 70000 6e-8",
    "d": "4xbf16=0.1 3.39e38 1 nan",
    "e": "3xi8=1 -2 127",
    "f": "2xi64=9223372036854775807 -5",
    "g": "2xui8=[7],[100]",
    "h": "3xi1=1 false 0",
    "k": "2.5",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "net"
    model = tw.compile(onnx.parser.parse_model(MODEL))
    model.export_library(path)
    model.save(path.with_suffix(".vmfb"))
    return path


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_values_of_every_type_are_read_and_printed_as_run_does(program: Path) -> None:
    words = [f"--input={name}={value}" for name, value in reversed(VALUES.items())]
    done = run(program, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == tilewright("run", program.with_suffix(".vmfb"), *words).out


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 1, 3, 5])
def test_long_results_are_cut_where_run_cuts_them(program: Path, limit: int) -> None:
    words = [f"--input={value}" for value in VALUES.values()]
    words.append(f"--output-max-element-count={limit}")
    expected = tilewright("run", program.with_suffix(".vmfb"), *words).out
    assert run(program, *words).stdout == expected


def test_arrays_are_read_from_files_and_written_to_files(
    program: Path, tmp_path: Path
) -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.save(tmp_path / "a.npy", x)
    (tmp_path / "b.bin").write_bytes(np.arange(3.0).tobytes())
    given = {**VALUES, "a": f"@{tmp_path}/a.npy", "b": f"3xf64=@{tmp_path}/b.bin"}
    words = [f"--input={value}" for value in given.values()]
    words += [f"--output=@{tmp_path}/A.npy", f"--output=@{tmp_path}/B.bin"]
    words += ["--output="] * 6 + ["--output=-"]
    done = run(program, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "result[8]: hal.buffer_view\nf32=-2.5\n"
    np.testing.assert_array_equal(np.load(tmp_path / "A.npy"), -x)
    assert (tmp_path / "B.bin").read_bytes() == (-np.arange(3.0)).tobytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="another system")
def test_results_that_cannot_be_printed_are_an_error(program: Path) -> None:
    words = [f"--input={value}" for value in VALUES.values()]
    for more in ([], ["--output-max-element-count=0"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [program, *words, *more],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr == "error: standard output: No space left on device\n"


def test_help_has_the_signature(program: Path) -> None:
    done = run(program, "--help")
    assert done.returncode == 0
    assert "input  a: ?x2xf32\n" in done.stdout
    assert "output K: f32\n" in done.stdout


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a=2x2xf32=1 2", "got 2 values, expected 4 (or 1 for all)"),
        ("a=2x2xf32=x", "bad value: expected numbers"),
        ("e=3xi8=128", "bad value: out of range for the type"),
        ("e=3xi8=1.5", "bad value: expected whole numbers"),
        ("g=2xu8=-1", "bad value: out of range for the type"),
        ("a=3xf33=1", "not a tensor"),
        ("a=@/no/such.npy", "cannot open '/no/such.npy'"),
        ("a=3x2xf32=@/dev/null", "the file is too short"),
        ("a=@/dev/null", "not a .npy file"),
        ("a=99999999x99999999xf32=1", "too many elements"),
        ("a=3x2xf64=1", "input 'a' has the type f64, expected f32"),
        ("a=3x3xf32=1", "input 'a'"),
    ],
)
def test_a_mistake_is_named_and_ends_it(program: Path, value: str, problem: str) -> None:
    name = value[0]
    others = {key: text for key, text in VALUES.items() if key != name}
    words = [f"--input={key}={text}" for key, text in others.items()]
    done = run(program, f"--input={value}", *words)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert problem in done.stderr


def test_missing_and_unknown_arguments_are_named(program: Path) -> None:
    assert "a: the input is missing" in run(program).stderr
    assert "--inputs=1: no such option" in run(program, "--inputs=1").stderr


def test_the_value_of_an_option_may_be_the_next_argument(program: Path) -> None:
    joined = [f"--input={value}" for value in VALUES.values()]
    apart = [word for value in VALUES.values() for word in ("--input", value)]
    done = run(program, *apart, "--threads", "1", "--output-max-element-count", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(program, *joined, "--output-max-element-count=3").stdout
    assert "error: --input: expected a value behind it" in run(program, "--input").stderr


def test_an_empty_input_and_a_number_out_of_range_say_what_is_expected(
    program: Path,
) -> None:
    words = [f"--input={value}" for value in VALUES.values()]
    said = run(program, "--input=", *words[1:]).stderr
    assert "error: --input: the value is empty" in said
    assert (
        "got '4097', expected a number from 0 to 4096"
        in run(program, "--threads=4097").stderr
    )


# --- weights beside it -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    model = tw.compile(small_models.mlp())
    model.export_library(folder / "net", weights=folder / "net.irpa")
    return folder / "net"


@pytest.mark.slow
def test_a_pipe_instead_of_weights_is_refused_and_not_waited_for(
    with_weights: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        words = [with_weights, "--input=5x20xf32=1", f"--weights={place}"]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=20
        )
        assert done.returncode == 1
        assert f"error: {place}: cannot map the file of the weights" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("through_path", [False, True])
def test_a_program_that_is_started_by_a_link_finds_its_weights(
    with_weights: Path, tmp_path: Path, through_path: bool
) -> None:
    link = tmp_path / "linked"
    link.symlink_to(with_weights)
    word = link.name if through_path else str(link)
    done = subprocess.run(
        [word, "--input=5x20xf32=1"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_weights_beside_a_link_are_found_too(with_weights: Path, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "linked").mkdir()
    program = tmp_path / "alone" / "net"
    shutil.copy(with_weights, program)
    link = tmp_path / "linked" / "net"
    link.symlink_to(program)
    shutil.copy(with_weights.with_name("net.irpa"), link.parent)
    done = run(link, "--input=5x20xf32=1")
    assert done.returncode == 0, done.stderr
    (link.parent / "net.irpa").unlink()
    done = run(link, "--input=5x20xf32=1")
    assert f"error: {program.parent}/net.irpa: cannot map" in done.stderr


# --- archives --------------------------------------------------------------------------------------


def arrays_of_inputs() -> dict[str, np.ndarray]:
    """What the inputs are that numpy has a type for."""
    return {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "b": np.array([0.1, 1e-300, -7]),
        "c": np.array([0.1, 65504, 7, 6e-8], np.float16),
        "e": np.array([1, -2, 127], np.int8),
        "f": np.array([2**63 - 1, -5]),
        "g": np.array([7, 100], np.uint8),
        "h": np.array([True, False, False]),
        "k": np.array(2.5, np.float32),
    }


D = f"--input=d={VALUES['d']}"


def test_all_inputs_come_from_an_archive(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **arrays_of_inputs())
    expected = tilewright("run", program.with_suffix(".vmfb"), f"--input=@{path}", D).out
    for words in ([f"--input=@{path}", D], [D, f"--input=@{path}"]):
        done = run(program, *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout == expected
    one_by_one = [f"--input={name}=@{path}" for name in arrays_of_inputs()]
    assert run(program, D, *one_by_one).stdout == expected


def test_arrays_without_names_fill_the_inputs_in_order(
    with_weights: Path, tmp_path: Path
) -> None:
    x = np.linspace(-1, 1, 100, dtype=np.float32).reshape(5, 20)
    np.savez(tmp_path / "x.npz", x)
    np.save(tmp_path / "x.npy", x)
    done = run(with_weights, f"--input=@{tmp_path}/x.npz")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(with_weights, f"--input=@{tmp_path}/x.npy").stdout
    np.savez(tmp_path / "more.npz", x, x)
    said = run(with_weights, f"--input=@{tmp_path}/more.npz").stderr
    assert "more arrays than the model has inputs" in said


def test_an_archive_comes_through_a_pipe(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **arrays_of_inputs())
    expected = run(program, f"--input=@{path}", D).stdout
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [program, f"--input=@{pipe}", D], stdout=subprocess.PIPE, text=True
    ) as process:
        pipe.write_bytes(path.read_bytes())
        assert process.communicate(timeout=60)[0] == expected


def test_values_without_names_fill_what_names_leave(program: Path) -> None:
    named = [f"--input={name}={value}" for name, value in VALUES.items()]
    mixed = [f"--input={value}" for name, value in VALUES.items() if name != "a"]
    done = run(program, *mixed, f"--input=a={VALUES['a']}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(program, *named).stdout


def damaged(data: bytes) -> bytes:
    at = data.index(b"NUMPY") + 130
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_bad_archive_is_named_and_ends_it(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    arrays = arrays_of_inputs()

    def said(word: str = "") -> str:
        done = run(program, f"--input={word}@{path}", D)
        assert done.returncode == 1
        return done.stderr

    np.savez_compressed(path, **arrays)
    assert "array 'a' is compressed" in said()
    assert "hint: write it with numpy.savez" in said()
    np.savez(path, **arrays, other=arrays["a"])
    assert "array 'other' has the name of no input" in said()
    np.savez(path, b=arrays["b"])
    assert "a: the input is missing" in said()
    assert "has no array 'a'" in said("a=")
    path.write_bytes(damaged(path.read_bytes()))
    assert "array 'b' is damaged" in said("b=")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("b\x1b[1m.npy", b"")
    assert "array 'b?[1m' has the name of no input" in said()
    for data in (b"", b"PK", b"PK\5\6" + b"\xff" * 18, b"\x93NUMPY"):
        path.write_bytes(data)
        assert "not a .npz file" in said()


# --- outputs by name -------------------------------------------------------------------------------

GIVEN = [f"--input={value}" for value in VALUES.values()]


def test_outputs_go_where_their_names_say(program: Path, tmp_path: Path) -> None:
    outputs = ["--output=K=-", "--output=B=-", "--output=E="]
    files = [f"--output=A=@{tmp_path}/A.npy", f"--output=G=@{tmp_path}/G.npz"]
    done = run(program, *GIVEN, *outputs, *files)
    assert done.returncode == 0, done.stderr
    artifact = program.with_suffix(".vmfb")
    assert done.stdout == tilewright("run", artifact, *GIVEN, *outputs).out
    assert done.stdout.startswith("K:\nf32=-2.5\nB:\n")
    assert np.load(tmp_path / "A.npy").shape == (3, 2)
    with np.load(tmp_path / "G.npz") as archive:
        assert archive.files == ["G"]
        np.testing.assert_array_equal(archive["G"], np.array([14, 200], np.uint8))


def test_an_archive_takes_all_outputs_and_gives_them_back(
    with_weights: Path, tmp_path: Path
) -> None:
    word = f"--output=@{tmp_path}/y.npz"
    done = run(with_weights, "--input=5x20xf32=1", word, f"--output=@{tmp_path}/y.npy")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    with zipfile.ZipFile(tmp_path / "y.npz") as archive:
        assert archive.testzip() is None
    with np.load(tmp_path / "y.npz") as archive:
        assert len(archive.files) == 1
        expected = np.load(tmp_path / "y.npy")
        np.testing.assert_array_equal(archive[archive.files[0]], expected)


def test_an_archive_that_a_program_wrote_is_read_by_programs(
    program: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.npz"
    assert run(program, *GIVEN, f"--output=B=@{path}").returncode == 0
    with np.load(path) as archive:
        np.testing.assert_array_equal(archive["B"], [-0.1, -1e-300, 7])
    others = [f"--input={name}={value}" for name, value in VALUES.items() if name != "b"]
    np.savez(tmp_path / "b.npz", b=np.array([-0.1, -1e-300, 7]))
    expected = run(program, *others, f"--input=b=@{tmp_path}/b.npz").stdout
    data = path.read_bytes().replace(b"B.npy", b"b.npy")
    path.write_bytes(data)
    assert run(program, *others, f"--input=b=@{path}").stdout == expected


def test_a_file_goes_on_at_its_end(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "y.npy"
    words = [f"--output=B=@{path}", f"--output=K=+{path}"]
    assert run(program, *GIVEN, *words).returncode == 0
    with path.open("rb") as file:
        assert np.load(file).shape == (3,)
        np.testing.assert_array_equal(np.load(file), np.float32(-2.5))


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (["Z=-"], "Z=-: there is no such output"),
        (["A=y"], "A=y: expected -, @file or +file"),
        (["y"], "y: expected -, @file or +file"),
        (["-"], "--output: give one for each output, or none, or their names"),
        (["-"] * 10, "--output: give one for each output, or none, or their names"),
        (["D=@d.npz"], "numpy has no such type"),
        (["@/no/such/y.npz"], "cannot open '/no/such/y.npz'"),
    ],
)
def test_an_output_that_is_none_is_named(
    program: Path, tmp_path: Path, outputs: list[str], problem: str
) -> None:
    words = [f"--output={output}" for output in outputs]
    done = subprocess.run(
        [program, *GIVEN, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert problem in done.stderr
    assert done.stdout == ""


# --- expected outputs ------------------------------------------------------------------------------

EXPECTED = {
    "A": "3x2xf32=-1 2.5 -3e10 -0.125 nan -inf",
    "B": "3xf64=-0.1 -1e-300 7",
    "C": "4xf16=0.1 65504 inf 6e-8",
    "D": "(ignored)",
    "E": "3xi8=-1 2 -127",
    "F": "2xi64=-9223372036854775807 5",
    "G": "2xui8=14 200",
    "H": "3xi1=0 1 1",
    "K": "-2.5",
}


def both(program: Path, *words: str) -> tuple[int, str]:
    """What program and `run` do alike: status, and the lines about the comparison."""
    artifact = program.with_suffix(".vmfb")
    words = (*GIVEN, "--output-max-element-count=1", *words)
    done = run(program, *words)
    reference = tilewright("run", artifact, *words)
    assert done.returncode == reference.code
    assert done.stdout == reference.out
    assert done.stderr == reference.err
    return done.returncode, done.stderr


def expecting(**changed: str) -> list[str]:
    return [f"--expected-output={value}" for value in {**EXPECTED, **changed}.values()]


def test_results_that_are_as_expected_are_said_to_match(program: Path) -> None:
    status, said = both(program, *expecting())
    assert (status, said) == (0, "all expected outputs match\n")
    near = expecting(K="-2.5002", B="3xf64=-0.10001 0 7")
    assert both(program, *near)[0] == 0


def test_a_difference_is_said_and_ends_with_1(program: Path) -> None:
    status, said = both(
        program, *expecting(A="3x2xf32=-1 2.5 -3e10 -0.125 1 inf", E="3xi8=0")
    )
    assert status == 1
    assert said == (
        "mismatch: result[0]: 2 of 6 elements differ, first at [2, 0]: got NAN, expected 1\n"
        "mismatch: result[4]: 3 of 3 elements differ, first at [0]: got -1, expected 0\n"
    )
    assert both(program, *expecting(K="-2.5002"), "--expected-rtol=1e-5")[0] == 1
    wide = ("--expected-rtol=0", "--expected-atol", "0.1")
    assert both(program, *expecting(K="-2.55"), *wide)[0] == 0


def test_an_expectation_of_another_type_or_count_is_named(program: Path) -> None:
    done = run(program, *GIVEN, *expecting(A="2x3xf32=1", K="f64=-2.5"))
    assert done.returncode == 1
    assert "result[0]: got f32[3, 2], expected f32[2, 3]\n" in done.stderr
    assert "result[8]: got f32[], expected f64[]\n" in done.stderr
    for words, problem in [
        (["--expected-output=1"], "--expected-output: give one for each output, or none"),
        (["--expected-rtol=nan"], "--expected-rtol=nan: expected a finite number from 0"),
        (["--expected-atol=-1"], "--expected-atol=-1: expected a finite number from 0"),
        (expecting(K="f32=x"), "f32=x: bad value: expected numbers"),
    ]:
        done = run(program, *GIVEN, *words)
        assert done.returncode == 1
        assert problem in done.stderr
        assert done.stdout == ""


# --- files of several arrays -----------------------------------------------------------------------


def test_reading_goes_on_where_the_last_read_ended(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    arrays = arrays_of_inputs()
    with path.open("wb") as file:
        for array in arrays.values():
            np.save(file, array)
    expected = run(program, D, *named(arrays, tmp_path)).stdout
    assert expected
    words = [f"--input={value}" for value in (f"@{path}", f"+{path}", f"+{path}")]
    words += [f"--input={VALUES['d']}", f"--input=*{path}"]
    done = run(program, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert tilewright("run", program.with_suffix(".vmfb"), *words).out == expected
    assert run(program, D, f"--input=*{path}").stdout == expected
    said = run(program, D, f"--input=a=*{path}").stderr
    assert "has several arrays, expected one" in said
    said = run(program, *words, f"--input=@{path}").stderr
    assert "more inputs than the model has" in said


def named(arrays: dict[str, np.ndarray], folder: Path) -> list[str]:
    """A file for each."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [f"--input={name}=@{folder}/{name}.npy" for name in arrays]


def test_raw_bytes_are_read_on_from_one_file(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(np.arange(9, dtype=np.float32).tobytes())
    others = {n: v for n, v in VALUES.items() if n not in "ak"}
    words = [f"--input={n}={v}" for n, v in others.items()]
    words += [f"--input=4x2xf32=@{path}", f"--input=f32=+{path}", "--output=K=-"]
    done = run(program, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "K:\nf32=-8\n"
    short = run(program, *words, f"--input=f32=+{path}")
    assert "more inputs than the model has" in short.stderr
