"""The plan: a program as a flat list of steps over storages, replayed without a virtual machine.

`Plan` and its parts are data; `to_json` and `from_json` are the file form, `from_graph` reads one that was parsed;
`verify_plan` refuses what is inconsistent.  Not here: execution (`runtime.plan_executor`) and construction
(`compiler.program`).
"""

from tilewright.formats.plan.attributes import (
    decode_attribute,
    encode_attribute,
    resolve_attribute,
)
from tilewright.formats.plan.json_form import VERSION, from_graph, from_json, to_json
from tilewright.formats.plan.steps import (
    CHECK_BYTES,
    CHECK_PASSED,
    FLOW_KINDS,
    STEP_KINDS,
    STORAGE_KINDS,
    Dimension,
    Entry,
    HostCall,
    IndexCheck,
    ModelValue,
    Plan,
    SizeRange,
    Step,
    Storage,
    operands_of,
    results_of,
)
from tilewright.formats.plan.verifier import verify_plan

__all__ = [
    "CHECK_BYTES",
    "CHECK_PASSED",
    "FLOW_KINDS",
    "STEP_KINDS",
    "STORAGE_KINDS",
    "VERSION",
    "Dimension",
    "Entry",
    "HostCall",
    "IndexCheck",
    "ModelValue",
    "Plan",
    "SizeRange",
    "Step",
    "Storage",
    "decode_attribute",
    "encode_attribute",
    "from_graph",
    "from_json",
    "operands_of",
    "resolve_attribute",
    "results_of",
    "to_json",
    "verify_plan",
]
