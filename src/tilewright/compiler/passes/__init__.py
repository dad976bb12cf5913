"""The pass manager: what a graph pass is, how a list of them is run and watched.

Passes themselves live in `compiler/transforms`; their order is written in `compiler/pipeline.py`.
"""

from tilewright.compiler.passes.context import (
    DEFAULT_OPT_LEVEL,
    OPT_LEVELS,
    PassContext,
    PassInfo,
    PassInstrument,
    PassRow,
    check_opt_level,
    config_keys,
    known_passes,
)
from tilewright.compiler.passes.graph_pass import GraphPass, PassResult, register_pass
from tilewright.compiler.passes.instruments import (
    DumpIR,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintTimes,
    VerifyInstrument,
    instruments_of_knobs,
)
from tilewright.compiler.passes.rewriting import (
    Emitter,
    NoMatchError,
    Rewrite,
    Rewrites,
    apply_rewrites,
    attempt,
    given,
    merge_rewrites,
    need,
)
from tilewright.compiler.passes.runner import PassError, run_passes

__all__ = [
    "DEFAULT_OPT_LEVEL",
    "OPT_LEVELS",
    "DumpIR",
    "Emitter",
    "GraphPass",
    "NoMatchError",
    "PassContext",
    "PassError",
    "PassInfo",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassResult",
    "PassRow",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintTimes",
    "Rewrite",
    "Rewrites",
    "VerifyInstrument",
    "apply_rewrites",
    "attempt",
    "check_opt_level",
    "config_keys",
    "given",
    "instruments_of_knobs",
    "known_passes",
    "merge_rewrites",
    "need",
    "register_pass",
    "run_passes",
]
