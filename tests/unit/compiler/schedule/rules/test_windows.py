"""Windows over images: channels in lanes, or the innermost axis, whatever the stride and the border."""

from __future__ import annotations

import itertools

import pytest

from fakes.contractions import depthwise
from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Const, If, LoopKind, walk
from tilewright.compiler.kernel.rewrite import loads, loops
from tilewright.compiler.kernel.text import expression_text
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V2, V3, V4 = (MachineModel.of(Target.level(level)) for level in ("v2", "v3", "v4"))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [1, 16, 40])
def test_depthwise_windows_in_channels(stride: int, channels: int) -> None:
    size = (9 - 3) // stride + 1
    kernel = op_kernel(
        "contract", [(1, 9, 9, channels), (3, 3, channels)], (1, size, size, channels),
        depthwise(strides=(stride, stride)),
    )  # fmt: skip
    assert_same(kernel, schedule(kernel, V4))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
@pytest.mark.parametrize(
    ("shape", "kernel", "step", "pad"),
    [
        ((1, 3, 9, 37), (2, 2), 2, 0),
        ((2, 2, 70), (3,), 3, 1),
        ((1, 2, 4, 6, 34), (2, 2, 2), 2, 0),
    ],
)
def test_strided_windows_run_in_lanes_of_the_innermost_axis(
    op: str, shape: tuple[int, ...], kernel: tuple[int, ...], step: int, pad: int
) -> None:
    rank = len(kernel)
    spatial = [
        (n + 2 * pad - k) // step + 1 for n, k in zip(shape[2:], kernel, strict=True)
    ]
    attributes = {
        "kernel": kernel, "strides": (step,) * rank, "pads": (pad,) * (2 * rank),
        "layout": "NCHW",
    }  # fmt: skip
    naive = op_kernel(op, [shape], (*shape[:2], *spatial), attributes)
    changed = schedule(naive, V4)
    assert any(x.kind is LoopKind.VECTOR for x in loops(changed.body))
    assert_same(naive, changed, exact=False)


@pytest.mark.parametrize(
    ("width", "kernel", "step", "pads"),
    [(27, 3, 2, (1, 0)), (14, 3, 1, (1, 1)), (13, 5, 1, (2, 2))],
)
def test_whole_tiles_of_short_rows_test_only_places_that_may_lie_outside(
    width: int, kernel: int, step: int, pads: tuple[int, int]
) -> None:
    size = (width + sum(pads) - kernel) // step + 1
    attributes = {"kernel": (kernel,), "strides": (step,), "pads": pads, "layout": "NCHW"}
    naive = op_kernel("max_pool", [(2, 3, width)], (2, 3, size), attributes)
    changed = schedule(naive, V3)
    assert_same(naive, changed)
    tested = [load.mask is not None for load in loads(changed.body)]
    assert 0 < sum(tested) < len(tested)
    lanes = [x for x in loops(changed.body) if x.kind is LoopKind.VECTOR]
    asked = [x for x in walk(changed.body) if isinstance(x, If)]
    assert all(any(x in each.body for each in lanes) for x in asked), "which tile it is"


@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
@pytest.mark.parametrize("window", [3, 7])
@pytest.mark.parametrize("size", [0, 19])
def test_windows_far_apart_that_are_inside_test_no_place(
    op: str, window: int, size: int
) -> None:
    """Rows of their taps are no lanes, or one vector: elements a stride of more than `short_axis` apart are not picked."""
    side = size or symbol("H", window)
    count = (side + 2 - window) // 8 + 1
    attributes: dict[str, object] = {
        "kernel": (window, window), "strides": (8, 8), "pads": (1, 1, 1, 1),
        "dilations": (1, 1), "ceil_mode": False, "layout": "NCHW",
    }  # fmt: skip
    if op == "average_pool":
        attributes["count_include_pad"] = True
    naive = op_kernel(op, [(1, 3, side, side)], (1, 3, count, count), attributes)
    done = schedule(naive, V3)
    picture = done.parameters[0].buffer
    tests = {x.mask is not None for x in loads(done.body) if x.buffer is picture}
    assert tests == {False, True}, "windows inside ask nothing, those at the border do"
    for height in (size,) if size else (window, window + 1, 8, 9, 17, 31, 32, 40):
        assert_same(naive, done, {"H": height}, exact=op == "max_pool")


