"""Which depthwise convolutions and products of matrices become one kernel."""

from __future__ import annotations

import pytest

from fakes.contractions import form_of, product_text
from fakes.graphs import run
from tilewright.compiler.transforms import ChooseBand, FuseKernels

JOINED = "contract:depthwise_conv+constant+clip+reshape+contract:matmul+relu"
APART = ["contract:depthwise_conv+constant+clip", "reshape", "contract:matmul+relu"]


def pair(
    *, between: str = "", result: str = "y", sizes: str = "2, 3, 5", rows: str = "30"
) -> str:
    """Depthwise convolution, clip, reshape, product, relu; `between` may read `%c` or `%m` as well."""
    images, *image = sizes.split(", ")
    height, width = (int(n) + 2 for n in image)
    return (
        f"graph @g(%x: f32[{images}, {height}, {width}, 8], %taps: f32[3, 3, 8], %w: f32[2, 8, 4]) {{"
        " %six: f32[] = constant {value = f32[] [6.0]}"
        f" %d: f32[{sizes}, 8] = contract(%x, %taps)"
        ' {axes = "n, oh, ow, c", sums = "kh, kw", left = "n, kh + oh, kw + ow, c", right = "kh, kw, c",'
        f' result = "n, oh, ow, c", shape = [{sizes}, 8]}}'
        f" %c: f32[{sizes}, 8] = clip(%d, %six, %six)"
        f" %m: f32[{rows}, 8] = reshape(%c) {{shape = [{rows}, 8]}}"
        f" %p: f32[{rows}, 8] = {product_text('%m', '%w', rows + ', 8', 4)}"
        f" %y: f32[{rows}, 8] = relu(%p) {between} return %{result} }}"
    )


def every(*_: int) -> int:
    """A decision to join whatever may."""
    return 1


def never(*_: int) -> int:
    """A decision to join nothing."""
    return 0


def kernels(
    text: str, choose_band: ChooseBand | None = every, most_operands: int = 24
) -> list[str]:
    """The ops of every kernel and view."""
    fusion = FuseKernels(choose_band=choose_band, most_operands=most_operands)
    return [
        "+".join(map(form_of, node.regions[0].nodes)) if node.regions else form_of(node)
        for node in run([fusion], text).nodes
        if node.op != "constant"
    ]


def test_a_pair_joins_with_the_view_between() -> None:
    assert kernels(pair()) == [JOINED]


@pytest.mark.parametrize("choose_band", [None, never])
def test_a_pair_stays_apart_where_it_is_not_decided(
    choose_band: ChooseBand | None,
) -> None:
    assert kernels(pair(), choose_band=choose_band) == APART


def test_rows_of_one_place_are_no_bands() -> None:
    """The loops over rows would be one for both, and no tile has two rows of the product."""
    text = pair(sizes="2, 15, 1")
    assert kernels(text) == APART


def test_the_decision_sees_rows_and_bytes() -> None:
    seen: list[tuple[int, ...]] = []

    def choose(*sizes: int) -> int:
        seen.append(sizes)
        return 0

    kernels(pair(), choose)
    assert seen == [(2 * 3, 5 * 8 * 4, 2 * 8 * 4 * 4)]


@pytest.mark.parametrize("result", ["y, %c", "y, %m"])
def test_a_tensor_that_leaves_is_made_as_a_whole(result: str) -> None:
    assert kernels(pair(result=result)) == APART


def test_a_tensor_with_another_reader_is_made_as_a_whole() -> None:
    text = pair(between="%s: f32[2, 3, 5, 8] = sigmoid(%c)", result="y, %s")
    assert sorted(kernels(text)) == sorted([*APART, "sigmoid"])


def test_more_operands_than_a_kernel_may_have_keep_them_apart() -> None:
    assert kernels(pair(), most_operands=2) == APART


def test_an_operand_that_needs_the_product_is_no_circle() -> None:
    """The product's epilogue reads another product, which reads neither of the pair."""
    text = pair(
        between="%q: f32[30, 8] = "
        + product_text("%y", "%w", "30, 8", 4)
        + " %z: f32[30, 8] = add(%q, %y)",
        result="z",
    )
    assert kernels(text) == [JOINED, "contract:matmul+add"]


def test_a_convolution_whose_elements_meet_all_filters_stays_apart() -> None:
    text = (
        "graph @g(%x: f32[1, 5, 5, 8], %f: f32[1, 2, 3, 3, 8, 4], %w: f32[2, 8, 4]) {"
        ' %d: f32[1, 3, 3, 8] = contract(%x, %f) {axes = "n, oh, ow, g, p, l", sums = "kh, kw, c",'
        ' left = "n, kh + oh, kw + ow, c", right = "g, p, kh, kw, c, l", result = "n, oh, ow, l + 4*p",'
        " shape = [1, 3, 3, 8]}"
        " %m: f32[9, 8] = reshape(%d) {shape = [9, 8]}"
        f" %p: f32[9, 8] = {product_text('%m', '%w', '9, 8', 4)} return %p }}"
    )
    assert kernels(text) == ["contract:conv", "reshape", "contract:matmul"]


