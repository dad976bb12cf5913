"""Tilewright: an ML compiler and runtime.

    import tilewright as tw
    model = tw.compile("model.onnx")     # machine code for this CPU
    y = model(x)                         # numpy in, numpy out
    model.save("model.vmfb")
    session = tw.load("model.vmfb")

Names only; the modules behind them load at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tilewright.base.version import VERSION as __version__  # noqa: N811 - its usual name

if TYPE_CHECKING:
    from tilewright import (
        byoc,
        debug_executor,
        graph_executor,
        onnx_backend,
        onnx_operators,
        runtime,
        transform,
    )
    from tilewright.api.build import build
    from tilewright.api.compare import Comparison, compare
    from tilewright.api.explain import explain
    from tilewright.api.inference import (
        ExecutionMode,
        GraphOptimizationLevel,
        InferenceSession,
        IOBinding,
        ModelMetadata,
        NodeArg,
        OrtValue,
        RunOptions,
        SessionOptions,
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_device,
        get_version_string,
        set_default_logger_severity,
        set_default_logger_verbosity,
    )
    from tilewright.api.jax_functions import JaxFunction, from_jax
    from tilewright.api.language.language_model import LanguageModel, generate
    from tilewright.api.language.sampling import Sampling
    from tilewright.api.load import load
    from tilewright.api.model import (
        Model,
        compile,  # noqa: A004 - the verb
        coverage,
        report,
    )
    from tilewright.api.profiling.explanation import Explanation
    from tilewright.api.quantize import quantize
    from tilewright.api.report import Report
    from tilewright.api.signing import generate_key, sign
    from tilewright.api.tune import Tuning, tune
    from tilewright.base.budget import Limits
    from tilewright.base.errors import (
        ArchiveError,
        DeviceError,
        InputError,
        InternalError,
        LimitError,
        ModelError,
        ScheduleError,
        TargetError,
        TilewrightError,
        UserError,
    )
    from tilewright.base.target import Target
    from tilewright.runtime.packed.devices import cpu, device
    from tilewright.runtime.packed.functions import (
        get_global_func,
        register_global_func,
        remove_global_func,
    )
    from tilewright.runtime.session import Session
    from tilewright.runtime.virtual_machine.machine import VirtualMachine

_HOMES = {
    "tilewright.api.compare": ("Comparison", "compare"),
    "tilewright.api.inference": (
        "ExecutionMode",
        "GraphOptimizationLevel",
        "IOBinding",
        "InferenceSession",
        "ModelMetadata",
        "NodeArg",
        "OrtValue",
        "RunOptions",
        "SessionOptions",
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_all_providers",
        "get_available_providers",
        "get_device",
        "get_version_string",
        "set_default_logger_severity",
        "set_default_logger_verbosity",
    ),
    "tilewright.api.build": ("build",),
    "tilewright.api.explain": ("explain",),
    "tilewright.api.profiling.explanation": ("Explanation",),
    "tilewright.api.jax_functions": ("JaxFunction", "from_jax"),
    "tilewright.api.language.language_model": ("LanguageModel", "generate"),
    "tilewright.api.language.sampling": ("Sampling",),
    "tilewright.api.load": ("load",),
    "tilewright.api.signing": ("generate_key", "sign"),
    "tilewright.api.tune": ("Tuning", "tune"),
    "tilewright.api.model": ("Model", "compile", "coverage", "report"),
    "tilewright.api.quantize": ("quantize",),
    "tilewright.api.report": ("Report",),
    "tilewright.base.budget": ("Limits",),
    "tilewright.base.errors": (
        "ArchiveError",
        "DeviceError",
        "InputError",
        "InternalError",
        "LimitError",
        "ModelError",
        "ScheduleError",
        "TargetError",
        "TilewrightError",
        "UserError",
    ),
    "tilewright.base.target": ("Target",),
    "tilewright.runtime.packed.devices": ("cpu", "device"),
    "tilewright.runtime.packed.functions": (
        "get_global_func",
        "register_global_func",
        "remove_global_func",
    ),
    "tilewright.runtime.session": ("Session",),
    "tilewright.runtime.virtual_machine.machine": ("VirtualMachine",),
}
# Modules that are seen as attributes of this package.
_MODULES = (
    "byoc",
    "debug_executor",
    "graph_executor",
    "onnx_backend",
    "onnx_operators",
    "runtime",
    "transform",
)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ArchiveError",
    "Comparison",
    "DeviceError",
    "ExecutionMode",
    "Explanation",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InputError",
    "InternalError",
    "JaxFunction",
    "LanguageModel",
    "LimitError",
    "Limits",
    "Model",
    "ModelError",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "Report",
    "RunOptions",
    "Sampling",
    "ScheduleError",
    "Session",
    "SessionOptions",
    "Target",
    "TargetError",
    "TilewrightError",
    "Tuning",
    "UserError",
    "VirtualMachine",
    "__version__",
    "build",
    "byoc",
    "compare",
    "compile",
    "coverage",
    "cpu",
    "debug_executor",
    "device",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "explain",
    "from_jax",
    "generate",
    "generate_key",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_global_func",
    "get_version_string",
    "graph_executor",
    "load",
    "onnx_backend",
    "onnx_operators",
    "quantize",
    "register_global_func",
    "remove_global_func",
    "report",
    "runtime",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "sign",
    "transform",
    "tune",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None and name not in _MODULES:
        raise AttributeError(f"module 'tilewright' has no attribute '{name}'")
    # Both at first use.
    from tilewright.base.fork_locks import LATE_IMPORTS  # noqa: PLC0415
    from tilewright.base.rare_collections import rare_collections  # noqa: PLC0415

    with LATE_IMPORTS, rare_collections(stays=True):
        if home is None:
            value = importlib.import_module(f"tilewright.{name}")
        else:
            value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
