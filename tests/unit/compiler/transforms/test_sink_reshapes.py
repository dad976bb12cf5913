from fakes.graphs import assert_becomes, assert_stays, ops, run
from tilewright.compiler.transforms import SinkReshapes

S = [SinkReshapes()]


def behind(*lines, result="y", extra=""):
    """A product of [6N, 4] and [4, 5], seen as [N, 6, 5]."""
    return (
        f"graph @g<N: 1..>(%x: f32[6*N, 4], %w: f32[4, 5]{extra}) {{"
        " %half: f32[] = constant {value = f32[] [0.5]}"
        " %m: f32[6*N, 5] = matmul(%x, %w) %v: f32[N, 6, 5] = reshape(%m) {shape = [N, 6, 5]}"
        f" {' '.join(lines)} return %{result} }}"
    )


def test_elementwise_ops_work_on_the_shape_of_the_product():
    graph = run(
        S,
        behind(
            "%b: f32[N, 6, 5] = add(%v, %c)",
            "%s: f32[N, 6, 5] = mul(%b, %half)",
            "%y: f32[N, 6, 5] = relu(%s)",
            extra=", %c: f32[5]",
        ),
    )
    assert ops(graph) == ["matmul", "add", "mul", "relu", "reshape"]


def test_a_residual_is_viewed_as_the_product():
    graph = run(S, behind("%y: f32[N, 6, 5] = add(%v, %r)", extra=", %r: f32[N, 6, 5]"))
    assert ops(graph) == ["matmul", "reshape", "add", "reshape"]


def test_a_residual_that_was_made_of_bytes_is_viewed_as_bytes():
    graph = run(
        S,
        behind(
            "%f: f32[N, 6, 5] = cast(%r) {dtype = f32}",
            "%d: f32[N, 6, 5] = mul(%f, %half)",
            "%y: f32[N, 6, 5] = add(%v, %d)",
            extra=", %r: u8[N, 6, 5]",
        ),
    )
    assert ops(graph) == ["matmul", "reshape", "cast", "mul", "add", "reshape"]
    (view, _) = (node for node in graph.nodes if node.op == "reshape")
    assert str(view.result.type.dtype) == "u8"


def test_a_residual_that_takes_long_to_make_of_bytes_is_viewed_as_it_is():
    graph = run(
        S,
        behind(
            "%f: f32[N, 6, 5] = cast(%r) {dtype = f32}",
            "%d: f32[N, 6, 5] = exp(%f)",
            "%y: f32[N, 6, 5] = add(%v, %d)",
            extra=", %r: u8[N, 6, 5]",
        ),
    )
    assert ops(graph) == ["matmul", "cast", "exp", "reshape", "add", "reshape"]


def test_two_views_of_products_meet_in_their_shape():
    graph = run(
        S,
        behind(
            "%n: f32[6*N, 5] = matmul(%x, %w)",
            "%u: f32[N, 6, 5] = reshape(%n) {shape = [N, 6, 5]}",
            "%y: f32[N, 6, 5] = add(%v, %u)",
        ),
    )
    assert ops(graph) == ["matmul", "matmul", "add", "reshape"]


def test_an_operand_that_varies_along_part_of_a_merged_axis_stops_it():
    text = behind("%y: f32[N, 6, 5] = add(%v, %c)", extra=", %c: f32[6, 1]")
    assert_stays(S, text)


def test_a_view_that_is_broadcast_stays():
    text = behind("%y: f32[3, N, 6, 5] = add(%v, %c)", extra=", %c: f32[3, 1, 1, 1]")
    assert_stays(S, text)


def test_reshapes_of_other_things_stay():
    assert_stays(
        S,
        "graph @g(%x: f32[6, 4]) { %e: f32[6, 4] = exp(%x) %v: f32[24] = reshape(%e) {shape = [24]}"
        " %y: f32[24] = relu(%v) return %y }",
    )


FORM = (
    '{axes = "n, oh, ow, g, p, l", sums = "kh, kw, c", left = "n, kh + oh, kw + ow, c",'
    ' right = "g, p, kh, kw, c, l", result = "n, oh, ow, l + 4*p", shape = [1, 1, 4, 4]}'
)


def test_flat_images_keep_their_height_of_one():
    assert_becomes(
        S,
        "graph @g(%x: f32[1, 1, 5, 3], %w: f32[1, 1, 1, 2, 3, 4]) {"
        f" %c: f32[1, 1, 4, 4] = contract(%x, %w) {FORM}"
        " %v: f32[1, 4, 4] = reshape(%c) {shape = [1, 4, 4]}"
        " %y: f32[1, 4, 4] = relu(%v) return %y }",
        "graph @g(%x: f32[1, 1, 5, 3], %w: f32[1, 1, 1, 2, 3, 4]) {"
        f" %c: f32[1, 1, 4, 4] = contract(%x, %w) {FORM}"
        " %r: f32[1, 1, 4, 4] = relu(%c)"
        " %y: f32[1, 4, 4] = reshape(%r) {shape = [1, 4, 4]} return %y }",
    )


def test_scales_go_in_front_of_transposes():
    graph = run(
        S,
        behind(
            "%t: f32[6, N, 5] = transpose(%v) {perm = [1, 0, 2]}",
            "%y: f32[6, N, 5] = mul(%t, %half)",
        ),
    )
    assert ops(graph) == ["matmul", "mul", "reshape", "transpose"]


def test_a_transpose_with_other_users_stays():
    text = behind(
        "%t: f32[6, N, 5] = transpose(%v) {perm = [1, 0, 2]}",
        "%y: f32[6, N, 5] = mul(%t, %half)",
        result="y, %t",
    )
    assert_stays(S, text)


def windows(*lines, extra=""):
    """A product whose rows are windows of 2 x 3 in an image of 4 x 6, put together to the image's rows."""
    return (
        f"graph @g(%x: f32[24, 4], %w: f32[4, 16]{extra}) {{"
        " %m: f32[24, 16] = matmul(%x, %w)"
        " %v: f32[2, 2, 2, 3, 16] = reshape(%m) {shape = [2, 2, 2, 3, 16]}"
        " %t: f32[2, 2, 2, 3, 16] = transpose(%v) {perm = [0, 2, 1, 3, 4]}"
        f" %u: f32[24, 16] = reshape(%t) {{shape = [24, 16]}} {' '.join(lines)} return %y }}"
    )


def test_windows_that_become_an_image_are_added_to_before_their_axes_merge():
    text = windows("%y: f32[24, 16] = add(%u, %r)", extra=", %r: f32[24, 16]")
    found = ops(run(S, text))
    assert found == ["matmul", "reshape", "transpose", "reshape", "add", "reshape"]


def test_two_images_of_windows_do_not_chase_each_other():
    text = windows(
        "%b: f32[3, 2, 4, 16] = reshape(%m) {shape = [3, 2, 4, 16]}",
        "%c: f32[2, 3, 4, 16] = transpose(%b) {perm = [1, 0, 2, 3]}",
        "%d: f32[24, 16] = reshape(%c) {shape = [24, 16]}",
        "%y: f32[24, 16] = add(%u, %d)",
    )
    assert_stays(S, text)
