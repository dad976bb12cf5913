"""The table of what of IREE runs here, from what the interop tests saw.

What it is: `collect` gathers the verdicts that the tests left in build/interop-results into the file
beside the tests, `page` turns that file into docs/runtime/compatibility.md.
What it is not: a judge; a case that differs stays in the table as different.
Who calls it: a developer after `make test-nightly`; `gendocs` for the page::

    python tools/compatibility.py          # merge what the tests saw, then: python tools/gendocs.py
    python tools/compatibility.py --fresh  # forget what they did not see this time
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.formats.bytecode.isa import OPCODES

ROOT: Final = Path(__file__).resolve().parent.parent
SEEN: Final = ROOT / "build" / "interop-results"
RESULTS: Final = ROOT / "tests" / "conformance" / "interop" / "results.json"
UNITED: Final = ("formats", "opcodes", "imports")
MODULES_OF_IREE: Final = {
    "onnx-llvm-cpu": "ONNX node cases, llvm-cpu",
    "onnx-others-llvm-cpu": "ONNX cases exported by PyTorch, and its simple ones, llvm-cpu",
    "onnx-vmvx": "ONNX node cases, vmvx",
    "models-of-iree": "whole models, llvm-cpu",
    "programs": "programs of `tests/conformance/interop/programs`, llvm-cpu, several ways to compile",
}
REASON_LENGTH: Final = 160
MATRIX: Final = "release-matrix"
SAME: Final = ("equal", "close")
RAN: Final = (*SAME, "different", "failed here")
Suite = dict[str, Any]


def collect(seen: Path, results: Path, *, fresh: bool = False) -> dict[str, Suite]:
    """Merge the tests' verdicts into the file, one line per case."""
    known = {} if fresh or not results.exists() else json.loads(results.read_text("utf-8"))
    for folder in sorted(path for path in seen.glob("*") if path.is_dir()):
        suite = known.setdefault(folder.name, {"cases": {}})
        for path in sorted(folder.glob("*.json")):
            _add(suite, path.stem, json.loads(path.read_text("utf-8")))
        suite["cases"] = dict(sorted(suite["cases"].items()))
    results.write_text(_dump(known), encoding="utf-8")
    return known


def _add(suite: Suite, name: str, row: Mapping[str, Any]) -> None:
    case: dict[str, Any] = {"outcome": row["outcome"]}
    if "reason" in row:
        case |= {"reason": row["reason"], "subject": row["subject"]}
    elif row["outcome"] not in ("equal", "refused"):
        case["detail"] = row["detail"][:REASON_LENGTH]
    if "bytecode" in row:
        case |= {"bytecode": row["bytecode"], "modules": row["modules"]}
        case["formats"] = row["formats"]
    suite["cases"][name] = case
    for key in UNITED:
        suite[key] = sorted({*suite.get(key, []), *row.get(key, [])})


