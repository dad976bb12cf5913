"""How a call of a program in the C core ended.

Called by `model_interface` and `flow_error`, which make errors of it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import final


@final
class ModelStatus(IntEnum):
    """MIRROR MODEL STATUS: `tw_model.h`."""

    OK = 0
    BAD_INPUT = 1
    NO_MEMORY = 2
    NO_CODE = 3
    BAD_WEIGHTS = 4
    FAILED = 5
    INTERRUPTED = 6
    CALLEE_FAILED = 7
