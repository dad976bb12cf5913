import pytest

from fakes.contractions import form_of, product_text
from fakes.graphs import only, ops, parse, run
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import FuseKernels
from tilewright.compiler.transforms.fusion_classes import Role, role_of

F = [FuseKernels()]


def kernels(graph):
    """Each top-level node that is no constant: the ops of its region, or its own."""
    return [
        "+".join(map(form_of, node.regions[0].nodes)) if node.regions else form_of(node)
        for node in graph.nodes
        if node.op != "constant"
    ]


def fused(text, passes=F):
    return kernels(run(passes, text))


def matmul(*lines, result="y", extra=""):
    """A packed product m of [N, 4] and 8 columns."""
    return (
        f"graph @g<N: 1..>(%x: f32[N, 4], %w: f32[2, 4, 4], %b: f32[8]{extra}) {{"
        " %half: f32[] = constant {value = f32[] [0.5]}"
        f" %m: f32[N, 8] = {product_text('%x', '%w', 'N, 8', 4)} {' '.join(lines)}"
        f" return %{result} }}"
    )


# --- epilogues -------------------------------------------------------------------------------


def test_bias_activation_and_residual_go_into_the_store():
    text = matmul(
        "%a: f32[N, 8] = add(%m, %b)",
        "%r: f32[N, 8] = relu(%a)",
        "%y: f32[N, 8] = add(%r, %s)",
        extra=", %s: f32[N, 8]",
    )
    assert fused(text) == ["contract:matmul+add+relu+add"]


def test_scalars_become_part_of_the_kernel():
    graph = run(F, matmul("%y: f32[N, 8] = mul(%m, %half)"))
    assert kernels(graph) == ["contract:matmul+constant+mul"]
    (node,) = graph.nodes
    assert len(node.operands) == 2


def test_a_diamond_is_taken_when_it_closes():
    text = matmul(
        "%s: f32[N, 8] = sigmoid(%m)", "%t: bool[N, 8] = is_nan(%m)",
        "%p: f32[N, 8] = mul(%m, %s)", "%y: f32[N, 8] = where(%t, %half, %p)",
    )  # fmt: skip
    assert fused(text) == ["contract:matmul+is_nan+constant+sigmoid+mul+where"]


def test_an_open_diamond_stays_outside():
    text = matmul("%s: f32[N, 8] = sigmoid(%m)", "%t: f32[N, 8] = exp(%m)", result="s, %t")
    assert fused(text) == ["contract:matmul", "sigmoid", "exp"]


def test_a_result_that_leaves_ends_the_epilogue():
    text = matmul("%a: f32[N, 8] = add(%m, %b)", "%y: f32[N, 8] = relu(%a)", result="y, %a")
    assert fused(text) == ["contract:matmul+add", "relu"]


def test_an_operand_that_depends_on_the_kernel_is_refused():
    text = matmul(
        "%s: f32[N, 1] = reduce_sum(%m) {axes = [1]}", "%y: f32[N, 8] = sub(%m, %s)"
    )
    assert fused(text) == ["contract:matmul", "reduce_sum", "sub"]


def test_dependence_through_another_kernel_is_found():
    # The second product reads the first; both feed one addition.
    text = matmul(
        "%r: f32[N, 8] = relu(%m)",
        "%n: f32[N, 8] = " + product_text("%r", "%v", "N, 8", 4),
        "%y: f32[N, 8] = add(%r, %n)",
        extra=", %v: f32[2, 8, 4]",
    )
    assert fused(text) == ["contract:matmul+relu", "contract:matmul+add"]


def test_a_shared_constant_does_not_count_as_dependence():
    text = matmul(
        "%p: f32[N, 8] = mul(%s, %half)",
        "%a: f32[N, 8] = mul(%m, %half)",
        "%y: f32[N, 8] = add(%a, %p)",
        extra=", %s: f32[N, 8]",
    )
    assert fused(text) == ["contract:matmul+constant+mul+mul+add"]


def test_a_broadcasting_user_is_no_epilogue():
    text = matmul("%y: f32[3, N, 8] = add(%m, %c)", extra=", %c: f32[3, 1, 1]")
    assert fused(text) == ["contract:matmul", "add"]