def _dump(suites: Mapping[str, Suite]) -> str:
    blocks: list[str] = []
    for name, suite in sorted(suites.items()):
        parts = [f"  {json.dumps(key)}: {json.dumps(suite.get(key, []))}" for key in UNITED]
        rows = ",\n".join(
            f"    {json.dumps(case)}: {json.dumps(row)}"
            for case, row in suite["cases"].items()
        )
        parts.append(f'  "cases": {{\n{rows}\n  }}')
        blocks.append(f"{json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


# --- the page ---------------------------------------------------------------------------------


def page(note: str, results: Path = RESULTS) -> str:
    """docs/runtime/compatibility.md; `note` says what wrote it."""
    suites: Mapping[str, Suite] = json.loads(results.read_text("utf-8"))
    return f"""{note}
# Compatibility with IREE

What was run, not what is meant to run. The tests of `tests/conformance/interop` compile with IREE's newest
compiler, run each module under IREE's own runtime and here, on `local-sync` and `local-task`, and compare the
results bit for bit. `make test-nightly` runs all of them; `python tools/compatibility.py` and
`python tools/gendocs.py` then bring this page up to date.

## Releases

Modules compiled by each release, against what that release's own `iree-run-module` gave. IREE's runtime accepts
modules of its own and at most a few neighbouring releases; here there is one runtime for all of them.

{_releases(suites)}

### Every release since April 2024

The programs of `tests/conformance/interop/release_programs` ({_programs(suites)}), compiled in {_columns(suites)} ways by
every stable release of the package index, each against its own release's `iree-run-module`: how many give the same
bits, of those that the release compiles and runs. The first three rows are the generation with pipeline layouts and
pushed descriptor sets.

{_matrix(suites)}

*Microkernels* add f32 up in an order that depends on the processor; there the last places may differ (1e-6), which is
counted as the same. {_matrix_refusals(suites)}

## Modules of IREE's compiler

{_suites(suites)}

*Refused*: the importer or the compiler does not take the program. *Not run by IREE*: its own runtime fails on what its
compiler made, so there is nothing to compare with. *Undefined*: the code gives what lies in memory by chance.

{_exceptions(suites)}

## Why IREE refuses some

The first error of its importer or compiler, and of how many cases.

{_refusals(suites)}

## Whole models

{_models(suites)}

`-` was not tried, `refused` is the answer of IREE's importer or compiler.

## What those modules are made of

{_contents(suites)}
"""


def table(heading: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [heading, ["---"] * len(heading), *body]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _releases(suites: Mapping[str, Suite]) -> str:
    by_release: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, row in suites.get("releases", {"cases": {}})["cases"].items():
        release, _, program = name.partition(" ")
        by_release.setdefault(release, {})[program] = row
    body: list[Sequence[str]] = []
    for release, programs in sorted(
        by_release.items(), key=lambda item: [int(n) for n in item[0].split(".")]
    ):
        rows = list(programs.values())
        equal = [p for p, row in programs.items() if row["outcome"] == "equal"]
        formats = {f for row in rows for f in row.get("formats", [])}
        versions = {str(row["modules"].get("hal", "-")) for row in rows}
        body.append(
            (
                release,
                ", ".join(sorted({row["bytecode"] for row in rows})),
                ", ".join(sorted(versions)),
                ", ".join(f"`{name}`" for name in sorted(formats)),
                ", ".join(sorted(programs)),
                "all equal" if len(equal) == len(rows) else f"{len(equal)} of {len(rows)}",
            )
        )
    return table(("release", "bytecode", "`hal`", "executables", "programs", "bits"), body)


def _matrix_cases(
    suites: Mapping[str, Suite],
) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """(release, way to compile, program) of every case."""
    cases = suites.get(MATRIX, {"cases": {}})["cases"]
    found: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for name, row in cases.items():
        release, _, rest = name.partition(" ")
        column, _, program = rest.rpartition(" ")
        found[release, column, program] = row
    return found


def _names(suites: Mapping[str, Suite], place: int) -> list[str]:
    return sorted({key[place] for key in _matrix_cases(suites)})


def _programs(suites: Mapping[str, Suite]) -> str:
    return ", ".join(name.replace("_", " ") for name in _names(suites, 2))


def _columns(suites: Mapping[str, Suite]) -> str:
    return str(len(_names(suites, 1)))


def _by_age(release: str) -> tuple[bool, list[int]]:
    """Releases called by a date came before those called by a version."""
    return not release.startswith("20"), [int(n) for n in release.split(".")]


def _matrix(suites: Mapping[str, Suite]) -> str:
    cases, columns = _matrix_cases(suites), _names(suites, 1)
    body: list[Sequence[str]] = []
    for release in sorted(_names(suites, 0), key=_by_age):
        rows = {key[1:]: row for key, row in cases.items() if key[0] == release}
        built = [row for row in rows.values() if "bytecode" in row]
        cells: list[str] = []
        for column in columns:
            ran = [r for (c, _), r in rows.items() if c == column and r["outcome"] in RAN]
            same = sum(row["outcome"] in SAME for row in ran)
            cells.append(f"{same} of {len(ran)}" if ran else "-")
        hal = {str(row["modules"]["hal"]) for row in built if "hal" in row["modules"]}
        versions = ", ".join(sorted({row["bytecode"] for row in built}))
        body.append((release, versions, ", ".join(sorted(hal)), *cells))
    return table(("release", "bytecode", "`hal`", *columns), body)


def _matrix_refusals(suites: Mapping[str, Suite]) -> str:
    cases = _matrix_cases(suites)
    counts = Counter(row["outcome"] for row in cases.values())
    others = [
        f"{' '.join(key)}: {row['outcome']}: {row.get('detail', '')}"
        for key, row in cases.items()
        if row["outcome"] in RAN and row["outcome"] not in SAME
    ]
    text = (
        f"Of {counts.total()} cases the release's compiler refuses {counts['refused']} and its "
        f"own runtime fails on {counts['not run by IREE']}; "
    )
    return text + ("; ".join(others) or "no other gives anything else here") + "."


def _suites(suites: Mapping[str, Suite]) -> str:
    body: list[Sequence[str]] = []
    for name, title in MODULES_OF_IREE.items():
        counts = Counter(
            r["outcome"] for r in suites.get(name, {"cases": {}})["cases"].values()
        )
        other = counts["different"] + counts["failed here"]
        left_out = (counts["refused"], counts["not run by IREE"], counts["undefined"])
        shown = (*left_out, counts["equal"], other)
        body.append((title, str(counts.total()), *map(str, shown)))
    heading = (
        "modules",
        "tried",
        "refused",
        "not run by IREE",
        "undefined",
        "same bits here",
        "otherwise",
    )
    return table(heading, body)


def _exceptions(suites: Mapping[str, Suite]) -> str:
    lines = [
        f"- {name}, `{case}`: {row['outcome']}: {row.get('detail', '')}"
        for name in MODULES_OF_IREE
        for case, row in suites.get(name, {"cases": {}})["cases"].items()
        if row["outcome"] in ("undefined", "different", "failed here")
    ]
    return (
        "\n".join(lines)
        if lines
        else "No module that IREE's runtime runs gives anything else here."
    )


def _refusals(suites: Mapping[str, Suite]) -> str:
    subjects: dict[str, Counter[str]] = {}
    for name in MODULES_OF_IREE:
        for row in suites.get(name, {"cases": {}})["cases"].values():
            if "reason" in row:
                subjects.setdefault(row["reason"], Counter())[row["subject"]] += 1
    body = [
        (reason, str(of.total()), ", ".join(f"`{s}` {n}" for s, n in of.most_common()))
        for reason, of in sorted(subjects.items(), key=lambda item: -item[1].total())
    ]
    return table(("reason", "cases", "of what"), body)


def _models(suites: Mapping[str, Suite]) -> str:
    theirs, ours = (
        suites.get(name, {"cases": {}})["cases"]
        for name in ("models-of-iree", "our-models")
    )
    names = sorted({*theirs, *ours})
    body = [
        (f"`{n}`", *(side.get(n, {"outcome": "-"})["outcome"] for side in (theirs, ours)))
        for n in names
    ]
    return table(
        ("model", "IREE's module here", "our module under `iree-run-module`"), body
    )


def _contents(suites: Mapping[str, Suite]) -> str:
    united = {
        key: sorted(
            {
                v
                for name in (*MODULES_OF_IREE, "releases")
                for v in suites.get(name, {}).get(key, [])
            }
        )
        for key in UNITED
    }
    known = [opcode.name for opcode in OPCODES]
    met = [name for name in known if name in united["opcodes"]]
    return f"""- Formats of executables: {_list(united["formats"])}.
- {len(met)} of {len(known)} opcodes: {_list(met)}. Every opcode, these and the others, is compared with IREE's
  interpreter in `tests/conformance/vm`.
- {len(united["imports"])} functions of native modules: {_list(united["imports"])}."""


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seen", type=Path, default=SEEN)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args(arguments)
    suites = collect(options.seen, options.results, fresh=options.fresh)
    for name, suite in suites.items():
        counts = Counter(row["outcome"] for row in suite["cases"].values())
        shown = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        sys.stdout.write(f"{name}: {shown}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
