"""Sessions: whatever users pass becomes a call; the best code for the machine is chosen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.plans import static_plan
from fakes.small_models import mlp, scale_and_shift, scale_and_shift_reference
from tilewright.base.errors import ArchiveError, InputError, TargetError
from tilewright.base.target import Target
from tilewright.formats.artifact import Variant
from tilewright.runtime.session import Session, as_array, choose_variant

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
SCALE = np.array([1, 2, -1], np.float32)
EXPECTED = scale_and_shift_reference(X, SCALE)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("session") / "m.vmfb"
    tw.compile(scale_and_shift()).save(file)
    return file


@pytest.fixture(scope="module")
def session(path: Path) -> Session:
    return tw.load(path)


def check(results: object) -> None:
    assert isinstance(results, tuple)
    for got, want in zip(results, EXPECTED, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


CALLS: dict[str, Callable[[Session], object]] = {
    "positions": lambda s: s(X, SCALE),
    "names": lambda s: s(scale=SCALE, x=X),
    "both": lambda s: s(X, scale=SCALE),
    "mapping": lambda s: s({"scale": SCALE, "x": X}),
    "mapping and name": lambda s: s({"x": X}, scale=SCALE),
    "strided": lambda s: s(np.repeat(X, 2, 1)[:, ::2], SCALE),
    "memoryview": lambda s: s(memoryview(X), SCALE),
    "dlpack": lambda s: s(OnlyDlpack(X), OnlyDlpack(SCALE)),
    "interface": lambda s: s(OnlyInterface(X), SCALE),
    "run": lambda s: tuple(s.run({"x": X, "scale": SCALE}).values()),
}


class OnlyDlpack:
    """What torch, jax and others offer."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OnlyInterface:
    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_inputs_come_in_every_form(
    session: Session, call: Callable[[Session], object]
) -> None:
    check(call(session))


def test_outputs_by_name_have_their_names(session: Session) -> None:
    assert list(session.run({"x": X, "scale": SCALE})) == ["y", "z"]


def test_the_signature_names_types_and_shapes(session: Session) -> None:
    described = [
        (n, str(t), [str(d) for d in s]) for n, t, s in (*session.inputs, *session.outputs)
    ]
    assert described == [
        ("x", "f32", ["batch", "3"]),
        ("scale", "f32", ["3"]),
        ("y", "f32", ["batch", "3"]),
        ("z", "f32", ["3", "batch"]),
    ]


def test_a_single_output_is_not_a_tuple() -> None:
    model = tw.compile(mlp())
    assert isinstance(model(np.zeros((5, 20), np.float32)), np.ndarray)


def test_tensors_over_dlpack_are_not_copied() -> None:
    assert np.shares_memory(as_array(OnlyDlpack(X)), X)


def test_read_only_dlpack_and_missing_types_fall_back_to_a_copy() -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(as_array(frozen), X)

    class Refuses(OnlyDlpack):
        def __dlpack__(self, **options: object) -> object:
            raise BufferError("no such type")

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return self.array

    np.testing.assert_array_equal(as_array(Refuses(X)), X)


@pytest.mark.parametrize(
    "value",
    ["text", b"bytes", None, {1: 2}, object(), [[1], [2, 3]], np.datetime64("2020")],
)
def test_what_is_no_tensor_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=f"got {type(value).__name__}, expected an array"):
        as_array(value)


def test_numbers_and_sequences_are_arrays() -> None:
    assert as_array(3).shape == ()
    assert as_array([1.0, 2.0]).dtype == np.float64
    assert as_array(np.float32(1)).dtype == np.float32


def test_a_profile_names_the_steps(session: Session) -> None:
    steps = session.profile(X, SCALE)
    assert {step.kind for step, _ in steps} <= {"dispatch", "copy", "host"}
    assert sum(step.kind == "dispatch" for step, _ in steps) >= 2
    assert all(duration > 0 for _, duration in steps)


# --- where it comes from ---------------------------------------------------------------------


def test_a_session_opens_from_bytes_and_keeps_them(path: Path) -> None:
    data = path.read_bytes()
    session = Session.from_bytes(data)
    before = sys.getrefcount(data)
    check(session(X, SCALE))
    del session
    assert sys.getrefcount(data) <= before


def test_the_file_may_disappear_once_it_is_loaded(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.vmfb"
    copy.write_bytes(path.read_bytes())
    session = tw.load(copy)
    copy.unlink()
    check(session(X, SCALE))


def test_every_number_of_threads_gives_the_same_bits(path: Path) -> None:
    results = [tw.load(path, threads=n)(X, SCALE) for n in (1, 2, 3)]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert tw.load(path, threads=3).threads == 3


def test_the_virtual_machine_gives_the_same_bits(path: Path, session: Session) -> None:
    virtual = Session.from_file(path, engine="vm")
    for a, b in zip(virtual(X, SCALE), session(X, SCALE), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_directory_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot read the file"):
        tw.load(tmp_path)


# --- code for several machines ---------------------------------------------------------------


def variant(target: Target) -> Variant:
    return Variant(
        target=str(target),
        arch=target.arch,
        features=target.features,
        format="f",
        image=b"",
        plan=static_plan(),
    )


LEVELS = [variant(Target.level(level)) for level in ("v2", "v3", "v4")]


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_the_variant_with_the_most_features_of_the_machine_is_taken(level: str) -> None:
    machine = Target.level(level)
    for order in (LEVELS, LEVELS[::-1]):
        assert choose_variant(order, machine, "m").target == str(machine)


def test_a_machine_that_lacks_features_is_told_which() -> None:
    with pytest.raises(TargetError) as caught:
        choose_variant(LEVELS[1:], Target.level("v2"), "m.vmfb")
    text = str(caught.value)
    assert text.startswith("m.vmfb: no code for this CPU ('x86_64'")
    assert "missing here: " in text
    assert "avx2" in text


def test_code_for_every_level_runs_here_as_far_as_the_machine_goes() -> None:
    host = Target.host()
    if host.arch != "x86_64":
        pytest.skip("levels are for x86-64")
    model = tw.compile(scale_and_shift(), levels=["v2", "v3"])
    for level in ("v2", "v3"):
        if Target.level(level).features <= host.features:
            session = Session(model.session.artifact, machine=Target.level(level))
            assert session.variant is not None
            assert session.variant.target == str(Target.level(level))
            check(session(X, SCALE))
