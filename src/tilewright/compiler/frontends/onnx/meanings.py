"""Whether an op has a meaning here, and what to say of one that has none.

Called by the importer.
"""

from __future__ import annotations

from typing import Final

from onnx import defs

import tilewright.compiler.frontends.onnx.extensions as extensions
import tilewright.compiler.frontends.onnx.table as table
from tilewright.base.text import did_you_mean
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.schemas import schema_of

_OF_DOMAINS: Final = {
    "com.microsoft.nchwc": "its weights are packed for one kind of processor: save the model with the "
    "optimizations of ORT_ENABLE_EXTENDED, not ORT_ENABLE_ALL",
}
_TO_REGISTER: Final = (
    "give it a meaning: tilewright.onnx_operators.register_function or .register_operator"
)


def has_meaning(domain: str, op: str, opset: int) -> bool:
    """Whether the table, a user or the schema of ONNX says what an op computes."""
    if table.find(domain, op, opset, of_text=True) is not None:
        return True
    if extensions.find_operator(domain, op, opset) is not None:
        return True
    schema = schema_of(domain, op, opset)
    return schema is not None and bool(schema.all_function_opset_versions)


def unknown_op(domain: str, op: str) -> UnsupportedError:
    """The problem of an op that has no meaning, with what may be meant."""
    known = (*table.names(domain), *extensions.names(domain))
    meant = None if defs.has(op, domain) else did_you_mean(op, known)
    hint = meant or _OF_DOMAINS.get(domain, _TO_REGISTER)
    where = f" of domain '{domain}'" if domain else ""
    return UnsupportedError(f"op '{op}'{where} is not supported", hint=hint)
