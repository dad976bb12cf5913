"""Functions of JAX, compiled and called as the function is; without JAX, what it exported."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "stablehlo"


@dataclass
class StandIn:
    """The attributes of `jax.export.Exported` that are read."""

    mlir_module_serialized: bytes
    fun_name: str = "layer"
    in_tree: Any = None
    out_tree: Any = None
    out_avals: tuple[Any, ...] = ()
    module_kept_var_idx: tuple[int, ...] = ()


def test_what_jax_exported_compiles_without_jax() -> None:
    held = np.load(GOLDEN / "layer.npz")
    exported = StandIn((GOLDEN / "layer-1.17.0.mlirbc").read_bytes())
    assert tw.coverage(exported).supported
    found = tw.compile(exported)(*(held[f"in{i}"] for i in range(3)))
    np.testing.assert_allclose(found.astype(np.float32), held["out0"], rtol=2e-2)


def test_nothing_of_jax_is_imported_before_it_is_asked_for() -> None:
    code = "import sys, tilewright as tw; tw.from_jax; print('jax' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_without_jax_the_hint_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(tw.UserError, match="jax cannot be imported"):
        tw.from_jax(lambda x: x, np.ones(3))


@pytest.mark.nightly
def test_a_function_keeps_its_structure() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def function(pair: dict[str, Any], *, scale: Any, unused: Any) -> tuple[Any, list[Any]]:
        del unused
        return pair["x"] * scale, [jnp.sum(pair["y"]), pair["y"] + 1j]

    x, y = np.float32([1, 2, 3]), np.float32([[1], [2]])
    given = {"x": x, "y": jnp.asarray(y)}
    compiled = tw.from_jax(function, given, scale=np.float32(2), unused=np.float32(0))
    found = compiled(given, scale=np.float32(3), unused=np.float32(1))
    expected = function(given, scale=np.float32(3), unused=np.float32(1))
    leaves = jax.tree_util.tree_leaves
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert isinstance(one, jax.Array)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)
    with pytest.raises(tw.InputError, match="structure"):
        compiled(x)


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [2, 400])
def test_results_of_every_kind_are_arrays_of_jax(rows: int) -> None:
    """Small ones are copied at once; beside a large one, which stays in its memory, each by itself."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def function(x: Any) -> Any:
        names = ("bfloat16", "int4", "float8_e4m3fn", "float8_e3m4")
        narrow = [x.astype(name) for name in names]
        kinds = {"complex": x[:1] + 1j, "wide": x + 1j, "key": jax.random.key(3)}
        return x * 2, kinds, narrow, (x[0, 0] > 0, x[:0], jnp.sum(x))

    x = np.random.default_rng(0).normal(size=(rows, 200)).astype(np.float32)
    compiled = tw.from_jax(function, x)
    found, expected = compiled(x), jax.jit(function)(x)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    kept = np.array(found[0])
    compiled(x + 1)  # takes no memory that a result holds
    np.testing.assert_array_equal(found[0], kept)
    leaves = jax.tree_util.tree_leaves
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert isinstance(one, jax.Array)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = map(jax.random.key_data, (one, other))
        close = np.asarray(one).astype(np.complex64), np.asarray(other).astype(np.complex64)
        np.testing.assert_allclose(*close, rtol=1e-5, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "given",
    [
        2.5, 3, True, 1 + 2j, np.complex64(3j), np.float64(2.5), np.ones(3), np.arange(3),
        np.arange(3, dtype=np.uint64), np.full((2, 1), 1j), np.ones((2, 3), np.complex64).T,
    ],
    ids=lambda given: f"{type(given).__name__}-{np.asarray(given).dtype}{np.shape(given)}",
)  # fmt: skip
def test_arguments_are_what_jax_makes_of_them(given: Any) -> None:
    """Numbers of Python, arrays of 64 bits where JAX computes with 32, complex numbers without an axis."""
    jax = pytest.importorskip("jax")

    def function(pair: tuple[Any, Any]) -> Any:
        return pair[0] * 2, pair[1] + pair[0]

    pair = (given, given)
    compiled = tw.from_jax(function, pair)
    for _ in range(2):
        for one, other in zip(compiled(pair), jax.jit(function)(pair), strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)


