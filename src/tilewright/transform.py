"""`tilewright.transform`: which passes of the compiler run, with which options, and who watches.

    with tw.transform.PassContext(opt_level=1, disabled_pass=["fold-scales"]):
        model = tw.compile("model.onnx")

Names only; the passes are in `compiler.transforms`.
"""

from tilewright.compiler.passes import (
    DumpIR,
    PassContext,
    PassInfo,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    VerifyInstrument,
    config_keys,
)

# Where the passes become known.
from tilewright.compiler.transforms import known_passes

__all__ = [
    "DumpIR",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "VerifyInstrument",
    "config_keys",
    "known_passes",
]
