"""Attention over shared heads and a cache, beside onnxruntime's CPU kernel where it has one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(41)
SHARED = {"num_heads": 4, "kv_num_heads": 2, "domain": "com.microsoft"}
SCALE = np.array([0.04], np.float32)
CHANNELS = RNG.uniform(0.02, 0.06, (1, 2, 1, 16)).astype(np.float32)
BY_TENSOR = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
BY_CHANNEL = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
Given = list[np.ndarray | None]


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def operands(
    rows: int,
    total: int,
    ends: Sequence[int],
    room: int | None = 6,
    dtype: type = np.float32,
) -> Given:
    """Queries, keys, values, the cache of `room` rows, the last places, and the number of keys."""
    batch = len(ends)
    past: Given = [None, None]
    if room is not None and dtype is np.uint8:
        past = [RNG.integers(0, 256, (batch, 2, room, 8)).astype(dtype) for _ in range(2)]
    elif room is not None:
        wide = 40 if dtype is np.int8 else 1
        past = [(floats(batch, 2, room, 16) * wide).astype(dtype) for _ in range(2)]
    own = [floats(batch, rows, size) for size in (64, 32, 32)]
    return [*own, *past, np.array(ends, np.int32), np.array([total], np.int32)]


def more(given: Given, **places: np.ndarray) -> Given:
    """With operands at further places, `at9=...`."""
    last = max(int(name.removeprefix("at")) for name in places)
    given = given + [None] * (last + 1 - len(given))
    for name, array in places.items():
        given[int(name.removeprefix("at"))] = array
    return given


def resident(tokens: int, capacity: int, window: int) -> int:
    """How many tokens stand in a cache of a window, by the formula of the operator's description."""
    step = capacity - window + 1
    over = max(tokens - capacity, 0)
    return tokens - step * -(-over // step)


def valid_parts(
    found: Sequence[np.ndarray], rows: Sequence[int], kept: Sequence[int]
) -> list[np.ndarray]:
    """What is specified of the results of each sequence."""
    parts: list[np.ndarray] = []
    for b, (row, keep) in enumerate(zip(rows, kept, strict=True)):
        parts += [found[0][b, :row], *(x[b, :, :keep] for x in found[1:3])]
        parts += [x[b, :, :row] for x in found[3:]]
    return parts


def check(
    arrays: Given, *, constant: bool = True, compiled: bool = False, **options: object
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    constants = (6,) if constant else ()
    outputs = 4 if options.get("qk_output") else 3
    given = {**SHARED, **options, "outputs": outputs, "constants": constants}
    model = onnx_models.one_node("GroupQueryAttention", arrays, **given)
    feeds = {
        f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants
    }
    wanted = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, feeds)
    if compiled:
        found = tilewright.compile(model)(feeds)
    else:
        found = onnx_models.run_node("GroupQueryAttention", arrays, **given)
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted]
    tokens = [int(end) + 1 for end in arrays[5]]
    kept = tokens
    if options.get("sliding_window_cache"):
        sizes = arrays[3].shape[2], int(options["local_window_size"])
        kept = [resident(t, *sizes) for t in tokens]
    count = arrays[0].shape[1]
    rows = [min(count, t) for t in tokens]
    if len(arrays) > 16 and arrays[16] is not None:
        rows = arrays[16].tolist()
    pairs = zip(
        valid_parts(found, rows, kept), valid_parts(wanted, rows, kept), strict=True
    )
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


