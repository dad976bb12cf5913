"""Where fusion lets an image grow: in the kernel that reads it."""

import pytest

from fakes.contractions import form_of
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