@pytest.mark.nightly
def test_arguments_that_jax_would_trace_for_again_are_refused() -> None:
    jax = pytest.importorskip("jax")
    compiled = tw.from_jax(lambda x, n: (x * 2, n + 1), np.arange(3, dtype=np.int32), 3)
    x = jax.numpy.arange(3)
    assert compiled(x, 4)[1] == 5
    refused = (x.astype("uint32"), 3), (x * 1.0, 3), (x, 2.0), (x, 2**40), (x[:2], 3)
    for pair in refused:
        with pytest.raises(tw.InputError, match="expected i32"):
            compiled(*pair)


CASES = {
    "softmax": lambda jax: lambda x: jax.nn.softmax(x, axis=-1),
    "gelu": lambda jax: jax.nn.gelu,
    "norm": lambda jax: lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-5),
    "sort": lambda jax: lambda x: jax.numpy.sort(x, axis=0),
    "top_k": lambda jax: lambda x: jax.lax.top_k(x, 3),
    "cumsum": lambda jax: lambda x: jax.numpy.cumsum(x, axis=1),
    "fft": lambda jax: lambda x: abs(jax.numpy.fft.fft(x)),
    "gather": lambda jax: lambda x: x[jax.numpy.array([2, 0, 3])],
    "scatter": lambda jax: lambda x: x.at[jax.numpy.array([0, 2, 0])].add(1.0),
    "one_hot": lambda jax: lambda x: jax.nn.one_hot(jax.numpy.argmax(x, -1), 6),
    "erf_inv": lambda jax: lambda x: jax.scipy.special.erfinv(jax.numpy.tanh(x)),
    "lgamma": lambda jax: lambda x: jax.scipy.special.gammaln(abs(x) + 0.1),
    "dynamic_slice": lambda jax: lambda x: jax.lax.dynamic_slice(x, (jax.numpy.int32(x[0, 0]), 1), (2, 3)),
    "random": lambda jax: lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
    "cholesky": lambda jax: lambda x: x[:, :4] @ x[:, :4].T + jax.numpy.eye(4),
    "loop": lambda jax: lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y * 0.5 + i, x),
    "scan": lambda jax: lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), x[0], x),
    "grad": lambda jax: jax.grad(lambda x: jax.numpy.sum(jax.numpy.tanh(x @ x.T))),
    "vmap": lambda jax: jax.vmap(lambda r: jax.numpy.convolve(r, r[:3])),
    "conv": lambda jax: lambda x: jax.lax.conv_general_dilated(
        x[None, None], x[:3, :3][None, None], (1, 1), "SAME"),
    "einsum": lambda jax: lambda x: jax.numpy.einsum("ij,kj->ik", x, x),
    "bf16": lambda jax: lambda x: (x.astype("bfloat16") @ x.T.astype("bfloat16")).astype("float32"),
}  # fmt: skip