TABLES = {"at7": floats(32, 8), "at8": floats(32, 8)}
FORMS: dict[str, tuple[Given, dict[str, object]]] = {
    "one row": (operands(1, 7, [6, 6]), {}),
    "sequences of several lengths": (operands(1, 7, [6, 3]), {}),
    "a cache with room": (operands(1, 5, [4, 2]), {}),
    "several rows behind a cache": (operands(3, 9, [8]), {"scale": 0.5}),
    "the first call with a cache": (operands(4, 4, [3, 1]), {}),
    "the first call without": (operands(4, 4, [3, 3], None), {}),
    "angles": (more(operands(2, 8, [7]), **TABLES), {"do_rotary": 1}),
    "angles of pairs": (
        more(operands(4, 4, [3, 3]), **TABLES), {"do_rotary": 1, "rotary_interleaved": 1}
    ),
    "angles of places": (
        more(operands(4, 10, [9]), **TABLES, at9=np.array([[5, 2, 7, 1]])), {"do_rotary": 1}
    ),
    "places of a first call, of which one counts": (
        more(operands(3, 3, [2, 2]), **TABLES, at9=np.array([[5, 2, 7], [1, 0, 3]])),
        {"do_rotary": 1},
    ),
    "a window": (operands(3, 9, [8]), {"local_window_size": 4}),
    "capped scores": (operands(1, 7, [6, 3]), {"softcap": 0.5}),
    "a bias": (more(operands(2, 8, [7]), at10=floats(1, 1, 2, 8)), {}),
    "both directions": (operands(3, 9, [8]), {"causal": 0}),
    "both directions, short": (operands(3, 3, [2, 1], None), {"causal": 0}),
    "smooth": (operands(1, 7, [6, 4]), {"smooth_softmax": 1}),
    "not smooth": (operands(1, 7, [6, 4]), {"smooth_softmax": -1}),
    "smooth with a bias": (
        more(operands(1, 7, [6, 4]), at10=floats(1, 4, 1, 7)), {"smooth_softmax": 1}
    ),
    "a sink": (more(operands(2, 8, [7]), at11=floats(4)), {"local_window_size": 3}),
    "a sink, a bias, a cap": (
        more(operands(1, 7, [6, 4]), at10=floats(2, 1, 1, 7), at11=floats(4)), {"softcap": 0.8}
    ),
    "rows of which some are no tokens": (
        more(operands(3, 8, [6, 3], 8), **TABLES, at16=np.array([2, 1], np.int32)),
        {"do_rotary": 1},
    ),
    "a sequence that rests": (
        more(operands(3, 9, [4, 5]), at16=np.array([0, 3], np.int32)), {}
    ),
    "packed": (
        [floats(2, 1, 128), None, None, *operands(1, 7, [6, 2])[3:]], {},
    ),
}  # fmt: skip
for _kind in (1, 2):
    FORMS |= {
        f"scores {_kind}": (operands(3, 9, [8]), {"qk_output": _kind, "local_window_size": 2}),
        f"scores {_kind}, a sink, a bias, a cap": (
            more(operands(1, 7, [6, 4]), at10=floats(2, 1, 1, 7), at11=floats(4)),
            {"softcap": 0.8, "qk_output": _kind},
        ),
    }  # fmt: skip
for _rows, _total, _ends, _room in (
    (1, 7, [6, 4], 6), (4, 4, [3, 1], 6), (3, 9, [8], 6), (1, 7, [6, 4], 12)
):  # fmt: skip
    _name = f"{_rows} rows, a cache of {_room}"
    FORMS |= {
        f"bytes: {_name}": (
            more(
                operands(_rows, _total, _ends, _room, np.int8), at12=SCALE, at13=SCALE * 2
            ),
            {**BY_TENSOR, "kv_cache_bit_width": 8},
        ),
        f"bytes by channel: {_name}": (
            more(
                operands(_rows, _total, _ends, _room, np.int8), at12=CHANNELS, at13=CHANNELS
            ),
            {**BY_CHANNEL, "kv_cache_bit_width": 8},
        ),
        f"halves of bytes: {_name}": (
            more(
                operands(_rows, _total, _ends, _room, np.uint8), at12=SCALE * 8, at13=SCALE
            ),
            {**BY_TENSOR, "kv_cache_bit_width": 4},
        ),
    }
