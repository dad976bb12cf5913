"""Runs ONNX's own BackendTest over `tilewright.onnx_backend` and writes the page of results.

    python tools/onnx_conformance.py [--kind KIND] [--only TEXT] [--compiled] [--page FILE]

Every input of a case is passed as an input.  The graph's ops are computed by their oracles, or with `--compiled` by
machine code.  Why a case is not right stands in `tests/fakes/onnx_exclusions.py`, or it is what the error says;
`tests/conformance/frontends/test_onnx_backend_suite.py` holds the page against that list.
"""

from __future__ import annotations

import argparse
import fnmatch
import runpy
import time
import unittest
import unittest.mock
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx
from onnx.backend.base import Backend
from onnx.defs import get_schema, onnx_opset_version

import tilewright.onnx_backend as backend
from tilewright.base.errors import TilewrightError
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph

_LISTS: Final = runpy.run_path(
    str(Path(__file__).resolve().parent.parent / "tests" / "fakes" / "onnx_exclusions.py")
)
EXCLUDED: Final[Mapping[str, str]] = _LISTS["EXCLUDED"]
NOISY: Final[Sequence[str]] = _LISTS["NOISY"]
KINDS: Final = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchConvertedModelTest": "PyTorch, converted",
    "OnnxBackendPyTorchOperatorModelTest": "PyTorch, operators",
    "OnnxBackendRealModelTest": "light models",
}
NOISE: Final = "a unit of f16, or noise around zero, more than the suite allows"
WORDS: Final = ("right", "differs", "wrong", "refused")
"""`differs`: other numbers than the case records, for a reason in the list; `wrong`: for none."""
_LONGEST: Final = 160


@dataclass(frozen=True)
class Outcome:
    """What became of a case, one of `WORDS`, and why."""

    kind: str
    name: str
    word: str
    reason: str = ""


class Oracles:
    """A graph that its ops' oracles compute, in place of a compiled model."""

    def __init__(self, graph: Graph, **_: object) -> None:
        self.graph = graph

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs."""
        return tuple(evaluate(self.graph, list(inputs)))


class Recorded(Backend):
    """The backend under test; remembers what it prepared."""

    prepared: list[backend.PreparedModel] = []

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        """A model, ready to run."""
        found = backend.prepare(model, device, **kwargs)
        cls.prepared.append(found)
        return found

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a case for this device is run."""
        return backend.supports_device(device)


def suite() -> dict[str, Any]:
    """The classes of cases, by the name of their kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest

        cases = BackendTest(Recorded, __name__).test_cases
    return {KINDS[kind]: case for kind, case in cases.items() if kind in KINDS}


def names_of(cases: Any) -> list[str]:
    """The cases of a kind that are for a CPU, without the device."""
    ending = "_cpu"
    found = (n for n in dir(cases) if n.startswith("test_") and n.endswith(ending))
    return sorted(name.removesuffix(ending) for name in found)


def pattern_of(name: str, patterns: Iterable[str]) -> str | None:
    """The first pattern that a case matches."""
    return next((p for p in patterns if fnmatch.fnmatchcase(name, p)), None)


def run(kind: str, cases: Any, name: str) -> Outcome:
    """One case."""
    method = f"{name}_cpu"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(cases(method), method)()
    except (TilewrightError, unittest.SkipTest) as error:
        text = error.message if isinstance(error, TilewrightError) else str(error)
        return Outcome(kind, name, "refused", text.splitlines()[0][:_LONGEST])
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        text = f"{type(error).__name__}: {' '.join(lines[:3])}"
        word = "wrong" if pattern_of(name, (*EXCLUDED, *NOISY)) is None else "differs"
        return Outcome(kind, name, word, text[:_LONGEST])
    return Outcome(kind, name, "right")


def known_operands(model: backend.PreparedModel) -> str:
    """The operands of a prepared model that had to be known, by operator; empty where none had to."""
    found: list[str] = []
    for node in model.model.graph.node:
        schema = get_schema(node.op_type, domain=node.domain)
        last = len(schema.inputs) - 1
        found += [
            f"{node.op_type}: {schema.inputs[min(place, last)].name}"
            for place, name in enumerate(node.input)
            if name in model.fixed_inputs
        ]
    return ", ".join(dict.fromkeys(found))


def explained(outcome: Outcome) -> tuple[str, str]:
    """The pattern of cases that this one belongs to, and why they are not right."""
    for pattern, reason in EXCLUDED.items():
        if fnmatch.fnmatchcase(outcome.name, pattern):
            return pattern, reason
    pattern = pattern_of(outcome.name, NOISY)
    return (outcome.name, outcome.reason) if pattern is None else (pattern, NOISE)


def page(outcomes: Sequence[Outcome], fixed: Mapping[str, int], *, compiled: bool) -> str:
    """The page of results as Markdown."""
    how = (
        "compiled to machine code"
        if compiled
        else "computed by the oracles of the graph's ops"
    )
    flag = " --compiled" if compiled else ""
    head = f"""<!-- Written by tools/onnx_conformance.py --page; run it again instead of changing this. -->

