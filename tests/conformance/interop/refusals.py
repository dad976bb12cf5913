"""Why IREE refuses a program: what its importer or compiler says, as one of a few kinds.

What it is: `classify`, which `evidence.record` calls for every refusal.
What it is not: a list of what is expected to be refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST_SUBJECT = 80
# The first that matches decides; its group is the subject.
_KINDS = (
    (r"Unknown ONNX tensor (element type: \d+)", "element type unknown to the importer"),
    (
        r"error: failed to legalize operation 'torch\.operator'[^\n]*?\bname = \"onnx\.(\w+)\"",
        "ONNX operator without a lowering",
    ),
    (r"error: failed to legalize operation '([\w.]+)'", "operation without a lowering"),
    (r"error: '([\w.]+)' op ", "operation that a pass made and the verifier rejects"),
    (r"error: undefined symbol: (\w+)", "function that the linker does not find"),
    (r"error: ([^\n]+)", "another error of the compiler"),
    (r"LLVM ERROR: ([^\n:]+)", "compiler crashes"),
    (r"(Stack dump):", "compiler crashes"),
    (r"(no result after \d+ s)", "compiler takes too long"),
)


@dataclass(frozen=True)
class Refusal:
    """A kind, and of what: an operator, an operation, a type; empty where that says nothing."""

    kind: str
    subject: str


def classify(said: str) -> Refusal:
    """The kind of a refusal, from the beginning of what was said."""
    for pattern, kind in _KINDS:
        found = re.search(pattern, said)
        if found:
            return Refusal(kind, found[1][:_LONGEST_SUBJECT])
    first = said.strip().partition("\n")[0]
    return Refusal("another error of the importer", first[:_LONGEST_SUBJECT])
