"""Samples of `torch.testing`'s operator database, and whether the PyTorch front end gives what torch gives.

Every sample is exported, imported and computed by the oracles of the graph's ops; the result is compared with
what torch gives; machine code can stand for the oracles.  As a program it answers requests,
one a line; `tools/torch_operators.py` asks it, and `tests/conformance/frontends/test_torch_opinfo.py` runs a part
of the samples.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch._export import utils
from torch.export import exported_program
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

import tilewright
from tilewright.base.errors import TilewrightError
from tilewright.compiler.frontends.torch import border
from tilewright.compiler.frontends.torch.export import Captured, export, resolve
from tilewright.compiler.frontends.torch.load import import_program
from tilewright.compiler.frontends.torch.program import Output, Program, Ref, Role
from tilewright.compiler.frontends.torch.reader import read_exported
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph

Call = Callable[[Graph, Sequence[np.ndarray]], Sequence[np.ndarray]]
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool,
)  # fmt: skip
TOLERANCES = {
    torch.float32: (1e-5, 1.3e-5), torch.float64: (1e-7, 1e-7),
    torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1.6e-2),
}  # fmt: skip
# Their elements are whatever lay in memory: shapes are compared.
UNINITIALIZED = frozenset(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
     "new_empty_strided", "resize_", "resize_as_")
)  # fmt: skip
# Random numbers: shapes are compared; `test_random_numbers.py` counts how often they come.
RANDOM = frozenset(
    ("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial",
     "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
     "nn.functional.dropout3d", "nn.functional.fractional_max_pool2d",
     "nn.functional.fractional_max_pool3d", "pca_lowrank", "svd_lowrank", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "normal",
     "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform")
)  # fmt: skip
# Vectors whose signs are free: compared after what torch's own tests do to them.
SIGNS_ARE_FREE = frozenset(("linalg.eig", "linalg.eigh", "linalg.svd", "svd"))
# Torch's own f64 results are off by up to 5e-7 there, as values with forty digits show.
COARSE = frozenset(
    ("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1")
)


class Wrong(Exception):  # noqa: N818 - an outcome
    """A result that is not torch's."""


class Refused(Exception):  # noqa: N818 - an outcome
    """A sample that is not compiled, and who says so."""


class Operator(torch.nn.Module):
    """One call of an operator, a function of its tensors."""

    def __init__(self, info: OpInfo, sample: object) -> None:
        super().__init__()
        self.info = info
        self.leaves, self.spec = pytree.tree_flatten(
            (sample.input, sample.args, sample.kwargs)
        )
        self.finish = sample.output_process_fn_grad if info.name in SIGNS_ARE_FREE else None

    def forward(self, *tensors: torch.Tensor) -> object:
        given = iter(tensors)
        leaves = [
            next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves
        ]
        first, arguments, named = pytree.tree_unflatten(leaves, self.spec)
        found = self.info.op(first, *arguments, **named)
        found = found if self.finish is None else self.finish(found)
        return [x for x in pytree.tree_leaves(found) if isinstance(x, torch.Tensor)]


@contextlib.contextmanager
def hastened_decompositions() -> Generator[None]:
    """Let torch prepare only the composite operators that stay whole, once: it is most of the time of a sample."""
    module = exported_program
    split = module._split_decomp_table_to_cia_and_python_decomp
    kept = module._special_op_to_preserve_cia

    @functools.cache
    def valid() -> set[object]:
        return utils._collect_all_valid_cia_ops()

    def quick(decompositions: dict[object, object]) -> tuple[dict[object, object], ...]:
        module._collect_all_valid_cia_ops = lambda: set(valid())
        composite, rest = split(decompositions)
        return {op: call for op, call in composite.items() if call is kept}, rest

    collect = module._collect_all_valid_cia_ops
    module._split_decomp_table_to_cia_and_python_decomp = quick
    try:
        yield
    finally:
        module._split_decomp_table_to_cia_and_python_decomp = split
        module._collect_all_valid_cia_ops = collect


PLACES = frozenset(
    ("argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk")
)


def compare_places(
    info: OpInfo, sample: object, ours: object, theirs: torch.Tensor
) -> None:
    """Where equal elements lie is the operator's choice: what lies there is compared."""
    given = sample.kwargs.get("dim", next((a for a in sample.args if type(a) is int), -1))
    if info.name in ("kthvalue", "topk"):
        given = sample.kwargs.get("dim", sample.args[1] if len(sample.args) > 1 else -1)
    wanted = theirs
    mine = torch.from_numpy(np.ascontiguousarray(ours)).reshape(theirs.shape)
    held = sample.input
    if held.dim() != theirs.dim():
        mine, wanted = mine.unsqueeze(given), wanted.unsqueeze(given)
    picked = [torch.gather(held, given, places) for places in (mine, wanted)]
    if not torch.equal(*(torch.nan_to_num(p.double()) for p in picked)):
        raise Wrong("places of other elements")


