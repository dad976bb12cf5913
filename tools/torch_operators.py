"""Runs the samples of `torch.testing`'s operator database through the PyTorch front end.

    python tools/torch_operators.py [NAME ...] [--samples N] [--results FILE] [--page FILE]

Every sample is exported, imported and computed by the oracles of the graph's ops; the result is compared with
what torch gives.  Nothing is compiled: this is about what operators mean.  `--page` writes the page of results;
`tests/conformance/frontends/test_torch_opinfo.py` runs a part of it and compiles some.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch._export import utils
from torch.export import exported_program
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from tilewright.base.errors import TilewrightError
from tilewright.compiler.frontends.torch import border
from tilewright.compiler.frontends.torch.export import Captured, export, resolve
from tilewright.compiler.frontends.torch.load import import_program
from tilewright.compiler.frontends.torch.program import Output, Program, Ref, Role
from tilewright.compiler.frontends.torch.reader import read_exported
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph

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


@dataclass
class Tally:
    """What became of the samples of one operator and element type."""

    right: int = 0
    refused: int = 0
    wrong: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def hasten_decompositions() -> None:
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

    module._split_decomp_table_to_cia_and_python_decomp = quick


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
    program: Program, graph: Graph, tensors: Sequence[torch.Tensor]
) -> list[object]:
    """What the oracles of the ops compute of a graph."""
    arrays = {
        f"{e.name}": t
        for e, t in zip(
            [e for e in program.inputs if e.role is Role.USER], tensors, strict=True
        )
    }
    named = {name: border.to_array(tensor) for name, tensor in arrays.items()}
    states = {e.name: e.array for e in program.inputs if e.role is Role.STATE}
    named |= states
    results = iter(evaluate(graph, [named[v.name] for v in graph.inputs]))
    outputs: Sequence[Output] = program.outputs
    values = [(o, _value_of(o, results)) for o in outputs]
    return [v for output, v in values if not output.written and not output.state]


def _value_of(output: Output, results: Iterator[object]) -> object:
    """One result; the parts of a complex one along a last axis."""
    if not isinstance(output.value, Ref):
        return output.value
    if output.is_complex:
        return np.stack([next(results), next(results)], -1)
    return next(results)


def check(info: OpInfo, sample: object, *, run: object = computed) -> None:
    """Compare one sample.  Raises: Wrong, Refused."""
    module = Operator(info, sample).eval()
    leaves = module.leaves
    with torch.no_grad():
        wanted = module(*clone_leaves(leaves))
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
            compare(info, ours, theirs, functools.partial(exact, position))


def _parts(x: torch.Tensor) -> torch.Tensor:
    """The parts of complex numbers along a last axis."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


class _Exact:
    """What torch gives for the same operands in f64, where sums of halves are asked about."""

    def __init__(self, module: Operator, leaves: Sequence[object]) -> None:
        self.module, self.leaves = module, leaves

    def __call__(self, position: int) -> np.ndarray | None:
        wide = [
            t.double() if t.is_floating_point() else t for t in clone_leaves(self.leaves)
        ]
        try:
            with torch.no_grad():
                return _parts(self.module(*wide)[position]).double().numpy()
        except Exception:
            return None


def compare(
    info: OpInfo, ours: object, theirs: torch.Tensor, exact: Callable[[], np.ndarray | None]
) -> None:
    """Raise Wrong for a result that is off: farther than the tolerance from torch's, and than torch from the exact one."""
    theirs = _parts(theirs)
    array = border.to_array(theirs)
    mine = np.asarray(ours)
    if mine.shape != array.shape or mine.dtype != array.dtype:
        raise Wrong(f"{mine.dtype}{mine.shape}, torch {array.dtype}{array.shape}")
    if info.name in UNINITIALIZED or info.name in RANDOM:
        return
    relative, absolute = TOLERANCES.get(theirs.dtype, (0, 0))
    if info.name in COARSE:
        relative, absolute = max(relative, 1e-5), max(absolute, 1e-6)
    if not theirs.dtype.is_floating_point:
        ok = np.asarray(mine == array)
    else:
        left, right = mine.astype(np.float64), array.astype(np.float64)
        ok = np.isclose(left, right, rtol=relative, atol=absolute, equal_nan=True)
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