# ONNX's own test suite

`onnx.backend.test.BackendTest` of onnx {onnx.__version__} (opset {onnx_opset_version()}) over `tilewright.onnx_backend`, every input passed as an input,
{how}. The cases run compiled by
`pytest -m slow tests/conformance/frontends/test_onnx_backend_suite.py`, which is part of `make test-nightly` and checks the list below both ways.

    python tools/onnx_conformance.py{flag} --page docs/onnx-conformance.md

| suite | cases | right | differs | wrong | refused |
| --- | --- | --- | --- | --- | --- |
"""
    lines = [table_line(kind, outcomes) for kind in KINDS.values()]
    known = {name: count for name, count in fixed.items() if name}
    right = sum(o.word == "right" and o.kind == "node" for o in outcomes)
    middle = f"""
Every operand of an operator may be data, given or computed: shapes, sizes, axes, scales, steps, positions. Of the {right} node cases that are
right, {sum(known.values())} are compiled for the values of some inputs (`PreparedModel.fixed_inputs`), and again for other values; `tilewright.compile` refuses such
a model by name, and takes the values as `input_values`:

| operands that have to be known | cases |
| --- | --- |
{"".join(f"| {name} | {count} |{chr(10)}" for name, count in sorted(known.items()))}
A case that *differs* gives other numbers than those that it records, for a reason that is stated here; *wrong* would be one without.
What is not right, and why (`tests/fakes/onnx_exclusions.py`):

| cases | suite | count | outcome | why |
| --- | --- | --- | --- | --- |
"""
    groups: dict[tuple[str, str, str, str], int] = Counter()
    for outcome in outcomes:
        if outcome.word != "right":
            pattern, reason = explained(outcome)
            groups[pattern, outcome.kind, outcome.word, reason] += 1
    rest = [group_line(*key, count) for key, count in sorted(groups.items())]
    return head + "".join(lines) + middle + "".join(rest)


def table_line(kind: str, outcomes: Sequence[Outcome]) -> str:
    """One kind of cases."""
    own = Counter(o.word for o in outcomes if o.kind == kind)
    cells = [own.total(), *(own[word] for word in WORDS)]
    return f"| {kind} | {' | '.join(map(str, cells))} |\n"


def group_line(pattern: str, kind: str, word: str, reason: str, count: int) -> str:
    """Cases that are not right for one reason."""
    name = pattern.removeprefix("test_")
    return f"| `{name}` | {kind} | {count} | {word} | {reason.replace('|', ' ')} |\n"


def run_all(
    options: argparse.Namespace, found: Mapping[str, Any]
) -> tuple[list[Outcome], Counter[str]]:
    """The outcomes, and how many right node cases are compiled for the values of which operands."""
    outcomes: list[Outcome] = []
    fixed: Counter[str] = Counter()
    for kind, cases in found.items():
        if options.kind not in (None, kind):
            continue
        start = time.perf_counter()
        for name in names_of(cases):
            if options.only and options.only not in name:
                continue
            Recorded.prepared.clear()
            outcome = run(kind, cases, name)
            outcomes.append(outcome)
            if outcome.word == "right" and kind == "node":
                fixed.update(set(map(known_operands, Recorded.prepared)))
            if outcome.word != "right":
                print(f"{kind} {name}: {outcome.word}: {outcome.reason}", flush=True)
        print(f"{kind}: {time.perf_counter() - start:.0f} s", flush=True)
    return outcomes, fixed


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=tuple(KINDS.values()), help="one kind of cases")
    parser.add_argument("--only", help="cases whose name has this in it")
    parser.add_argument("--compiled", action="store_true", help="machine code, no oracles")
    parser.add_argument("--page", type=Path, help="the page of results")
    options = parser.parse_args()
    if options.compiled:
        outcomes, fixed = run_all(options, suite())
    else:
        with unittest.mock.patch.object(backend.api, "compile", Oracles):
            outcomes, fixed = run_all(options, suite())
    print(dict(Counter(o.word for o in outcomes)))
    if options.page is not None:
        options.page.write_text(page(outcomes, fixed, compiled=options.compiled), "utf-8")


if __name__ == "__main__":
    main()