def test_a_transpose_that_keeps_rows_whole_is_stored_directly():
    head = "graph @g(%x: f32[2, 3, 4], %w: f32[2, 2, 4, 4]) {"
    head += " %m: f32[2, 3, 8] = " + product_text("%x", "%w", "2, 3, 8", 4)
    kept = " %y: f32[3, 2, 8] = transpose(%m) {perm = [1, 0, 2]} return %y }"
    turned = " %y: f32[2, 8, 3] = transpose(%m) {perm = [0, 2, 1]} return %y }"
    assert fused(head + kept) == ["contract:matmul+transpose"]
    assert fused(head + turned) == ["contract:matmul", "transpose"]


IMAGE = (
    '{axes = "n, oh, ow, g, p, l", sums = "kh, kw, c", left = "n, kh + oh, kw + ow, c",'
    ' right = "g, p, kh, kw, c, l", result = "n, oh, ow, l + 4*p", shape = [1, 3, 3, 8]}'
)
CONV = (
    "graph @g(%x: f32[1, 5, 5, 4], %w: f32[1, 2, 3, 3, 4, 4], %b: f32[8]) {"
    " %m: f32[1, 3, 3, 8] = contract(%x, %w) "
    + IMAGE
    + " %a: f32[1, 3, 3, 8] = add(%m, %b)"
)


def test_the_border_of_the_next_convolution_is_written_by_the_last():
    text = CONV + (
        " %p: f32[1, 5, 5, 8] = pad(%a) {pads = [0, 1, 1, 0, 0, 1, 1, 0]}"
        " %r: f32[1, 5, 5, 8] = relu(%p) return %r }"
    )
    assert fused(text) == ["contract:conv+add+pad", "relu"]


@pytest.mark.parametrize(
    "pad",
    [
        'pad(%a) {pads = [0, 1, 1, 0, 0, 1, 1, 0], mode = "edge"}',
        "pad(%a, %v) {pads = [0, 1, 1, 0, 0, 1, 1, 0]}",
    ],
)
def test_other_borders_are_kernels_of_their_own(pad):
    text = CONV.replace("%b: f32[8]", "%b: f32[8], %v: f32[]")
    assert fused(text + f" %p: f32[1, 5, 5, 8] = {pad} return %p }}") == [
        "contract:conv+add",
        "pad",
    ]


def test_a_border_that_is_chosen_element_by_element_is_a_kernel_of_its_own():
    made = product_text("%x", "%w", "9, 3", 4)
    head = f"graph @g(%x: f32[9, 4], %w: f32[1, 4, 4]) {{ %m: f32[9, 3] = {made}"
    text = head + " %p: f32[9, 4] = pad(%m) {pads = [0, 0, 0, 1]} return %p }"
    assert fused(text) == ["contract:matmul", "pad"]


def test_a_border_is_reached_through_a_view():
    text = (
        "graph @g(%x: f32[9, 4], %w: f32[2, 4, 4]) {"
        " %m: f32[9, 8] = "
        + product_text("%x", "%w", "9, 8", 4)
        + " %v: f32[1, 3, 3, 8] = reshape(%m) {shape = [1, 3, 3, 8]}"
        " %p: f32[1, 5, 5, 8] = pad(%v) {pads = [0, 1, 1, 0, 0, 1, 1, 0]} return %p }"
    )
    assert fused(text) == ["contract:matmul+reshape+pad"]