@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
@pytest.mark.parametrize(
    ("side", "pads", "apart"), [("H", 0, 1), ("W", 0, 1), ("W", 1, 1), ("W", 0, 2)]
)
def test_a_window_whose_rows_follow_each_other_is_one_row(
    op: str, side: str, pads: int, apart: int
) -> None:
    """A picture that one window holds, or is as wide as one, is a reduction along what lies in order."""
    height, width = symbol("H", 1), symbol(side, 1)
    taps = (7, 6 * apart + 1)
    counts = [
        (n + 2 * pads - k) // 7 + 1 for n, k in zip((height, width), taps, strict=True)
    ]
    attributes: dict[str, object] = {
        "kernel": (7, 7), "strides": (7, 7), "pads": (pads,) * 4,
        "dilations": (1, apart), "ceil_mode": False, "layout": "NCHW",
    }  # fmt: skip
    if op == "average_pool":
        attributes["count_include_pad"] = False
    naive = op_kernel(op, [(2, 3, height, width)], (2, 3, *counts), attributes)
    done = schedule(naive, V3)
    assert (f"in one piece where {side} is 7" in str(done.notes)) == (
        pads == 0 and apart == 1
    )
    for high, wide in itertools.product((5, 7, 8, 14, 20), repeat=2):
        if (side == "W" or high == wide) and (apart == 1 or wide >= taps[1]):
            sizes = {"H": high, "W": wide}
            assert_same(naive, done, sizes, exact=op == "max_pool")


@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
@pytest.mark.parametrize("pads", [(12, 12), (0, 3)])
def test_windows_that_a_picture_has_room_for_have_code_that_tests_no_place(
    op: str, pads: tuple[int, int]
) -> None:
    """Of more than `FEW_TAPS` taps those that may meet the picture are counted by a call: most often all of them."""
    size = symbol("L", 1)
    count = (size + sum(pads) - 25) // 16 + 1
    attributes: dict[str, object] = {
        "kernel": (25,), "strides": (16,), "pads": pads,
        "dilations": (1,), "ceil_mode": False, "layout": "NCHW",
    }  # fmt: skip
    if op == "average_pool":
        attributes["count_include_pad"] = False
    naive = op_kernel(op, [(2, 3, size)], (2, 3, count), attributes)
    done = schedule(naive, V3)
    assert "windows of 25 have code of their own" in str(done.notes)
    assert "stay in registers" not in str(done.notes), "nor are the others told apart again"
    asked = [x.condition for x in walk(done.body) if isinstance(x, If)]
    assert not any(isinstance(x, Const) for x in asked), "some call has either"
    told = [of["least"] for name, of in done.trace if name == "version"]
    assert told[0] == 1 - 25, "all 25, not one less"
    picture = done.parameters[0].buffer
    tests = {x.mask is not None for x in loads(done.body) if x.buffer is picture}
    assert tests == {False, True}
    inside = [
        x.body
        for x in loops(done.body)
        if x.reduction and not any(y.mask is not None for y in loads(x.body))
    ]
    tails = [x for body in inside for x in walk(body) if isinstance(x, If)]
    assert not any("L" in expression_text(x.condition) for x in tails), "25 in every call"
    for length in (22, 24, 25, 29, 40, 41, 42, 100):
        assert_same(naive, done, {"L": length}, exact=op == "max_pool")
    if sum(pads) > 3:
        for length in (1, 4, 12, 13, 14):
            assert_same(naive, done, {"L": length}, exact=op == "max_pool")


