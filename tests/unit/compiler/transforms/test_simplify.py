from fakes.graphs import assert_becomes
from tilewright.compiler.transforms import Simplify


def test_arithmetic_and_movement_help_each_other():
    assert_becomes(
        [Simplify()],
        "graph @g<N: 1..>(%x: f32[N, 4]) { %one: f32[] = constant {value = f32[] [1.0]}"
        " %a: f32[4, N] = transpose(%x) {perm = [1, 0]} %b: f32[4, N] = mul(%one, %a)"
        " %c: f32[N, 4] = transpose(%b) {perm = [1, 0]} %d: f32[N, 4] = identity(%c)"
        " %e: f32[N, 2, 2] = reshape(%d) {shape = [N, 2, 2]}"
        " %f: f32[N, 4] = reshape(%e) {shape = [N, 4]} return %f }",
        "graph @g<N: 1..>(%x: f32[N, 4]) { return %x }",
    )