def test_rows_reductions_and_pooling_have_epilogues():
    rows = (
        "graph @g(%x: f32[3, 4]) { %z: f32[] = constant {value = f32[] [0.0]}"
        " %s: f32[3, 4] = softmax(%x) %n: bool[3, 4] = is_nan(%s)"
        " %y: f32[3, 4] = where(%n, %z, %s) return %y }"
    )
    assert fused(rows) == ["softmax+is_nan+constant+where"]
    sums = (
        "graph @g(%x: f32[3, 4]) { %s: f32[3] = reduce_sum(%x) {axes = [1], keepdims = false}"
        " %y: f32[3] = sqrt(%s) return %y }"
    )
    assert fused(sums) == ["reduce_sum+sqrt"]
    pool = (
        "graph @g(%x: f32[1, 4, 4, 2]) {"
        ' %s: f32[1, 3, 3, 2] = max_pool(%x) {kernel = [2, 2], layout = "NHWC"}'
        " %r: f32[1, 3, 3, 2] = relu(%s)"
        " %y: f32[1, 4, 4, 2] = pad(%r) {pads = [0, 1, 1, 0, 0, 0, 0, 0]} return %y }"
    )
    assert fused(pool) == ["max_pool+relu+pad"]


# --- prologues -------------------------------------------------------------------------------


def test_what_a_window_reads_is_not_computed_for_each_of_its_places():
    text = """
graph @g(%x: f32[1, 8, 6, 6], %b: f32[8, 1, 1]) {
  %a: f32[1, 8, 6, 6] = add(%x, %b)
  %t: f32[1, 6, 6, 8] = transpose(%a) {perm = [0, 2, 3, 1]}
  %p: f32[1, 6, 6, 8] = average_pool(%t) {kernel = [3, 3], pads = [1, 1, 1, 1], layout = "NHWC"}
  %y: f32[1, 6, 6, 8] = sub(%p, %t)
  return %y
}"""
    assert fused(text) == ["add+transpose", "average_pool+sub"]


def test_contractions_read_through_linear_moves_on_the_left_only():
    text = (
        "graph @g(%x: f32[3, 8], %w: f32[4, 2, 2, 4]) {"
        " %v: f32[3, 4, 2] = reshape(%x) {shape = [3, 4, 2]}"
        " %t: f32[4, 3, 2] = transpose(%v) {perm = [1, 0, 2]}"
        " %m: f32[4, 3, 8] = " + product_text("%t", "%w", "4, 3, 8", 4) + " return %m }"
    )
    assert fused(text) == ["reshape", "transpose+contract:matmul"]


def test_a_slice_in_front_makes_the_split_linear_too():
    text = (
        "graph @g(%x: f32[3, 24], %w: f32[4, 2, 2, 4]) {"
        " %s: f32[3, 8] = slice(%x) {axes = [1], starts = [8], sizes = [8], steps = [1]}"
        " %v: f32[3, 4, 2] = reshape(%s) {shape = [3, 4, 2]}"
        " %t: f32[4, 3, 2] = transpose(%v) {perm = [1, 0, 2]}"
        " %m: f32[4, 3, 8] = " + product_text("%t", "%w", "4, 3, 8", 4) + " return %m }"
    )
    assert fused(text) == ["slice+reshape+transpose+contract:matmul"]


def test_merging_reshapes_and_arithmetic_stay_in_front_of_contractions():
    text = (
        "graph @g(%x: f32[3, 4, 2], %w: f32[2, 8, 4]) {"
        " %t: f32[4, 3, 2] = transpose(%x) {perm = [1, 0, 2]}"
        " %u: f32[3, 4, 2] = transpose(%t) {perm = [1, 0, 2]}"
        " %v: f32[3, 8] = reshape(%t2) {shape = [3, 8]}"
        " %m: f32[3, 8] = " + product_text("%v", "%w", "3, 8", 4) + " return %m }"
    )
    text = text.replace("%t2", "%u").replace(
        "%u: f32[3, 4, 2] = transpose(%t)", "%u: f32[3, 4, 2] = transpose(%t)"
    )
    assert fused(text)[-1] == "contract:matmul"
    text = (
        matmul()
        .replace("%x, %w)", "%e, %w)")
        .replace("%m:", "%e: f32[N, 4] = exp(%x) %m:")
        .replace("return %y", "return %m")
    )
    assert fused(text) == ["exp", "contract:matmul"]


