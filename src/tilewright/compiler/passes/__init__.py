"""The pass manager: what a graph pass is, how a list of them is run and watched.

Passes themselves live in `compiler/transforms`; their order is written in `compiler/pipeline.py`.
"""

from tilewright.compiler.passes.contract import (
    GraphPass,
    Instrument,
    PassContext,
    PassResult,
)
from tilewright.compiler.passes.instruments import (
    DumpInstrument,
    TimingInstrument,
    VerifyInstrument,
    instruments_of_knobs,
)
from tilewright.compiler.passes.rewriting import (
    Emitter,
    RewritePass,
    Rule,
    apply_rules,
    merge_rules,
)
from tilewright.compiler.passes.runner import PassError, run_passes

__all__ = [
    "DumpInstrument",
    "Emitter",
    "GraphPass",
    "Instrument",
    "PassContext",
    "PassError",
    "PassResult",
    "RewritePass",
    "Rule",
    "TimingInstrument",
    "VerifyInstrument",
    "apply_rules",
    "instruments_of_knobs",
    "merge_rules",
    "run_passes",
]