def samples(info: OpInfo, dtype: torch.dtype, most: int) -> Iterator[object]:
    """Samples spread evenly over all there are."""
    torch.manual_seed(0)
    found = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    step = max(1, -(-len(found) // most)) if most else 1
    yield from found[::step]


def sweep(info: OpInfo, dtype: torch.dtype, most: int) -> Tally:
    """Run the samples of one operator and element type."""
    tally = Tally()
    for sample in samples(info, dtype, most):
        try:
            check(info, sample)
        except Refused as error:
            tally.refused += 1
            text = str(error)
            tally.reasons[text] = tally.reasons.get(text, 0) + 1
        except Wrong as error:
            tally.wrong += 1
            tally.failures.append(f"{error} :: {str(sample)[:300]}")
        else:
            tally.right += 1
    return tally


def full_name(info: OpInfo) -> str:
    """The name of an operator with its variant."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def run(
    names: Sequence[str], most: int, results: Path | None
) -> dict[str, dict[str, Tally]]:
    """Run operators one after the other and print what became of them."""
    found: dict[str, dict[str, Tally]] = {}
    for info in op_db:
        name = full_name(info)
        if names and name not in names and info.name not in names:
            continue
        start = time.perf_counter()
        for dtype in DTYPES:
            if dtype not in info.dtypes:
                continue
            key = str(dtype).removeprefix("torch.")
            try:
                found.setdefault(name, {})[key] = sweep(info, dtype, most)
            except Exception as error:
                print(
                    f"{name} {key}: suite error {type(error).__name__}: {str(error)[:300]}",
                    flush=True,
                )
        tallies = found.get(name, {})
        wrong = sum(t.wrong for t in tallies.values())
        refused = sum(t.refused for t in tallies.values())
        right = sum(t.right for t in tallies.values())
        print(
            f"{name:<44} right {right:>4} refused {refused:>4} wrong {wrong:>4}  {time.perf_counter() - start:.1f}s",
            flush=True,
        )
        for key, tally in tallies.items():
            for text in tally.failures[:2]:
                print(f"    WRONG {key}: {text[:400]}", flush=True)
            for text, count in list(tally.reasons.items())[:2]:
                print(f"    refused {key} x{count}: {text[:200]}", flush=True)
        if results is not None:
            plain = {n: {k: vars(t) for k, t in by.items()} for n, by in found.items()}
            results.write_text(json.dumps(plain, indent=1))
    return found


def page(found: dict[str, dict[str, dict[str, object]]], most: int) -> str:
    """The page of results as Markdown."""
    tested = {name: by for name, by in found.items() if any(count_of(by).values())}
    counts = {name: count_of(by) for name, by in tested.items()}
    total = collections.Counter()
    for count in counts.values():
        total.update(count)
    whole = sum(not c["refused"] and not c["wrong"] for c in counts.values())
    partly = sum(
        c["right"] > 0 and c["refused"] > 0 and not c["wrong"] for c in counts.values()
    )
    refused = sum(not c["right"] and not c["wrong"] for c in counts.values())
    some = f"{most} samples of each element type" if most else "all samples"
    head = f"""<!-- Written by tools/torch_operators.py --page; run it again instead of changing this. -->

# Operators of PyTorch

The operator database of `torch.testing` (torch {torch.__version__.partition("+")[0]}) in f32, f64, f16, bf16, i64 and bool: {some}, exported by `torch.export`,
imported, computed by the oracles of the graph's ops and compared with torch. {len(tested)} operators and variants: **{whole}** are
right on every sample, {partly} on some and refused by name on the others, {refused} are refused by name on all of them, and
{len(tested) - whole - partly - refused} give a wrong result. Of {total.total()} samples {total["right"]} are right, {total["refused"]} refused, {total["wrong"]} wrong.

A result of f32 or halves that is farther from torch's than torch's tolerance is right if it is as near to what torch gives in f64 as
torch's own: torch rounds sums on the way. Of operators that draw random numbers, and of those whose elements are what lay in memory,
shapes and types are compared; of singular and eigenvectors, whose signs are free, what torch's own tests make of them.

    python tools/torch_operators.py --samples {most} --page docs/torch-operators.md

| operator | right | refused | wrong | why it is refused |
| --- | --- | --- | --- | --- |
"""
    return head + "".join(
        line_of(name, tested[name], counts[name]) for name in sorted(tested)
    )


def count_of(by: dict[str, dict[str, object]]) -> dict[str, int]:
    """Samples by outcome."""
    return {
        word: sum(int(tally[word]) for tally in by.values())
        for word in ("right", "refused", "wrong")
    }


def line_of(name: str, by: dict[str, dict[str, object]], count: dict[str, int]) -> str:
    """One line of the table."""
    reasons = [text for tally in by.values() for text in tally["reasons"]]
    first = collections.Counter(reasons).most_common(1)
    reason = re.sub(r"[|`<>\[\]]", " ", first[0][0])[:110] if first else ""
    return f"| `{name}` | {count['right']} | {count['refused']} | {count['wrong']} | {reason} |\n"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--samples", type=int, default=0, help="per operator and element type; 0: all"
    )
    parser.add_argument(
        "--results", type=Path, help="also as JSON, written after every operator"
    )
    parser.add_argument("--page", type=Path, help="the page of results")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="*",
        default=(),
        help="results of earlier runs; newer ones count",
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    hasten_decompositions()
    found = run(options.names, options.samples, options.results)
    totals = collections.Counter()
    for by in found.values():
        for tally in by.values():
            totals.update(right=tally.right, refused=tally.refused, wrong=tally.wrong)
    print(dict(totals))
    if options.page is not None:
        merged: dict[str, dict[str, dict[str, object]]] = {}
        for path in options.merge:
            merged.update(json.loads(path.read_text()))
        merged.update({n: {k: vars(t) for k, t in by.items()} for n, by in found.items()})
        options.page.write_text(page(merged, options.samples), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