def test_packing_takes_moves_and_arithmetic():
    text = (
        "graph @g(%x: f32[3, 8]) { %half: f32[] = constant {value = f32[] [0.5]}"
        " %e: f32[3, 8] = OP(%x) %s: f32[3, 8] = mul(%e, %half)"
        " %t: f32[8, 3] = transpose(%s) {perm = [1, 0]}"
        " %p: f32[1, 8, 4] = pack_panels(%t) {panel = 4} return %p }"
    )
    assert fused(text.replace("OP", "relu")) == ["relu+constant+mul+transpose+pack_panels"]
    assert fused(text.replace("OP", "exp")) == ["exp+constant+mul+transpose+pack_panels"]


def test_an_unpacked_product_reads_both_operands_through_moves():
    text = (
        "graph @g(%x: f32[1, 8], %k: f32[5, 8]) { %t: f32[8, 5] = transpose(%k) {perm = [1, 0]}"
        " %y: f32[1, 5] = matmul(%x, %t) return %y }"
    )
    assert fused(text) == ["transpose+matmul"]


def test_weights_that_are_one_number_are_still_operands():
    text = (
        "graph @g(%x: f32[3, 8]) { %w: f32[2, 8, 4] = constant {value = f32[2, 8, 4] splat 0.5}"
        " %m: f32[3, 8] = " + product_text("%x", "%w", "3, 8", 4) + " return %m }"
    )
    assert fused(text) == ["contract:matmul"]


def test_rows_and_reductions_take_arithmetic_in_front():
    text = (
        "graph @g(%x: f32[3, 8], %b: f32[8]) { %a: f32[3, 8] = add(%x, %b)"
        " %e: f32[3, 8] = OP %y: f32[3, 8] = layer_norm(%e) return %y }"
    )
    assert fused(text.replace("OP", "exp(%a)")) == ["add+exp+layer_norm"]
    text = (
        "graph @g(%x: f32[3, 8]) { %e: f32[3, 8] = exp(%x)"
        " %t: f32[8, 3] = transpose(%e) {perm = [1, 0]} %y: f32[8, 1] = reduce_sum(%t) {axes = [1]}"
        " return %y }"
    )
    assert len(fused(text)) <= 2


# --- pointwise and movement ------------------------------------------------------------------


def test_chains_of_arithmetic_and_moves_are_one_kernel():
    text = (
        "graph @g<N: 1..>(%x: f32[N, 6], %y: f32[6]) { %e: f32[N, 6] = exp(%x)"
        " %s: f32[N, 3] = slice(%e) {axes = [1], starts = [1], sizes = [3], steps = [1]}"
        " %t: f32[3, N] = transpose(%s) {perm = [1, 0]} %r: f32[3, N] = tanh(%t) return %r }"
    )
    assert fused(text) == ["exp+slice+transpose+tanh"]


def test_views_at_the_border_stay_outside():
    text = (
        "graph @g(%x: f32[6]) { %v: f32[2, 3] = reshape(%x) {shape = [2, 3]}"
        " %e: f32[2, 3] = exp(%v) %s: f32[2, 3] = neg(%e) %y: f32[3, 2] = reshape(%s) {shape = [3, 2]}"
        " return %y }"
    )
    assert fused(text) == ["reshape", "exp+neg", "reshape"]


def test_expensive_work_is_not_repeated_by_a_broadcast():
    text = (
        "graph @g(%x: f32[3, 1], %y: f32[3, 8]) { %e: f32[3, 1] = OP(%x)"
        " %z: f32[3, 8] = add(%e, %y) return %z }"
    )
    assert fused(text.replace("OP", "exp")) == ["exp", "add"]
    assert fused(text.replace("OP", "neg")) == ["neg+add"]


def test_shared_work_is_done_once_but_shared_slices_are_read_twice():
    text = (
        "graph @g(%x: f32[4, 6]) { %e: f32[4, 3] = OP %a: f32[4, 3] = exp(%e)"
        " %b: f32[4, 3] = tanh(%e) %m: f32[3, 4] = transpose(%a) {perm = [1, 0]}"
        " return %m, %b }"
    )
    cut = "slice(%x) {axes = [1], starts = [1], sizes = [3], steps = [1]}"
    assert sorted(fused(text.replace("OP", cut))) == ["slice+exp+transpose", "slice+tanh"]
    shared = text.replace("f32[4, 6]", "f32[4, 3]").replace("OP", "neg(%x)")
    assert sorted(fused(shared)) == ["exp+transpose", "neg", "tanh"]