for _room, _seen, _ends, _rows in (
    (6, 4, [9, 7], 1), (6, 6, [9, 2], 1), (5, 2, [11], 4), (5, 2, [3], 4), (5, 3, [8], 9)
):  # fmt: skip
    _total = max(_ends) + 1
    _options = {"sliding_window_cache": 1, "local_window_size": _seen}
    _name = f"{_seen} of {_room} rows up to {_ends}"
    FORMS |= {
        f"a window's cache: {_name}": (
            more(operands(_rows, _total, _ends, _room), **TABLES,
                 at10=floats(1, 1, _rows, _total)),
            {**_options, "do_rotary": 1},
        ),
        f"a window's cache of bytes: {_name}": (
            more(operands(_rows, _total, _ends, _room, np.int8), at12=SCALE, at13=SCALE),
            {**_options, **BY_TENSOR, "kv_cache_bit_width": 8},
        ),
    }  # fmt: skip


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", FORMS)
def test_attention_over_a_shared_cache_agrees_with_onnxruntime(name: str) -> None:
    arrays, options = FORMS[name]
    check(arrays, **options)


@pytest.mark.parametrize("name", ["one row", "a bias", "a sink, a bias, a cap"])
def test_the_number_of_keys_may_be_data(name: str) -> None:
    arrays, options = FORMS[name]
    check(arrays, constant=False, **options)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FORMS)
def test_what_is_compiled_agrees_too(name: str) -> None:
    arrays, options = FORMS[name]
    check(arrays, constant=name != "one row", compiled=True, **options)


KEPT: dict[str, tuple[Given, dict[str, object]]] = {
    "room to spare": (operands(1, 5, [4]), {}),
    "no room left": (operands(1, 6, [5]), {}),
    "the first call": (operands(4, 4, [3, 1]), {}),
    "a first call that fills it": (operands(6, 6, [5]), {}),
    "several rows": (operands(3, 5, [4]), {}),
    "sequences of several lengths": (operands(1, 6, [5, 2]), {}),
    "packed": ([floats(2, 1, 128), None, None, *operands(1, 6, [5, 2])[3:]], {}),
    "angles": (more(operands(1, 6, [5, 3]), **TABLES), {"do_rotary": 1}),
    "a window": (operands(1, 6, [5, 3]), {"local_window_size": 4}),
    "smooth": (operands(1, 6, [5, 3]), {"smooth_softmax": 1}),
    "capped scores": (operands(1, 6, [5, 3]), {"softcap": 0.5}),
    "a bias": (more(operands(1, 6, [5, 3]), at10=floats(1, 1, 1, 6)), {}),
    "halves": ([a.astype(np.float16) if a.dtype == np.float32 else a
                for a in operands(1, 6, [5, 3])], {}),
    "bytes": (more(operands(1, 6, [5, 3], 6, np.int8), at12=SCALE, at13=SCALE * 2),
              {**BY_TENSOR, "kv_cache_bit_width": 8}),
}  # fmt: skip


def as_stated(
    arrays: Given, rows: int | str, later: int | str, **options: object
) -> onnx.ModelProto:
    """A node whose caches have so many rows before and behind it, as the model states them; how many keys there are is data."""
    model = onnx_models.one_node(
        "GroupQueryAttention", arrays, **SHARED, outputs=3, **options
    )
    for value in (*model.graph.input, *model.graph.output):
        place = {"x3": rows, "x4": rows, "y1": later, "y2": later}.get(value.name)
        if place is not None:
            batch, heads, _, size = arrays[3].shape
            code = helper.np_dtype_to_tensor_dtype(arrays[3].dtype)
            value.CopyFrom(
                helper.make_tensor_value_info(value.name, code, [batch, heads, place, size])
            )
    return model


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", KEPT)
def test_a_cache_of_which_the_model_states_that_it_keeps_its_rows_is_written_in_place(
    name: str,
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    arrays, options = KEPT[name]
    for rows in (6, "rows"):
        model = as_stated(arrays, rows, rows, **options)
        graph = load(model)
        names = [node.op for node in graph]
        assert names.count("scatter_elements") == 2
        assert "gather_nd" not in names
        feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
        wanted = runtime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, feeds)
        found = evaluate(graph, list(feeds.values()))
        counts = [int(end) + 1 for end in arrays[5]]
        queries = [min(arrays[0].shape[1], n) for n in counts]
        loose = 20 if arrays[0].dtype == np.float16 else 1
        for one, other in zip(
            valid_parts(found, queries, counts),
            valid_parts(wanted, queries, counts),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4 * loose, atol=1e-5 * loose)