def test_a_view_that_changes_rows_keeps_them_apart() -> None:
    """The channels of two neighbours are one row of the matrix."""
    text = pair(sizes="2, 3, 4", rows="12").replace("%w: f32[2, 8, 4]", "%w: f32[2, 16, 4]")
    text = text.replace("%m: f32[12, 8]", "%m: f32[12, 16]").replace(
        "shape = [12, 8]", "shape = [12, 16]", 1
    )
    assert kernels(text) == APART


def test_sizes_that_are_not_known_keep_them_apart() -> None:
    text = pair().replace("@g(", "@g<N: 1..>(").replace("30", "15*N")
    text = text.replace("f32[2, 3, 5, 8]", "f32[N, 3, 5, 8]").replace(
        "[2, 3, 5, 8]", "[N, 3, 5, 8]"
    )
    text = text.replace("%x: f32[2,", "%x: f32[N,")
    assert kernels(text) == APART


# --- transposes before them ---------------------------------------------------------------

IMAGE = (
    '{axes = "n, oh, ow, g, p, l", sums = "kh, kw, c", left = "n, kh + oh, kw + ow, c",'
    ' right = "g, p, kh, kw, c, l", result = "n, oh, ow, l + 4*p", shape = [1, 3, 3, 8]}'
)

CHANNELS_FIRST = (
    "graph @g(%x: f32[1, 8, 5, 5], %w: f32[3, 3, 8], %v: f32[1, 2, 3, 3, 8, 4]) {"
    " %t: f32[1, 5, 5, 8] = transpose(%x) {perm = [0, 2, 3, 1]} "
)


def test_a_transpose_stays_before_a_convolution_whose_lanes_are_channels() -> None:
    """Lanes that read one element of every row each are slower than moving all of them once."""
    text = CHANNELS_FIRST + (
        '%y: f32[1, 3, 3, 8] = contract(%t, %w) {axes = "n, oh, ow, c", sums = "kh, kw",'
        ' left = "n, kh + oh, kw + ow, c", right = "kh, kw, c", result = "n, oh, ow, c",'
        " shape = [1, 3, 3, 8]} return %y }"
    )
    assert kernels(text) == ["transpose", "contract:depthwise_conv"]
    rows = text.replace("[0, 2, 3, 1]", "[0, 2, 1, 3]").replace(
        "[1, 8, 5, 5]", "[1, 5, 5, 8]"
    )
    assert kernels(rows) == ["transpose+contract:depthwise_conv"]


def test_a_transpose_joins_a_convolution_that_reads_channels_in_all_lanes() -> None:
    text = CHANNELS_FIRST + f"%y: f32[1, 3, 3, 8] = contract(%t, %v) {IMAGE} return %y }}"
    assert kernels(text) == ["transpose+contract:conv"]


# --- transposes behind them ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "parts"),
    [
        ("rows", ["transpose", "reshape", "transpose"]),
        ("columns", ["transpose+reshape+transpose"]),
    ],
)
def test_phases_are_put_together_before_the_image_is_turned(
    last: str, parts: list[str]
) -> None:
    """Lanes along rows of which every other one comes from somewhere else would be picked one by one."""
    perm, shape = {
        "rows": ("0, 2, 3, 1", "N, 3, 8, 10"),
        "columns": ("0, 1, 3, 2", "N, 10, 8, 3"),
    }[last]
    text = (
        "graph @g<N: 1..>(%x: f32[N, 5, 2, 3, 8]) {"
        " %p: f32[N, 2, 5, 3, 8] = transpose(%x) {perm = [0, 2, 1, 3, 4]}"
        " %v: f32[N, 10, 3, 8] = reshape(%p) {shape = [N, 10, 3, 8]}"
        f" %y: f32[{shape}] = transpose(%v) {{perm = [{perm}]}} return %y }}"
    )
    assert kernels(text) == parts


@pytest.mark.parametrize(
    ("between", "parts"),
    [
        ("%s: f32[N, 10, 3, 8] = sub(%c, %v)", ["constant+sub+transpose"]),
        ("%s: f32[N, 10, 3, 8] = sub(%v, %c)", ["constant+sub+transpose"]),
        (
            "%e: f32[N, 10, 3, 8] = exp(%v) %s: f32[N, 10, 3, 8] = div(%c, %e)",
            ["constant+exp+div+transpose"],
        ),
    ],
)
def test_phases_are_put_together_before_what_is_computed_of_them_is_turned(
    between: str, parts: list[str]
) -> None:
    text = (
        "graph @g<N: 1..>(%x: f32[N, 5, 2, 3, 8]) {"
        " %c: f32[] = constant {value = f32[] [3.0]}"
        " %p: f32[N, 2, 5, 3, 8] = transpose(%x) {perm = [0, 2, 1, 3, 4]}"
        f" %v: f32[N, 10, 3, 8] = reshape(%p) {{shape = [N, 10, 3, 8]}} {between}"
        " %y: f32[N, 3, 8, 10] = transpose(%s) {perm = [0, 2, 3, 1]} return %y }"
    )
    assert kernels(text) == ["transpose", "reshape", *parts]
