"""Where fusion lets an image grow, in the kernel that reads it, and puts phases together, in the product's stores."""

import pytest

from fakes.contractions import form_of, product_text
from fakes.graphs import run
from tilewright.compiler.transforms import FuseKernels


def fused(text):
    """The ops of each kernel."""
    return [
        "+".join(map(form_of, node.regions[0].nodes)) if node.regions else form_of(node)
        for node in run([FuseKernels()], text).nodes
    ]


GROWN = (
    "graph @g(%x: f32[1, 2, 3, 8], %y: f32[1, 4, 6, 8]) {"
    ' %r: f32[1, 4, 6, 8] = resize(%x) {sizes = [1, 4, 6, 8], mode = "linear"} BEHIND }'
)


@pytest.mark.parametrize(
    ("behind", "wanted"),
    [
        ("%z: f32[1, 4, 6, 8] = add(%r, %y) return %z", ["resize+add"]),
        ("%z: f32[1, 4, 6, 16] = concat(%y, %r) {axis = 3} return %z", ["resize+concat"]),
        ("%v: f32[4, 6, 8] = reshape(%r) {shape = [4, 6, 8]} %z: f32[4, 6, 8] = exp(%v) return %z",
         ["resize+reshape+exp"]),
        # Each element of the image would be computed several times, or its lanes lie apart.
        ("%z: f32[3, 4, 6, 8] = broadcast_to(%r) {shape = [3, 4, 6, 8]} return %z", ["resize", "broadcast_to"]),
        ("%z: f32[1, 8, 4, 6] = transpose(%r) {perm = [0, 3, 1, 2]} return %z", ["resize", "transpose"]),
        ("%z: f32[1, 4, 6, 8] = softmax(%r) return %z", ["resize", "softmax"]),
        ("%z: f32[1, 8, 6, 8] = resize(%r) {sizes = [1, 8, 6, 8]} return %z", ["resize", "resize"]),
        ("%z: f32[1, 4, 6, 8] = add(%r, %y) return %z, %r", ["resize", "add"]),
    ],
)  # fmt: skip
def test_an_image_grows_where_it_is_read_once_and_in_order(behind, wanted):
    assert fused(GROWN.replace("BEHIND", behind)) == wanted


PHASES = (
    "graph @g(%x: f32[6, 4], %w: f32[W, 4, 16], %b: f32[F]) {"
    " %m: f32[6, C] = "
    + product_text("%x", "%w", "6, C", 16)
    + " %v: f32[2, 3, 2, F] = reshape(%m) {shape = [2, 3, 2, F]}"
    " %t: f32[2, 2, 3, F] = transpose(%v) {perm = [0, 2, 1, 3]}"
)


def phases(filters: int) -> str:
    panels = -(-2 * filters // 16)
    text = PHASES.replace("C]", f"{2 * filters}]").replace("[W", f"[{panels}")
    return text.replace("F]", f"{filters}]")


def test_phases_are_stored_where_they_belong_and_what_follows_goes_with_them():
    behind = (
        " %r: f32[4, 3, 16] = reshape(%t) {shape = [4, 3, 16]}"
        " %a: f32[4, 3, 16] = add(%r, %b) %y: f32[4, 3, 16] = relu(%a) return %y }"
    )
    together = "contract:matmul+reshape+transpose+reshape+add+relu"
    assert fused(phases(16) + behind) == [together]


@pytest.mark.parametrize(
    ("behind", "ops"),
    [
        ("%a: f32[2, 2, 3, 16] = add(%t, %b)", "add"),
        (
            "%i: f32[2, 2, 3, 16] = add(%t, %s) %a: f32[2, 2, 3, 16] = relu(%i)",
            "add+relu",
        ),
    ],
    ids=["bias", "image"],
)
def test_phases_are_stored_where_they_belong_behind_what_is_computed_before_they_merge(
    behind: str, ops: str
):
    text = phases(16).replace("%b:", "%s: f32[2, 2, 3, 16], %b:")
    merged = " %y: f32[4, 3, 16] = reshape(%a) {shape = [4, 3, 16]} return %y }"
    assert fused(f"{text} {behind}{merged}") == [
        f"contract:matmul+reshape+transpose+{ops}",
        "reshape",
    ]


def test_what_has_several_results_moves_no_phases():
    behind = (
        " %r: f32[1, 12, 16] = reshape(%m) {shape = [1, 12, 16]}"
        " %y: f32[1, 12, 2], %i: i64[1, 12, 2] = top_k(%r) {k = [2], axis = 2} return %y, %i }"
    )
    text = phases(16).partition(" %v:")[0] + behind
    assert fused(text)[-1] == "top_k"


def test_phases_that_panels_do_not_divide_are_interleaved_apart():
    behind = (
        " %r: f32[4, 3, 48] = reshape(%t) {shape = [4, 3, 48]}"
        " %y: f32[4, 3, 48] = relu(%r) return %y }"
    )
    wide = phases(48).replace("[6, 4, 16]", "[3, 4, 32]")
    assert fused(wide + behind)[0] == "contract:matmul"


def test_phases_of_less_than_a_vector_are_interleaved_apart():
    behind = (
        " %r: f32[4, 3, 5] = reshape(%t) {shape = [4, 3, 5]}"
        " %y: f32[4, 3, 5] = relu(%r) return %y }"
    )
    assert fused(phases(5) + behind)[0] == "contract:matmul"


def test_heads_that_stay_an_axis_are_read_through_their_move():
    behind = " %y: f32[2, 2, 3, 16] = relu(%t) return %y }"
    assert fused(phases(16) + behind)[0] == "contract:matmul"