@pytest.mark.parametrize("rows", [6, "rows"])
def test_a_call_whose_keys_do_not_fit_in_such_a_cache_is_refused(rows: int | str) -> None:
    arrays = operands(1, 7, [6])
    graph = load(as_stated(arrays, rows, rows))
    with pytest.raises(InputError, match="is 7, expected at most 6"):
        evaluate(graph, arrays)


@pytest.mark.parametrize(
    ("rows", "later", "kept", "options"),
    [
        ("rows", "more", 7, {}),
        (6, 7, 7, {}),
        (6, 6, 6, {"sliding_window_cache": 1, "local_window_size": 4}),
    ],
)
def test_a_cache_that_the_model_does_not_keep_grows_or_moves_on(
    rows: int | str, later: int | str, kept: int, options: dict[str, object]
) -> None:
    arrays = operands(1, 7, [6])
    graph = load(as_stated(arrays, rows, later, **options))
    found = evaluate(graph, arrays)
    assert found[1].shape == (1, 2, kept, 16)
    assert "scatter_elements" not in [node.op for node in graph]


def test_heads_are_normalized_before_they_turn() -> None:
    """onnxruntime has no kernel of this on a CPU: the same node of operands that are normalized already."""
    arrays = more(operands(2, 8, [7]), **TABLES)
    weights = floats(16), floats(16)
    epsilons = {"q_norm_epsilon": 0.1, "qk_norm_epsilon": 0.01}
    plain = [*arrays]
    for place, (weight, epsilon) in enumerate(zip(weights, (0.1, 0.01), strict=True)):
        heads = arrays[place].reshape(1, 2, -1, 16)
        root = np.sqrt(np.mean(heads * heads, axis=-1, keepdims=True) + epsilon)
        plain[place] = (heads / root * weight).reshape(arrays[place].shape)
    options = {**SHARED, "do_rotary": 1, "outputs": 3, "constants": (6,)}
    wanted = onnx_models.run_node("GroupQueryAttention", plain, **options)
    given = more(arrays, at14=weights[0], at15=weights[1])
    found = onnx_models.run_node("GroupQueryAttention", given, **options, **epsilons)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (operands(1, 7, [6]), BY_TENSOR, "quantized 'PER_TENSOR' needs a past and a scale"),
        (operands(1, 7, [6]), {"sliding_window_cache": 1}, "needs a past and attribute"),
        (
            operands(1, 7, [6], 3),
            {"sliding_window_cache": 1, "local_window_size": 4},
            "a window of 4 tokens in a cache of 3 rows",
        ),
        (more(operands(1, 7, [6]), at14=floats(16)), {}, "are given together"),
        (
            more(operands(1, 7, [6], 6, np.uint8), at12=SCALE, at13=SCALE),
            {**BY_TENSOR, "kv_cache_bit_width": 8},
            "a cache of 8 bits in u8",
        ),
        (operands(1, 7, [6]), {"kv_num_heads": 3}, "4 heads of queries do not share 3"),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_are_refused(
    arrays: Given, options: dict[str, object], message: str
) -> None:
    given = {**SHARED, "outputs": 3, "constants": (6,), **options}
    with pytest.raises(ModelError, match=message):
        onnx_models.run_node("GroupQueryAttention", arrays, **given)
