"""ONNX models with control flow and sizes that data decides, each with calls: for every way to run a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper, parser

_HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
_RNG = np.random.default_rng(11)


@dataclass(frozen=True, eq=False)
class FlowModel:
    """A model and the inputs of some calls."""

    model: onnx.ModelProto
    calls: tuple[tuple[np.ndarray, ...], ...]


def _model(text: str, *calls: tuple[np.ndarray, ...]) -> FlowModel:
    return FlowModel(parser.parse_model(_HEAD + text), calls)


def _f(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _i(value: object) -> np.ndarray:
    return np.array(value, np.int64)


def _b(value: object) -> np.ndarray:
    return np.array(value, np.bool_)


def _loop_of_trips_from_data() -> FlowModel:
    return _model(
        """agraph (int64 n, float[A,4] x, float[4,4] w) => (float[A,4] y, float[T,A,4] ys) {
              cond = Constant<value: tensor = bool {1}>()
              y, ys = Loop (n, cond, x) <body = b (int64 i, bool c, float[A,4] s)
                => (bool c2, float[A,4] s2, float[A,4] o) {
                m = MatMul(s, w)
                s2 = Tanh(m)
                o = Add(s2, x)
                c2 = Identity(c)
              }>
            }""",
        (_i(0), _f(3, 4), _f(4, 4)),
        (_i(1), _f(3, 4), _f(4, 4)),
        (_i(70), _f(2, 4), _f(4, 4)),
    )


def _loop_until_a_condition_of_unknown_trips() -> FlowModel:
    return _model(
        """agraph (float[3] x) => (float[3] y, float[T,3] ys) {
              n = Constant<value: tensor = int64 {9223372036854775807}>()
              lim = Constant<value: tensor = float {50}>()
              cond = Constant<value: tensor = bool {1}>()
              axis = Constant<value_ints = [0]>()
              y, ys = Loop (n, cond, x) <body = b (int64 i, bool c, float[3] s)
                => (bool c2, float[3] s2, float[3] o) {
                s2 = Add(s, s)
                a = Abs(s2)
                q = ReduceMax<keepdims=0>(a, axis)
                c2 = Less(q, lim)
                o = Neg(s2)
              }>
            }""",
        (_f(3),),
        (_f(3) * 100,),
    )


def _branches_of_different_sizes_one_in_another() -> FlowModel:
    return _model(
        """agraph (bool p, bool q, float[N,8] x, float[8,8] w) => (float[M,8] y) {
              y = If (p) <
                then_branch = t () => (float[O,8] a) {
                  u = Concat<axis=0>(x, x)
                  v = MatMul(u, w)
                  a = Relu(v)
                },
                else_branch = e () => (float[K,8] b) {
                  b = If (q) <
                    then_branch = t2 () => (float[K2,8] b1) {
                      b0 = MatMul(x, w)
                      b1 = Sigmoid(b0)
                    },
                    else_branch = e2 () => (float[K3,8] b2) {
                      v1 = MatMul(x, w)
                      v2 = MatMul(v1, w)
                      b2 = Softmax<axis=1>(v2)
                    }
                  >
                }
              >
            }""",
        *((_b(p), _b(q), _f(3, 8), _f(8, 8)) for p in (0, 1) for q in (0, 1)),
    )


def _scan_backwards_along_other_axes() -> FlowModel:
    return _model(
        """agraph (float[2] s0, float[5,T,2] x) => (float[2] s, float[5,2,T] ys) {
              axis = Constant<value_ints = [0]>()
              s, ys = Scan <num_scan_inputs = 1, scan_input_axes = [1],
                scan_input_directions = [1], scan_output_axes = [-1],
                scan_output_directions = [1],
                body = b (float[2] a, float[5,2] r) => (float[2] a2, float[5,2] o) {
                  m = ReduceMax<keepdims=0>(r, axis)
                  a2 = Max(a, m)
                  o = Mul(r, a2)
                }> (s0, x)
            }""",
        (_f(2), _f(5, 300, 2)),
        (_f(2), _f(5, 1, 2)),
    )


def _loops_that_swap_and_nest() -> FlowModel:
    return _model(
        """agraph (int64 n, float[3] x, float[3] z) => (float[3] y, float[3] w) {
              cond = Constant<value: tensor = bool {1}>()
              h = Constant<value: tensor = float {0.5}>()
              y, w = Loop (n, cond, x, z) <body = b (int64 i, bool c, float[3] s, float[3] t)
                => (bool c2, float[3] s2, float[3] t2) {
                k = Loop (i, c, s) <body = bb (int64 ii, bool cc, float[3] ss)
                  => (bool cc2, float[3] ss2) {
                  e1 = Mul(ss, h)
                  ss2 = Add(e1, t)
                  cc2 = Identity(cc)
                }>
                s2 = Identity(t)
                t2 = Identity(k)
                c2 = Identity(c)
              }>
            }""",
        (_i(0), _f(3), _f(3)),
        (_i(1), _f(3), _f(3)),
        (_i(6), _f(3), _f(3)),
    )


def _sizes_inside_of_a_loop() -> FlowModel:
    return _model(
        """agraph (int64 n, float[8] x) => (float[1] y) {
              cond = Constant<value: tensor = bool {1}>()
              zero = Constant<value: tensor = float[1] {0}>()
              y = Loop (n, cond, zero) <body = b (int64 i, bool c, float[1] s)
                => (bool c2, float[1] s2) {
                low = Cast<to = 1>(i)
                big = Greater(x, low)
                few = Compress<axis = 0>(x, big)
                sum = ReduceSum<keepdims = 1>(few)
                s2 = Add(s, sum)
                c2 = Identity(c)
              }>
            }""",
        (_i(5), _f(8) * 3),
        (_i(0), _f(8)),
    )


def _places_that_are_not_zero() -> FlowModel:
    return _model(
        "agraph (float[N,5] x) => (int64[2,K] y) { y = NonZero(x) }",
        ((_f(3, 5) > 0).astype(np.float32),),
        (np.zeros((3, 5), np.float32),),
        (np.zeros((0, 5), np.float32),),
    )


def _rows_that_are_chosen() -> FlowModel:
    return _model(
        """agraph (float[N,5] x, bool[M] c) => (float[K,5] z) {
              y = Compress<axis=0>(x, c)
              z = Relu(y)
            }""",
        (_f(3, 5), _b([1, 0, 1])),
        (_f(3, 5), _b([0, 0, 0])),
        (_f(0, 5), np.zeros(0, np.bool_)),
    )


def _shape_from_data() -> FlowModel:
    return _model(
        """agraph (float[N,5] x, int64[2] c) => (float[K,J] z) {
              y = Reshape(x, c)
              z = Softmax<axis=1>(y)
            }""",
        (_f(4, 5), _i([2, -1])),
        (_f(4, 5), _i([0, -1])),
        (_f(4, 5), _i([20, 1])),
    )


def _slice_from_data() -> FlowModel:
    return _model(
        """agraph (float[N,5] x, int64[2] s, int64[2] e, int64[2] a, int64[2] t)
              => (float[K,J] z) {
              y = Slice(x, s, e, a, t)
              z = Abs(y)
            }""",
        (_f(4, 5), _i([0, 1]), _i([3, 5]), _i([0, 1]), _i([1, 2])),
        (_f(4, 5), _i([-1, 1]), _i([-9, 1000]), _i([-1, 0]), _i([-2, 1])),
    )


def _range_from_data() -> FlowModel:
    return _model(
        "agraph (int64 a, int64 b, int64 c) => (int64[K] z) { z = Range(a, b, c) }",
        (_i(0), _i(7), _i(2)),
        (_i(0), _i(-7), _i(-2)),
        (_i(0), _i(-7), _i(2)),
    )


def _as_many_as_data_says() -> FlowModel:
    return _model(
        "agraph (float[3,N] x, int64[1] k) => (float[3,K] v, int64[3,K] i) { v, i = TopK(x, k) }",
        (_f(3, 9), _i([4])),
        (_f(3, 9), _i([9])),
    )


def _axes_from_data() -> FlowModel:
    return _model(
        "agraph (float[3,4,N] x, int64[2] a) => (float[I,J,K] z) { z = ReduceL2(x, a) }",
        (_f(3, 4, 5), _i([0, 2])),
        (_f(3, 4, 5), _i([-1, -2])),
    )


def _pads_and_repeats_from_data() -> FlowModel:
    return _model(
        """agraph (float[3,N] x, int64[4] p, int64[2] r) => (float[I,K] v) {
              t = Pad(x, p)
              v = Tile(t, r)
            }""",
        (_f(3, 9), _i([1, 2, 0, 0]), _i([1, 2])),
        (_f(3, 1), _i([0, 0, 0, 3]), _i([2, 1])),
    )


def _pieces_from_data() -> FlowModel:
    return _model(
        """agraph (float[3,N] x, int64[2] k) => (float[3,A] v, float[3,B] w) {
              u, w = Split<axis=1>(x, k)
              v = Neg(u)
            }""",
        (_f(3, 9), _i([4, 5])),
        (_f(3, 9), _i([9, 0])),
    )


def _a_view_whose_sizes_are_read_behind_its_maker() -> FlowModel:
    return _model(
        """agraph (float[N,6] x, int64[2] c, int64[3] d) => (float[I,J,K] z) {
          y = Reshape(x, c)
          u = Softmax<axis=1>(y)
          z = Reshape(u, d)
        }""",
        (_f(4, 6), _i([2, -1]), _i([2, 3, -1])),
    )


def _with_weights(case: FlowModel, **weights: np.ndarray) -> FlowModel:
    """With constants that are too large for text."""
    graph = case.model.graph
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return case


def _layers_whose_weights_are_stacked() -> FlowModel:
    """Weights that are constants, and such that come with the call; the layers count from the last one."""
    case = _model(
        """agraph (float[3,40] x, float[5,40,40] v) => (float[3,40] y) {
              n = Constant<value: tensor = int64 {5}>()
              many = Constant<value: tensor = int64 {97}>()
              cond = Constant<value: tensor = bool {1}>()
              y, last = Loop (many, cond, x, n) <body = b (int64 i, bool c, float[3,40] s, int64 k)
                => (bool c2, float[3,40] s2, int64 k2) {
                one = Constant<value: tensor = int64 {1}>()
                five = Constant<value: tensor = int64 {5}>()
                i5 = Mod(i, five)
                j = Sub(i5, five)
                w0 = Gather<axis=0>(w, j)
                wt = Transpose<perm=[1, 0]>(w0)
                v0 = Gather<axis=0>(v, i5)
                g0 = Gather<axis=0>(g, j)
                p = MatMul(s, wt)
                q = Mul(p, g0)
                t = Tanh(q)
                r = MatMul(t, v0)
                odd = Greater(i5, one)
                s2 = If (odd) <
                  then_branch = t () => (float[3,40] a) { a = Add(r, s) },
                  else_branch = e () => (float[3,40] b) { b = MatMul(r, w0) }
                >
                k2 = Sub(k, one)
                c2 = Greater(five, i)
              }>
            }""",
        (_f(3, 40), _f(5, 40, 40) / 8),
        (_f(3, 40), _f(5, 40, 40) / 8),
    )
    return _with_weights(case, w=_f(5, 40, 40) / 8, g=_f(5, 40))


def _rows_of_a_loop_that_reads_sizes_and_may_end_early() -> FlowModel:
    """What its rows are is found in a body that nobody keeps, and neither are the sizes that it reads."""
    return _model(
        """agraph (int64 n, float[N] x, int64[2] c) => (float[T] ys) {
              one = Constant<value: tensor = bool {1}>()
              zero = Constant<value: tensor = int64 {0}>()
              k, ys = Loop (n, one, zero) <body = b (int64 i, bool go, int64 s)
                => (bool go2, int64 s2, float o) {
                a, b = Split<axis=0>(x, c)
                o = ReduceSum<keepdims=0>(a)
                three = Constant<value: tensor = int64 {3}>()
                go2 = Less(i, three)
                s2 = Identity(i)
              }>
            }""",
        (_i(9), _f(5), _i([2, 3])),
        (_i(0), _f(5), _i([2, 3])),
    )


def _loops_of_no_trips_with_rows_of_any_size() -> FlowModel:
    return _model(
        """agraph (float[N,3] x) => (float[T,N,3] ys, float[1] s) {
              none = Constant<value: tensor = int64 {0}>()
              one = Constant<value: tensor = float[1] {1}>()
              s, ys = Loop (none, , one) <body = b (int64 i, bool go, float[1] t)
                => (bool go2, float[1] t2, float[A,B] o) {
                o = Neg(x)
                t2 = Exp(t)
                go2 = Identity(go)
              }>
            }""",
        (_f(2, 3),),
        (_f(1, 3),),
    )


def _shapes_of_which_data_decides_a_part() -> FlowModel:
    return _model(
        """agraph (float[N,1] x, int64[1] k) => (float[N,J] y, float[N,K] z, float[N,L] w) {
              one = Constant<value_ints = [1]>()
              none = Constant<value_ints = [0, 0, 0]>()
              size = Shape<start = 0, end = 1>(x)
              wide = Concat<axis = 0>(one, k)
              y = Expand(x, wide)
              same = Concat<axis = 0>(size, k)
              z0 = Expand(x, same)
              z = Neg(z0)
              pads = Concat<axis = 0>(none, k)
              t = Pad(y, pads)
              w = Tile(t, wide)
            }""",
        (_f(3, 1), _i([4])),
        (_f(1, 1), _i([0])),
        (_f(2, 1), _i([1])),
    )


def _what_a_loop_carries_grows() -> FlowModel:
    """Tokens of a greedy decoder, two caches of keys and values that grow alike, and a count of rows."""
    return _model(
        """agraph (int64 n, int64[1,T] x, float[2,T,4] k, float[2,1,4] q)
              => (int64[1,K] y, float[2,L,4] keys, float[2,1,4] o, float[R,2,4] rows) {
              one = Constant <value = int64 {1}> ()
              cond = Constant <value = bool {1}> ()
              y, keys, values, o, rows = Loop (n, cond, x, k, k, q) <body = b
                (int64 i, bool c, int64[1,A] s, float[2,B,4] s1, float[2,C,4] s2, float[2,1,4] p)
                => (bool d, int64[1,A1] t, float[2,B1,4] t1, float[2,C1,4] t2, float[2,1,4] p2, float[2,4] r) {
                sum = ReduceSum <keepdims = 0> (s)
                seven = Constant <value = int64 {7}> ()
                mod = Mod (sum, seven)
                ten = Constant <value = int64 {-1}> ()
                d = Greater (mod, ten)
                shape = Constant <value = int64[2] {1, 1}> ()
                next = Add (mod, one)
                token = Reshape (next, shape)
                t = Concat <axis = 1> (s, token)
                t1 = Concat <axis = 1> (s1, p)
                t2 = Concat <axis = 1> (s2, q)
                turned = Transpose <perm = [0, 2, 1]> (t1)
                scores = MatMul (p, turned)
                odds = Softmax (scores)
                p2 = MatMul (odds, t2)
                minus = Constant <value = int64[1] {1}> ()
                r = Squeeze (p2, minus)
              }>
            }""",
        *(
            (_i(n), _i([list(range(t))]), _f(2, t, 4), _f(2, 1, 4))
            for n, t in ((0, 1), (1, 3), (23, 2))
        ),
    )


def _what_loops_carry_grows_and_shrinks_in_loops() -> FlowModel:
    return _model(
        """agraph (int64 n, float[N] x) => (float[K] y, float[W,2] rows) {
              zero = Constant <value = float {0.0}> ()
              y, rows = Loop (n, , x) <body = b (int64 i, bool c, float[A] s) => (bool d, float[B] t, float[2] r) {
                d = Identity (c)
                u = Loop (i, , s) <body = b2 (int64 j, bool c2, float[A2] s2) => (bool d2, float[B2] t2) {
                  d2 = Identity (c2)
                  t2 = Concat <axis = 0> (s2, x)
                }>
                two = Constant <value = int64 {2}> ()
                one = Constant <value = int64 {1}> ()
                m = Mod (i, two)
                e = Equal (m, one)
                t = If (e) <
                  then_branch = p () => (float[C1] v) {
                    g = Greater (u, zero)
                    v = Compress <axis = 0> (u, g)
                  },
                  else_branch = q () => (float[C2] w) { w = Concat <axis = 0> (s, x) }
                >
                mx = ReduceSum <keepdims = 1> (t)
                r = Concat <axis = 0> (mx, mx)
              }>
            }""",
        *((_i(n), x) for n in (0, 1, 2, 5) for x in (_f(3), np.float32([-1]))),
    )


def _what_loops_carry_changes_places() -> FlowModel:
    """One value is what the other was, one is what was there before the loop, and one is there twice."""
    return _model(
        """agraph (int64 n, float[N] x, float[2] z) => (float[K] y, float[L] y2, float[P] y3, float[Q] e) {
              y, y2, y3, y4 = Loop (n, , x, z, z, x) <body = b
                (int64 i, bool c, float[A] s, float[B] t, float[Q] w, float[D] v)
                => (bool d, float[C] s2, float[D] t2, float[R] w2, float[D] v2) {
                d = Identity (c)
                s2 = Identity (t)
                t2 = Concat <axis = 0> (s, x)
                w2 = Identity (x)
                v2 = Identity (t2)
              }>
              short = Slice (x, zero, one)
              e = Add (y4, short)
            }""".replace(
            "y, y2, y3, y4 =",
            "one = Constant <value = int64[1] {1}> () zero = Constant <value = int64[1] {0}> () y, y2, y3, y4 =",
        ),
        *((_i(n), x, _f(2)) for n in (0, 1, 4) for x in (_f(3), _f(1))),
    )


def _branches_whose_results_have_sizes_of_their_own() -> FlowModel:
    return _model(
        """agraph (bool c, float[N] x, float[3] z) => (float[K] y, int64[1,L] p, float[K] y2, float w) {
              zero = Constant <value = float {0.0}> ()
              y, p = If (c) <
                then_branch = a () => (float[A] v, int64[1,C] i) {
                  g = Greater (x, zero)
                  v = Compress <axis = 0> (x, g)
                  i = NonZero (g)
                },
                else_branch = b () => (float[3] v, int64[1,D] i) {
                  v = Identity (z)
                  r = Relu (x)
                  i = NonZero (r)
                }
              >
              y2 = Exp (y)
              w = ReduceSum <keepdims = 0> (y2)
            }""",
        *(
            (_b(c), np.float32(x), _f(3))
            for c in (True, False)
            for x in ([1, -1, 0, 2], [-1], [5])
        ),
    )


def _a_loop_over_what_a_branch_made() -> FlowModel:
    """A loop that carries, in one size, what has a size that data decides inside of a branch."""
    return _model(
        """agraph (bool c, int64 n, float[N] x) => (float[K] y) {
              zero = Constant <value = float {0.0}> ()
              p = If (c) <
                then_branch = a () => (float[A] v) {
                  g = Greater (x, zero)
                  v = Compress <axis = 0> (x, g)
                },
                else_branch = b () => (float[N] w) { w = Exp (x) }
              >
              y = Loop (n, , p) <body = d (int64 i, bool go, float[B] s) => (bool again, float[B] t) {
                again = Identity (go)
                t = Mul (s, s)
              }>
            }""",
        *(
            (_b(c), _i(n), np.float32(x))
            for c in (True, False)
            for n, x in ((0, [1, -1, 2]), (3, [-1, 0.5]), (1, [-1]))
        ),
    )


def _sizes_that_only_what_runs_compares() -> FlowModel:
    return _model(
        """agraph (bool c, int64 n, float[N] x, float[M] z) => (float[K] y, float[N] w) {
              y = If (c) <
                then_branch = a () => (float[A] p) { s = Add (x, z) p = Softmax <axis = 0> (s) },
                else_branch = b () => (float[N] q) { q = Softmax <axis = 0> (x) }
              >
              w = Loop (n, , x) <body = d (int64 i, bool go, float[N] s) => (bool again, float[N] t) {
                again = Identity (go)
                u = Add (s, z)
                t = Softmax <axis = 0> (u)
              }>
            }""",
        *(
            (_b(c), _i(n), _f(3), _f(m))
            for c, n, m in ((True, 2, 3), (False, 0, 5), (False, 1, 3))
        ),
    )


def _lists_that_loops_make() -> FlowModel:
    """A list that gets an item, or none, in each trip, and a walk over the rows of a tensor as a list."""
    return _model(
        """agraph (int64 n, float[N,3] x) => (float[K,3] y, int64 k) {
              c = Constant<value: tensor = bool {1}>()
              rows = SplitToSequence<axis = 0>(x)
              empty = SequenceEmpty<dtype = 1>()
              made = Loop(n, c, empty) <body = b (int64 i, bool go, seq(float[1,3]) q)
                => (bool on, seq(float[1,3]) q2) {
                on = Identity(go)
                count = SequenceLength(rows)
                place = Mod(i, count)
                row = SequenceAt(rows, place)
                f = Cast<to = 1>(i)
                v = Mul(row, f)
                zero = Constant<value: tensor = float {0}>()
                sum = ReduceSum<keepdims = 0>(v)
                is_kept = Greater(sum, zero)
                q2 = If(is_kept) <
                  then_branch = t () => (seq(float[1,3]) a) { a = SequenceInsert(q, v) },
                  else_branch = e () => (seq(float[1,3]) d) { d = Identity(q) }
                >
              }>
              head = Constant<value: tensor = float[1,3] {1, 2, 3}>()
              all = SequenceInsert(made, head)
              y = ConcatFromSequence<axis = 0>(all)
              k = SequenceLength(all)
            }""",
        (_i(9), _f(4, 3)),
        (_i(0), _f(1, 3)),
        (_i(40), _f(7, 3)),
    )


_MODELS = (
    _lists_that_loops_make,
    _sizes_that_only_what_runs_compares,
    _a_loop_over_what_a_branch_made,
    _what_a_loop_carries_grows,
    _what_loops_carry_grows_and_shrinks_in_loops,
    _what_loops_carry_changes_places,
    _branches_whose_results_have_sizes_of_their_own,
    _shapes_of_which_data_decides_a_part,
    _rows_of_a_loop_that_reads_sizes_and_may_end_early,
    _loops_of_no_trips_with_rows_of_any_size,
    _layers_whose_weights_are_stacked,
    _a_view_whose_sizes_are_read_behind_its_maker,
    _loop_of_trips_from_data,
    _loop_until_a_condition_of_unknown_trips,
    _branches_of_different_sizes_one_in_another,
    _scan_backwards_along_other_axes,
    _loops_that_swap_and_nest,
    _sizes_inside_of_a_loop,
    _places_that_are_not_zero,
    _rows_that_are_chosen,
    _shape_from_data,
    _slice_from_data,
    _range_from_data,
    _as_many_as_data_says,
    _axes_from_data,
    _pads_and_repeats_from_data,
    _pieces_from_data,
)


def models() -> dict[str, FlowModel]:
    """By name."""
    return {make.__name__.strip("_"): make() for make in _MODELS}