@pytest.mark.parametrize(
    ("taps", "machine", "have"),
    [(17, V3, True), (64, V3, True), (65, V3, False), (17, V2, False)],
)
def test_windows_of_up_to_eight_vectors_have_code_of_their_own_where_vectors_may_have_masks(
    taps: int, machine: MachineModel, have: bool
) -> None:
    size = symbol("L", 1)
    attributes: dict[str, object] = {
        "kernel": (taps,), "strides": (16,), "pads": (taps - 1, 0),
        "dilations": (1,), "ceil_mode": False, "layout": "NCHW",
    }  # fmt: skip
    naive = op_kernel("max_pool", [(2, 3, size)], (2, 3, (size + 15) // 16), attributes)
    done = schedule(naive, machine)
    assert (f"windows of {taps} have code" in str(done.notes)) == have
    for length in (1, 15, 16, 17, taps - 1, taps, taps + 1, 2 * taps + 17):
        assert_same(naive, done, {"L": length})


def test_a_window_whose_rows_cannot_be_one_loop_is_one_of_rows_still() -> None:
    """A sum of the largest of each row has more than one loop in the other."""
    naive = parse_kernel("""kernel k(read x: f32[M, 9, N], write y: f32[M], *, M: 1.., N: 7..):
    local u: f32[M, 9]@device
    for i in range(M):
        y[i] = 0.0
        for h in range(7):  # reduction
            u[i, h] = -inf
            for w in range(7):  # reduction
                u[i, h] = max(u[i, h], x[i, h, w])
            y[i] = (y[i] + u[i, h])
""")
    done = schedule(naive, V3)
    assert done.verdict is not None
    assert done.verdict.outcome is Outcome.ROWS, done.notes
    for rows, width in ((1, 7), (3, 8), (17, 7)):
        assert_same(naive, done, {"M": rows, "N": width})


@pytest.mark.parametrize(
    "body",
    [
        """y[i] = 0.0
        for h in range(7):  # reduction
            for w in range(7):  # reduction
                y[i] = (y[i] + (x[i, h, w] * g[h, w]))""",
        """u[i] = -inf
        for h in range(7):  # reduction
            for w in range(7):  # reduction
                u[i] = max(u[i], x[i, h, w])
        y[i] = 0.0
        for h2 in range(7):  # reduction
            for w2 in range(7):  # reduction
                y[i] = (y[i] + (x[i, h2, w2] - u[i]))""",
    ],
    ids=["rows of two pictures", "two passes"],
)
def test_what_is_more_than_one_window_of_a_picture_is_not_in_one_piece(body: str) -> None:
    naive = parse_kernel(f"""kernel k(read x: f32[M, 9, N], read g: f32[7, 9], write y: f32[M], *, M: 1.., N: 7..):
    local u: f32[M]@device
    for i in range(M):
        {body}
""")
    done = schedule(naive, V3)
    assert done.verdict is not None
    assert done.verdict.outcome is Outcome.ROWS, done.notes
    assert "in one piece" not in str(done.notes)
    for rows, width in ((1, 7), (17, 8)):
        assert_same(naive, done, {"M": rows, "N": width}, exact=False)


@pytest.mark.parametrize("least", [1, 7, 8])
def test_rows_that_no_call_has_in_one_piece_have_no_code_for_it(least: int) -> None:
    naive = parse_kernel(f"""kernel k(read x: f32[M, 9, N], write y: f32[M], *, M: 1.., N: {least}..):
    for i in range(M):
        y[i] = 0.0
        for h in range(7):  # reduction
            for w in range(7):  # reduction
                y[i] = (y[i] + x[i, h, w])
""")
    done = schedule(naive, V3)
    assert ("in one piece where N is 7" in str(done.notes)) == (least <= 7)
    assert_same(naive, done, {"M": 5, "N": 9}, exact=False)


def test_taps_that_an_iteration_counts_are_those_of_no_call() -> None:
    """Rows that grow, with a border: nothing outside them says how many taps there are."""
    naive = parse_kernel("""kernel k(read x: f32[M, 40], write y: f32[M, 40], *, M: 1..):
    for i in range(M):
        for j in range(40):
            y[i, j] = 0.0
            for w in range(j + 1):  # reduction
                y[i, j] = (y[i, j] + select((index<i64>(w) > 3), (x[i, w - 4] where (index<i64>(w) > 3)), 0.0))
""")
    done = schedule(naive, V3)
    assert done.verdict is not None
    assert done.verdict.outcome is Outcome.ROWS, done.notes
    assert_same(naive, done, {"M": 3}, exact=False)


@pytest.mark.parametrize(("length", "most"), [("N", 40), ("min(N, 40)", None)])
def test_the_largest_of_open_lengths_is_a_window_only_where_most_calls_have_it(
    length: str, most: int | None
) -> None:
    naive = parse_kernel(f"""kernel k(read x: f32[M, N], write y: f32[M], *, M: 1.., N: 5..{most or ""}):
    for i in range(M):
        y[i] = 0.0
        for w in range({length}):  # reduction
            y[i] = (y[i] + select((index<i64>(w) > 3), (x[i, w - 4] where (index<i64>(w) > 3)), 0.0))
""")
    done = schedule(naive, V3)
    assert ("windows of 40 have code" in str(done.notes)) == (most is None)
    for width in (5, 17, 39, 40):
        assert_same(naive, done, {"M": 9, "N": width}, exact=False)


@pytest.mark.parametrize(
    "body",
    [
        """y[i] = 0.0
        for w in range(min(N, 40)):  # reduction
            y[i] = (y[i] + x[i, w])""",
        """u[i] = -inf
        for w in range(min(N, 40)):  # reduction
            u[i] = max(u[i], select((index<i64>(w) > 3), (x[i, w - 4] where (index<i64>(w) > 3)), 0.0))
        y[i] = 0.0
        for v in range(min(N, 40)):  # reduction
            y[i] = (y[i] + (select((index<i64>(v) > 3), (x[i, v - 4] where (index<i64>(v) > 3)), 0.0) - u[i]))""",
    ],
    ids=["no tests", "two passes"],
)
def test_rows_that_test_no_place_or_are_passed_twice_are_no_windows(body: str) -> None:
    naive = parse_kernel(f"""kernel k(read x: f32[M, N], write y: f32[M], *, M: 1.., N: 5..):
    local u: f32[M]@device
    for i in range(M):
        {body}
""")
    done = schedule(naive, V3)
    assert "have code of their own" not in str(done.notes)
    for width in (5, 17, 40, 41):
        assert_same(naive, done, {"M": 9, "N": width}, exact=False)