def test_positions_and_repeated_scalars_are_computed_where_they_are_used():
    text = (
        "graph @g<N: 1..>(%x: f32[N, 4]) { %i: f32[N, 4] = iota {shape = [N, 4], dtype = f32}"
        " %c: f32[] = constant {value = f32[] [2.0]} %f: f32[N, 4] = full(%c) {shape = [N, 4]}"
        " %a: f32[N, 4] = add(%x, %i) %b: f32[N, 4] = mul(%x, %f) %s: f32[N, 4] = neg(%i)"
        " return %a, %b, %s }"
    )
    assert fused(text) == ["iota+add", "constant+full+mul", "iota+neg"]


def test_a_position_that_leaves_is_a_kernel():
    text = "graph @g() { %i: i64[4] = iota {shape = [4]} return %i }"
    assert fused(text) == ["iota"]


def test_concatenations_take_what_makes_their_parts():
    text = (
        "graph @g(%x: f32[4, 6], %y: f32[4, 2]) { %a: f32[4, 6] = neg(%x) %b: f32[4, 2] = exp(%y)"
        " %c: f32[4, 8] = concat(%a, %b) {axis = 1} %d: f32[4, 8] = tanh(%c) return %d }"
    )
    assert fused(text) == ["neg+exp+concat", "tanh"]


def test_gathers_feed_arithmetic():
    text = (
        "graph @g<N: 1..>(%i: i64[N], %t: f32[9, 4], %p: f32[1, 4]) {"
        " %e: f32[N, 4] = gather(%t, %i) %a: f32[N, 4] = add(%e, %p)"
        " %y: f32[N, 4] = layer_norm(%a) return %y }"
    )
    assert fused(text) == ["gather+add+layer_norm"]


@pytest.mark.parametrize(("count", "apart"), [(40, True), (3, False)])
def test_what_many_slices_are_picked_from_is_transposed_in_front(count, apart):
    text = (
        f"graph @g(%i: i64[{count}], %x: f32[4, 9]) {{"
        " %t: f32[9, 4] = transpose(%x) {perm = [1, 0]}"
        f" %e: f32[{count}, 4] = gather(%t, %i) %y: f32[{count}, 4] = neg(%e) return %y }}"
    )
    together = ["transpose+gather+neg"]
    assert fused(text) == (["transpose", "gather+neg"] if apart else together)


def test_ops_for_the_host_and_with_several_results_stay_alone():
    text = (
        "graph @g(%x: f32[3, 4]) { %e: f32[3, 4] = exp(%x)"
        " %v: f32[3, 2], %i: i64[3, 2] = top_k(%e) {k = [2]} %y: f32[3, 2] = neg(%v)"
        " return %y, %i }"
    )
    assert fused(text) == ["exp", "top_k", "neg"]


def test_what_has_several_results_takes_nothing_in_though_it_is_free():
    text = (
        "graph @g() { %e: i64[3, 9] = iota {shape = [3, 9]}"
        " %v: i64[3, 2], %i: i64[3, 2] = top_k(%e) {k = [2]} return %v, %i }"
    )
    assert fused(text) == ["iota", "top_k"]


# --- limits, names ---------------------------------------------------------------------------


def test_kernels_stop_growing_at_their_limits():
    lines = [f"%a{i + 1}: f32[4] = tanh(%a{i})" for i in range(12)]
    text = f"graph @g(%a0: f32[4]) {{ {' '.join(lines)} return %a12 }}"
    assert fused(text, [FuseKernels(most_nodes=4)]) == ["+".join(["tanh"] * 4)] * 3
    inputs = ", ".join(f"%x{i}: f32[4]" for i in range(9))
    adds = ["%s0: f32[4] = add(%x0, %x1)"]
    adds += [f"%s{i}: f32[4] = add(%s{i - 1}, %x{i + 1})" for i in range(1, 8)]
    text = f"graph @g({inputs}) {{ {' '.join(adds)} return %s7 }}"
    graph = run([FuseKernels(most_operands=4)], text)
    assert all(len(n.operands) <= 4 for n in graph.nodes)
    assert len(graph.nodes) == 3


