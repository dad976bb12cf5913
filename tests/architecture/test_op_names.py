"""Facts of an op stand in its row: outside of `ops/` and the front ends only rewrites name ops.

Counted are string literals that are the name of an op, in modules that see the graph.  Modules below
it (kernel, schedule, printers) have a vocabulary of their own: `add` there is an operation on numbers.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

from tilewright.compiler.ops import catalogue

COMPILER: Final = Path(__file__).resolve().parents[2] / "src" / "tilewright" / "compiler"
DECLARES: Final = ("ops", "frontends")  # rows of the catalogue, rows per foreign operator
SEES_NODES: Final = tuple(
    f"tilewright.compiler.{room}" for room in ("graph", "ops", "passes", "transforms")
)
# What these do is to match ops by name and to write others in their place (rules make constants, too).
REWRITES: Final = frozenset(
    "passes/rewriting.py" if name == "rewriting" else f"transforms/{name}.py"
    for name in (
        "arithmetic_rewrites", "block_weights", "contract_integers", "convert_layout", "decompose_norms", "fold_scales", "grow_late", "keep_weights",
        "legalize_convolution", "legalize_pooling", "legalize_resampling", "movement_rewrites", "pack_matmul", "phases", "position_masks",
        "byte_words", "decompose_quantization", "planar_convolution",
        "quantize_contractions", "quantized_sums", "quantized_values", "recognize_activations", "attention_axes", "attention_rewrites", "attention_scores", "write_attention", "recognize_attention",
        "recognize_norms", "rewriting", "round_contractions", "sink_reshapes",
        "spelled_softmax", "split_blocks", "split_concat", "split_phases", "split_reductions", "split_taps", "spread_images",
        "winograd_convolution",
    )
)  # fmt: skip
# Words that happen to be names of ops: a kind of storage, and what holds after a pass.
HOMONYMS: Final = {
    "graph/schema.py": ["attention"],
    "lowering/index_numbers.py": ["mod"],  # of sizes
    "lowering/lift_numbers.py": [
        "mul",
        "div",
        "add",
        "sub",
        "add",
        "add",
        "round",
        "max",
        "min",
    ],  # of expressions
    "program/ir.py": ["constant"],
    "transforms/fuse_kernels.py": ["fused"],
}
# Only ever less: what is left to become columns.
LEFT: Final[dict[str, int]] = {}


def imports(tree: ast.Module) -> list[str]:
    """The modules that a module imports from."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
    return found


def named_ops(tree: ast.Module, names: frozenset[str]) -> list[str]:
    """The literals in a module that are names of ops."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in names
    ]


@cache
def found_names() -> dict[str, list[str]]:
    """The names of ops that stand in each module that sees the graph."""
    names = frozenset(row.name for row in catalogue.all_ops())
    found: dict[str, list[str]] = {}
    for path in sorted(COMPILER.rglob("*.py")):
        where = path.relative_to(COMPILER)
        text = path.read_text()
        if where.parts[0] in DECLARES or not any(room in text for room in SEES_NODES):
            continue  # parsing all takes seconds
        tree = ast.parse(text)
        if any(module.startswith(SEES_NODES) for module in imports(tree)):
            found[where.as_posix()] = named_ops(tree, names)
    return {file: words for file, words in found.items() if words}


def test_only_rewrites_name_ops() -> None:
    """Else a pass knows what the next op's row cannot say: ask `node.schema`, or add a column."""
    outside = {f: words for f, words in found_names().items() if f not in REWRITES}
    counts = {f: len(words) for f, words in outside.items() if words != HOMONYMS.get(f)}
    assert counts == LEFT, (
        "a file that matches ops and writes others is a rewrite: add it to REWRITES above; "
        "elsewhere ask `node.schema`, or add a column to the op's row"
    )


def test_every_rewrite_listed_names_ops() -> None:
    assert set(found_names()) >= REWRITES


def test_a_name_is_seen_wherever_it_stands() -> None:
    text = 'LISTED = frozenset(("softmax", "rows"))\nif op == "conv" or f"{op}_add": pass\n'
    assert named_ops(ast.parse(text), frozenset(("softmax", "conv", "add"))) == [
        "softmax",
        "conv",
    ]