def clone_leaves(leaves: Sequence[object]) -> list[torch.Tensor]:
    """The tensors among the leaves, copied."""
    return [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def translate(module: Operator, tensors: Sequence[torch.Tensor]) -> tuple[Program, Graph]:
    """The graph of one call.  Raises: Refused by torch or by us."""
    try:
        exported = resolve(export(Captured(module, tuple(tensors))))
    except TilewrightError as error:
        text = error.message.splitlines()[0]
        raise Refused(f"torch.export: {text.partition(': ')[2][:110]}") from error
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        raise Refused(f"torch: {type(error).__name__}: {text[0][:110]}") from error
    program = read_exported(exported, "operator")
    importer = import_program(program, "<operator>")
    if importer.problems:
        problem = importer.problems[0]
        raise Refused(
            f"{problem.op_type}: {problem.reason}" if problem.op_type else problem.reason
        )
    return program, importer.graph


def computed(
    program: Program, graph: Graph, tensors: Sequence[torch.Tensor], run: Call = evaluate
) -> list[object]:
    """What the oracles of the ops compute of a graph, or what another `run` gives."""
    users = [e for e in program.inputs if e.role is Role.USER]
    named: dict[str, np.ndarray] = {}
    for entry, tensor in zip(users, tensors, strict=True):
        named |= _arrays(entry.name, tensor)
    states = {e.name: e.array for e in program.inputs if e.role is Role.STATE}
    named |= states
    results = iter(run(graph, [named[v.name] for v in graph.inputs]))
    outputs: Sequence[Output] = program.outputs
    values = [(o, _value_of(o, results)) for o in outputs]
    return [v for output, v in values if not output.written and not output.state]


def _arrays(name: str, tensor: torch.Tensor) -> dict[str, np.ndarray]:
    """What the graph asks for of one tensor; of a complex one its two parts."""
    if not tensor.is_complex():
        return {name: border.to_array(tensor)}
    pairs = torch.view_as_real(tensor.resolve_conj())
    parts = (("real", pairs[..., 0]), ("imaginary", pairs[..., 1]))
    return {f"{name}_{part}": border.to_array(x.contiguous()) for part, x in parts}


def compiled(
    program: Program, graph: Graph, tensors: Sequence[torch.Tensor]
) -> list[object]:
    """What machine code gives instead of the oracles."""

    def call(graph: Graph, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return list(tilewright.compile(graph, opt_level=2).session.executor(*arrays))

    return computed(program, graph, tensors, call)


def _value_of(output: Output, results: Iterator[object]) -> object:
    """One result; the parts of a complex one along a last axis."""
    if not isinstance(output.value, Ref):
        return output.value
    if output.is_complex:
        return np.stack([next(results), next(results)], -1)
    return next(results)


def eager(module: Operator, leaves: Sequence[object]) -> list[torch.Tensor]:
    """What torch gives.  Raises: Refused where an operand's memory is asked for beyond its elements."""
    with torch.no_grad():
        try:
            return module(*clone_leaves(leaves))
        except RuntimeError as error:
            raise Refused(f"torch: {str(error).splitlines()[0][:110]}") from error


def check(info: OpInfo, sample: object, *, run: object = computed) -> None:
    """Compare one sample.  Raises: Wrong, Refused."""
    module = Operator(info, sample).eval()
    leaves = module.leaves
    wanted = eager(module, leaves)
    tensors = clone_leaves(leaves)
    program, graph = translate(module, tensors)
    try:
        found = run(program, graph, tensors)
    except TilewrightError as error:
        raise Wrong(f"evaluation: {error.message}") from error
    exact = _Exact(module, leaves)
    for position, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        is_place = info.name in PLACES and theirs.dtype == torch.int64
        if is_place and (position == 1 or info.name == "argsort"):
            compare_places(info, sample, ours, theirs)
        else:
            compare(
                info,
                ours,
                theirs,
                functools.partial(exact, position),
                by_shape=_is_drawn(info, sample),
            )


def _is_drawn(info: OpInfo, sample: object) -> bool:
    """Whether random numbers decide."""
    of_heads = info.name == "nn.functional.multi_head_attention_forward"
    dropped = sample.args[9] if of_heads else sample.kwargs.get("dropout_p")
    return info.name in RANDOM or bool(dropped)


def _parts(x: torch.Tensor) -> torch.Tensor:
    """The parts of complex numbers along a last axis."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def _widened(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in f64, whole ones as they are."""
    if x.is_complex():
        return x.to(torch.complex128)
    return x.double() if x.is_floating_point() else x


class _Exact:
    """What torch gives for the same operands in f64, where sums of halves are asked about."""

    def __init__(self, module: Operator, leaves: Sequence[object]) -> None:
        self.module, self.leaves = module, leaves

    def __call__(self, position: int) -> np.ndarray | None:
        wide = [_widened(t) for t in clone_leaves(self.leaves)]
        try:
            with torch.no_grad():
                return _parts(self.module(*wide)[position]).double().numpy()
        except Exception:
            return None


def compare(
    info: OpInfo,
    ours: object,
    theirs: torch.Tensor,
    exact: Callable[[], np.ndarray | None],
    *,
    by_shape: bool,
) -> None:
    """Raise Wrong for a result that is off: farther than the tolerance from torch's, and than torch from the exact one."""
    is_complex, theirs = theirs.is_complex(), _parts(theirs)
    array = border.to_array(theirs)
    mine = np.asarray(ours)
    if mine.shape != array.shape or mine.dtype != array.dtype:
        raise Wrong(f"{mine.dtype}{mine.shape}, torch {array.dtype}{array.shape}")
    if by_shape or info.name in UNINITIALIZED:
        return
    relative, absolute = TOLERANCES.get(theirs.dtype, (0, 0))
    if info.name in COARSE:
        relative, absolute = max(relative, 1e-5), max(absolute, 1e-6)
    if not theirs.dtype.is_floating_point:
        ok = np.asarray(mine == array)
    else:
        left, right = mine.astype(np.float64), array.astype(np.float64)
        ok = np.isclose(left, right, rtol=relative, atol=absolute, equal_nan=True)
        if is_complex:  # as far off as the whole number, as in torch's own tests
            whole = np.linalg.norm(right, axis=-1, keepdims=True)
            ok |= np.isfinite(whole) & (abs(left - right) <= absolute + relative * whole)
        if not np.all(ok) and theirs.dtype is not torch.float64:
            wide = exact()
            if wide is not None and wide.shape == left.shape:
                ok |= _is_nearer(left, right, wide)
                ok |= mine == wide.astype(mine.dtype)
    if not np.all(ok):
        place = tuple(np.argwhere(~np.atleast_1d(ok))[0])
        first = np.atleast_1d(mine)[place], np.atleast_1d(array)[place]
        at = [int(i) for i in place]
        raise Wrong(
            f"{first[0]} at {at}, torch {first[1]} ({int((~ok).sum())} of {ok.size})"
        )


def _is_nearer(ours: np.ndarray, theirs: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Whether we are as near to what is exact as torch is, which rounds sums of halves on the way."""
    with np.errstate(all="ignore"):
        mine, other = np.abs(ours - exact), np.abs(theirs - exact)
    return (mine <= other) | (np.isfinite(ours) & ~np.isfinite(theirs) & np.isfinite(exact))


def samples(info: OpInfo, dtype: torch.dtype, most: int = 0) -> Iterator[object]:
    """Samples in an order without order, so that the first ones are of all kinds; the very first stays it."""
    yield from in_order(info, dtype)[: most or None]


def in_order(info: OpInfo, dtype: torch.dtype) -> list[object]:
    """All samples, the same ones in the same order in every process."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - torch's database draws from it
    random.seed(0)
    first, *others = list(info.sample_inputs("cpu", dtype, requires_grad=False)) or [None]
    random.Random(0).shuffle(others)
    return [first, *others]


def outcome_of(info: OpInfo, sample: object, run: object = computed) -> tuple[str, str]:
    """What became of one sample, and why."""
    try:
        check(info, sample, run=run)
    except Refused as error:
        return "refused", str(error)
    except Wrong as error:
        return "wrong", f"{error} :: {str(sample)[:300]}"
    except Exception as error:
        return (
            "crashed",
            f"{type(error).__name__}: {str(error)[:200]} :: {str(sample)[:300]}",
        )
    return "right", ""


def full_name(info: OpInfo) -> str:
    """The name of an operator with its variant."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def word_of(dtype: torch.dtype) -> str:
    """The name of an element type."""
    return str(dtype).removeprefix("torch.")


def answer(infos: dict[str, OpInfo], request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Lines that answer one request; `tools/torch_operators.py` says what they mean."""
    if "operator" not in request:
        yield {
            "version": torch.__version__.partition("+")[0],
            "operators": {
                name: [word_of(dtype) for dtype in DTYPES if dtype in info.dtypes]
                for name, info in infos.items()
            },
        }
        return
    info, dtype = infos[request["operator"]], getattr(torch, request["dtype"])
    found = in_order(info, dtype)
    yield {"total": len(found)}
    begin = time.monotonic()
    run = compiled if request["machine_code"] else computed
    for sample in found[request["first"] : request["most"] or None]:
        if time.monotonic() - begin > request["seconds"]:
            break
        outcome, text = outcome_of(info, sample, run)
        yield {"outcome": outcome, "text": text}


def main() -> None:
    """Answer requests, JSON in lines, until there are no more; an empty line ends an answer."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what torch prints is no answer
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # What the jiterator compiles runs on GPUs alone.
    infos = {full_name(i): i for i in op_db if not i.name.startswith("jiterator")}
    with hastened_decompositions():
        for request in sys.stdin:
            for line in answer(infos, json.loads(request)):
                print(json.dumps(line), file=lines, flush=True)
            print(file=lines, flush=True)


if __name__ == "__main__":
    main()