def test_equal_kernels_share_a_name_and_differing_ones_do_not():
    text = (
        "graph @g(%x: f32[4], %y: f32[4], %z: f32[5]) { %c: f32[] = constant {value = f32[] [2.0]}"
        " %a: f32[4] = exp(%x) %b: f32[4] = mul(%a, %c) %d: f32[4] = exp(%y)"
        " %e: f32[4] = mul(%d, %c) %f: f32[5] = exp(%z) %h: f32[5] = mul(%f, %c)"
        " return %b, %e, %h }"
    )
    graph = run(F, text)
    names = [n.attributes["name"] for n in graph.nodes]
    assert names == ["exp_mul_0", "exp_mul_0", "exp_mul_1"]
    assert [n.regions[0].name for n in graph.nodes] == names


def test_kinds_and_locations_come_from_the_anchor():
    text = matmul("%y: f32[N, 8] = relu(%m)").replace(
        "shape = [N, 8]}", 'shape = [N, 8]} at "m.onnx" "product"'
    )
    node = only(run(F, text), "fused")
    assert node.attributes["kind"] == "contraction"
    assert node.attributes["name"] == "matmul_relu_0"
    assert str(node.location) == "m.onnx: node 'product'"
    assert node.result.name == "y"


def test_fusing_twice_changes_nothing():
    graph = parse(matmul("%a: f32[N, 8] = add(%m, %b)", "%y: f32[N, 8] = relu(%a)"))
    run_passes(graph, F)
    assert not run_passes(graph, F).modified
    verify(graph)


def test_roles_follow_traits_and_support():
    graph = parse(
        "graph @g(%x: f32[2, 4], %q: f32[4, 4]) { %a: f32[2, 4] = exp(%x)"
        " %b: f32[8] = reshape(%x) {shape = [8]} %c: f32[] = constant {value = f32[] [1.0]}"
        " %d: f32[2] = constant {value = f32[2] [1.0, 2.0]} %e: f32[2, 4] = cumsum(%x)"
        " %f: f32[] = det(%q) return %a, %b, %c, %d, %e, %f }"
    )
    roles = [role_of(n) for n in graph.nodes]
    assert roles == [Role.POINTWISE, Role.VIEW, Role.FREE, Role.NONE, Role.ALONE, Role.HOST]
    assert ops(graph)[-1] == "det"


def test_bytes_seen_as_words_are_read_where_they_lie():
    text = (
        "graph @g(%x: f32[3, 8], %w: i32[2, 2, 4]) {"
        " %a: u8[3, 8] = cast(%x) {dtype = u8} %s: i32[3, 2] = as_words(%a)"
        " %m: i32[3, 8] = "
        + product_text("%s", "%w", "3, 8", 4, ', product = "bytes"')
        + " %y: f32[3, 8] = cast(%m) {dtype = f32} return %y }"
    )
    assert fused(text) == ["cast", "as_words", "contract:matmul+cast"]


def widened(tail, result="y"):
    return matmul(
        "%q: u8[N, 8] = cast(%m) {dtype = u8}",
        "%f: f32[N, 8] = cast(%q) {dtype = f32}",
        "%y: f32[N, 8] = mul(%f, %half)",
        tail,
        result=result,
    )


def test_what_is_cheap_to_widen_is_stored_narrow():
    text = widened("%z: f32[N, 8] = softmax(%y) {axis = -1}", "z")
    assert fused(text) == ["contract:matmul+cast", "cast+constant+mul+softmax"]


def test_a_contraction_behind_it_reads_what_was_widened():
    text = widened("%z: f32[N, 4] = " + product_text("%y", "%v", "N, 4", 4), "z")
    text = text.replace("%b: f32[8]", "%b: f32[8], %v: f32[1, 8, 4]")
    assert fused(text)[0] == "contract:matmul+cast+cast+constant+mul"