LINEAR_ALGEBRA = {
    "cholesky": lambda n: lambda x: n.linalg.cholesky(x @ x.mT + n.eye(5)),
    "solve": lambda n: lambda x: n.linalg.solve(x + 4 * n.eye(5), x[..., :2]),
    "inverse": lambda n: lambda x: n.linalg.inv(x + 4 * n.eye(5)),
    "determinant": lambda n: n.linalg.det,
    "qr": lambda n: lambda x: n.abs(n.linalg.qr(x)[1]),
    "svd": lambda n: lambda x: n.linalg.svd(x, compute_uv=False),
    "pseudo-inverse": lambda n: lambda x: n.linalg.pinv(x[..., :3]),
    "eigh": lambda n: lambda x: n.linalg.eigh(x + x.mT)[0],
    "eig": lambda n: lambda x: n.sort(n.abs(n.linalg.eigvals(x)), axis=-1),
}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*has no kernel")
@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 5)])
def test_factors_of_matrices_are_those_of_jax(name: str, shape: tuple[int, ...]) -> None:
    jax = pytest.importorskip("jax")
    function = LINEAR_ALGEBRA[name](jax.numpy)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found = tw.from_jax(function, x)(x)
    np.testing.assert_allclose(found, jax.jit(function)(x), rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_functions_give_what_jax_gives(name: str) -> None:
    jax = pytest.importorskip("jax")
    function = CASES[name](jax)
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    found = tw.from_jax(function, x)(x)
    leaves = jax.tree_util.tree_leaves
    for one, other in zip(leaves(found), leaves(jax.jit(function)(x)), strict=True):
        assert one.dtype == other.dtype
        tolerance = 1e-2 if name == "bf16" else 2e-5
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


SYMBOLIC = {
    "softmax": (("b, 4",), lambda jax: lambda x: jax.nn.softmax(x, axis=0)),
    "two arguments": (("b, n", "n, b"), lambda jax: lambda x, y: x @ y + 1),
    "reshape": (("b, 4, n",), lambda jax: lambda x: x.reshape(-1, x.shape[0] * 2)),
    "floor": (("2*b, 3",), lambda jax: lambda x: x[: x.shape[0] // 2] * x.shape[0]),
    "cumsum": (("b, n",), lambda jax: lambda x: jax.numpy.cumsum(x, axis=0)),
    "argmax": (("b, n",), lambda jax: lambda x: jax.numpy.argmax(x, axis=0)),
    "sort": (("b, n",), lambda jax: lambda x: jax.numpy.sort(x, axis=1)),
    "scan": (("b, 4",), lambda jax: lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), x[0], x)),
    "random": (("b, n",), lambda jax: lambda x: x + jax.random.normal(jax.random.key(3), x.shape)),
    "pool": (("b, n",), lambda jax: lambda x: jax.lax.reduce_window(
        x, -jax.numpy.inf, jax.lax.max, (1, 3), (1, 2), "SAME")),
    "conv": (("b, 2, n, n",), lambda jax: lambda x: jax.lax.conv_general_dilated(
        x, np.ones((3, 2, 2, 2), np.float32), (1, 1), "SAME")),
    "cholesky": (("b, 4, 4",), lambda jax: lambda x: jax.numpy.linalg.cholesky(x @ x.mT + jax.numpy.eye(4))),
    "attention": (("b, n, 2, 4",), lambda jax: lambda x: jax.nn.dot_product_attention(x, x, x, is_causal=True)),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_may_be_symbols(name: str) -> None:
    jax = pytest.importorskip("jax")
    export = pytest.importorskip("jax.export")
    texts, make = SYMBOLIC[name]
    function, scope = make(jax), export.SymbolicScope()
    types = [
        jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), np.float32)
        for text in texts
    ]
    compiled = tw.from_jax(function, *types)
    leaves = jax.tree_util.tree_leaves
    for b, n in ((1, 1), (3, 5), (6, 2)):
        shapes = [
            tuple(eval(part, {"b": b, "n": n}) for part in text.split(","))
            for text in texts
        ]
        given = [np.random.default_rng(b).normal(size=s).astype(np.float32) for s in shapes]
        expected = leaves(jax.jit(function)(*given))
        for one, other in zip(leaves(compiled(*given)), expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_sizes_that_differ_where_they_are_one_are_refused() -> None:
    jax = pytest.importorskip("jax")
    export = pytest.importorskip("jax.export")
    type_ = jax.ShapeDtypeStruct(export.symbolic_shape("b, b"), np.float32)
    compiled = tw.from_jax(lambda x: x + x.T, type_)
    assert compiled(np.ones((3, 3), np.float32)).shape == (3, 3)
    with pytest.raises(tw.InputError):
        compiled(np.ones((3, 2), np.float32))


@pytest.mark.nightly
def test_a_flax_mixer_gives_what_flax_gives() -> None:
    jax, linen = pytest.importorskip("jax"), pytest.importorskip("flax.linen")

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            y = linen.LayerNorm()(x).swapaxes(1, 2)
            y = linen.Dense(y.shape[-1])(linen.gelu(linen.Dense(12)(y)))
            x = x + y.swapaxes(1, 2)
            y = linen.Dense(24)(linen.LayerNorm()(x))
            return x + linen.Dense(x.shape[-1])(linen.gelu(y))

    class Mixer(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.Conv(16, (4, 4), strides=(4, 4))(x)
            x = x.reshape(x.shape[0], -1, x.shape[-1])
            for _ in range(2):
                x = Block()(x)
            return linen.Dense(10)(linen.LayerNorm()(x).mean(1))

    model, x = (
        Mixer(),
        np.random.default_rng(1).normal(size=(2, 16, 16, 3)).astype(np.float32),
    )
    weights = model.init(jax.random.key(0), x)
    found = tw.from_jax(model.apply, weights, x)(weights, x)
    np.testing.assert_allclose(found, model.apply(weights, x), rtol=1e-4, atol=1e-5)


def transformer(jax: Any, layers: int) -> tuple[Any, dict[str, Any]]:
    """A decoder whose layers are a scan over stacked weights."""
    jnp, choose = jax.numpy, np.random.default_rng(3)
    width, heads = 16, 2

    def layer(x: Any, w: dict[str, Any]) -> tuple[Any, None]:
        y = (x - x.mean(-1, keepdims=True)) * w["norm"]
        q, k, v = jnp.split(y @ w["qkv"], 3, -1)
        q, k, v = (t.reshape(*t.shape[:-1], heads, -1).swapaxes(-2, -3) for t in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) / 8**0.5
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jax.nn.softmax(jnp.where(seen, scores, -1e9))
        x = x + (scores @ v).swapaxes(-2, -3).reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"], None

    shapes = {"norm": (width,), "qkv": (width, 3 * width), "out": (width, width),
              "up": (width, 32), "down": (32, width)}  # fmt: skip
    weights = {
        name: (0.3 * choose.normal(size=(layers, *shape))).astype(np.float32)
        for name, shape in shapes.items()
    }
    return lambda w, x: jax.lax.scan(layer, x, w)[0], weights


@pytest.mark.nightly
def test_a_transformer_that_scans_its_layers_is_a_loop() -> None:
    jax = pytest.importorskip("jax")
    function, weights = transformer(jax, 24)
    x = np.random.default_rng(4).normal(size=(2, 5, 16)).astype(np.float32)
    compiled = tw.from_jax(function, weights, x)
    np.testing.assert_allclose(
        compiled(weights, x), function(weights, x), rtol=2e-4, atol=1e-4
    )
    one, _ = transformer(jax, 1)
    single = tw.from_jax(one, {n: w[:1] for n, w in weights.items()}, x)
    count = len(compiled.model.compiled.kernels[0])
    assert count <= 3 * len(single.model.compiled.kernels[0])


@pytest.mark.nightly
def test_a_loop_whose_trips_data_decides_ends_as_in_jax() -> None:
    jax = pytest.importorskip("jax")

    def function(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: abs(c).sum() > 1, lambda c: c * 0.7 - 0.01, x)

    x = np.float32([3, -4, 5])
    compiled = tw.from_jax(function, x)
    for start in (x, x * 0, x * 100):
        np.testing.assert_allclose(compiled(start), function(start), rtol=1e-5)


@pytest.mark.nightly
def test_an_equinox_network_gives_what_equinox_gives() -> None:
    jax, equinox = pytest.importorskip("jax"), pytest.importorskip("equinox")
    network = equinox.nn.MLP(5, 3, 16, 2, key=jax.random.key(0))
    x = np.random.default_rng(2).normal(size=(7, 5)).astype(np.float32)
    function = jax.vmap(network)
    np.testing.assert_allclose(
        tw.from_jax(function, x)(x), function(x), rtol=1e-5, atol=1e-6
    )


@pytest.mark.nightly
def test_an_equinox_network_itself_is_a_function() -> None:
    """JAX asks functions for a hash, which modules with arrays as fields do not have."""
    jax, equinox = pytest.importorskip("jax"), pytest.importorskip("equinox")
    network = equinox.nn.MLP(5, 3, 16, 2, key=jax.random.key(0))
    x = np.random.default_rng(2).normal(size=5).astype(np.float32)
    compiled = tw.from_jax(network, x)
    np.testing.assert_allclose(compiled(x), network(x), rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_random_numbers_are_arguments_and_results(kind: str) -> None:
    jax = pytest.importorskip("jax")

    def function(key: Any) -> tuple[Any, Any]:
        first, second = jax.random.split(key)
        return first, jax.random.uniform(second, (3,))

    key = jax.random.key(3, impl=kind)
    found, numbers = tw.from_jax(function, key)(key)
    expected, wanted = jax.jit(function)(key)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(*map(jax.random.key_data, (found, expected)))
    np.testing.assert_allclose(numbers, wanted, rtol=1e-6)


@pytest.mark.nightly
def test_a_function_that_places_its_values_runs_on_one_machine() -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("a",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    x = np.arange(6, dtype=np.float32)
    found = tw.from_jax(lambda x: jax.lax.with_sharding_constraint(x * 2, place), x)(x)
    np.testing.assert_array_equal(found, x * 2)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*has no kernel")
def test_factors_that_jax_promises_nothing_about_are_compiled() -> None:
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)

    def function(x: Any) -> tuple[Any, ...]:
        q, r, order = jax.scipy.linalg.qr(x, pivoting=True, mode="economic")
        t, z = jax.scipy.linalg.schur(x[:4])
        return q @ r - x[:, order], z @ t @ z.T - x[:4]

    for rest in tw.from_jax(function, x)(x):
        np.testing.assert_allclose(rest, np.zeros_like(rest), atol=1e-5)


REFUSED = {
    "print": (
        lambda jax: lambda x: [jax.debug.print("{x}", x=x), x][1],
        "calls of Python are not supported",
    ),
    "callback": (
        lambda jax: lambda x: jax.pure_callback(np.sin, x, x),
        "calls of Python are not supported",
    ),
    "foreign": (
        lambda jax: lambda x: jax.ffi.ffi_call("my_target", x)(x),
        "custom call 'my_target' is not supported",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", REFUSED)
def test_what_jax_cannot_export_is_refused_by_name(name: str) -> None:
    jax = pytest.importorskip("jax")
    make, said = REFUSED[name]
    with pytest.raises(tw.ModelError, match=said):
        tw.from_jax(make(jax), jax.numpy.ones(3))


@pytest.mark.nightly
def test_what_a_function_raises_is_not_changed() -> None:
    jax = pytest.importorskip("jax")

    def function(x: object) -> object:
        raise ValueError("not here")

    with pytest.raises(ValueError, match="not here") as caught:
        tw.from_jax(jax.jit(function), jax.numpy.ones(3))
    assert not isinstance(caught.value, tw.UserError)


@pytest.mark.nightly
def test_sparse_matrices_are_multiplied_as_jax_does() -> None:
    sparse = pytest.importorskip("jax.experimental.sparse")
    x = np.where(np.eye(4, 5, 1) > 0, 3, np.eye(4, 5)).astype(np.float32)

    def function(a: Any, b: Any) -> Any:
        return sparse.BCSR.fromdense(a, nse=10) @ b

    b = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_allclose(tw.from_jax(function, x, b)(x, b), x @ b)
    np.testing.assert_allclose(tw.from_jax(function, x, b[:, 0])(x, b[:, 0]), x @ b[:, 0])