def test_windows_are_stored_where_they_lie_in_the_image_and_added_to_there():
    graph = (
        "graph @g(%x: f32[24, 4], %p: f32[1, 4, 16], %r: f32[2, 2, 2, 3, 16]) {"
        ' %m: f32[24, 16] = contract(%x, %p) {axes = "m, p, l", sums = "k", left = "m, k",'
        ' right = "p, k, l", result = "m, 16*p + l", shape = [24, 16]}'
        " %v: f32[2, 2, 2, 3, 16] = reshape(%m) {shape = [2, 2, 2, 3, 16]}"
        " %t: f32[2, 2, 2, 3, 16] = transpose(%v) {perm = [0, 2, 1, 3, 4]}"
        " %y: f32[2, 2, 2, 3, 16] = add(%t, %r) return %y }"
    )
    assert len(fused(graph)) == 1
    # Who only reads, reads through a move of its own.
    alone = graph.replace(" %y: f32[2, 2, 2, 3, 16] = add(%t, %r) return %y", " return %t")
    assert fused(alone)[0] == "contract:matmul"


# --- what is repeated ------------------------------------------------------------------------


def places(rows, columns, steps, size="N"):
    """Rows that are added to what `steps` operations make of a row."""
    chain = "".join(
        f" %c{i + 1}: f32[{columns}] = {('floor', 'neg')[i % 2]}(%c{i})"
        for i in range(steps)
    )
    return (
        f"graph @g<C: 1.., N: 1..>(%x: f32[{rows}, {columns}], %c0: f32[{columns}]) {{{chain}"
        f" %y: f32[{rows}, {columns}] = add(%x, %c{steps}) return %y }}"
    )


def test_what_varies_along_one_axis_and_is_dear_is_computed_once():
    chain = "+".join(["floor", "neg"] * 4)
    assert fused(places(1000, 500, 8)) == [chain, "add"]
    assert fused(places("N", "N", 8)) == [f"{chain}+add"]
    assert fused(places("64, N", "N", 8)) == [chain, "add"]


def test_an_open_axis_that_is_not_of_images_is_one_along_which_work_is_repeated():
    chain = "+".join(["floor", "neg"] * 8)
    assert fused(places("1, C", "N, N", 16)) == [chain, "add"]
    assert fused(places("C, 1", "N, N", 16)) == [f"{chain}+add"]
    # As many images as places a side: that is one size of many.
    assert fused(places("N, 1", "N, N", 16)) == [chain, "add"]
    # Of each image, too.
    of_images = places("C, 8", "64", 16).replace("f32[64]", "f32[C, 1, 64]")
    assert fused(of_images) == [chain, "add"]


def test_what_is_cheap_or_repeated_little_is_computed_again():
    assert fused(places(1000, 500, 4)) == ["floor+neg+floor+neg+add"]
    assert fused(places(2, 500, 8)) == ["+".join([*["floor", "neg"] * 4, "add"])]


def test_what_others_read_too_does_not_make_a_chain_dear():
    text = places(1000, 500, 8).replace("return %y", "return %y, %z")
    shared = text.replace(" %y:", " %z: f32[500] = exp(%c6) %y:")
    assert fused(shared)[-1] == "floor+neg+add"


def test_what_several_picks_read_is_computed_for_each_of_them():
    def image(height):
        return (
            f"graph @g(%x: f32[64, {height}, 32], %i: i64[256], %j: i64[256]) {{"
            f" %a: f32[64, {height}, 32] = add(%x, %x) %b: f32[64, {height}, 32] = mul(%a, %x)"
            f" %c: f32[64, {height}, 32] = sub(%b, %x) %d: f32[64, {height}, 32] = add(%c, %b)"
            f" %m: f32[64, {height}, 32] = max(%d, %a) %n: f32[64, {height}, 32] = neg(%m)"
            " %p: f32[64, 256, 32] = gather(%n, %i) {axis = 1}"
            " %q: f32[64, 256, 32] = gather(%n, %j) {axis = 1}"
            " %y: f32[64, 256, 32] = add(%p, %q) return %y }"
        )

    assert len(fused(image(128))) == 2
    assert len(fused(image(160))) == 2, "both together ask for three times as many"
    assert len(fused(image(1024))) == 1
