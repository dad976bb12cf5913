"""onnxruntime's interface over Tilewright: `import tilewright as ort` is the whole switch.

The names, arguments and defaults are onnxruntime's; what is here does what the name says, and what
Tilewright has no counterpart of is refused with the reason, never ignored where results depend on it.

Source: onnxruntime 1.32, `onnxruntime.capi.onnxruntime_inference_collection` and its API reference.
"""

from tilewright.api.inference.inference_session import InferenceSession
from tilewright.api.inference.io_binding import IOBinding
from tilewright.api.inference.node_arg import ModelMetadata, NodeArg
from tilewright.api.inference.options import (
    ExecutionMode,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from tilewright.api.inference.ort_value import OrtValue
from tilewright.api.inference.process import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_version_string,
    set_default_logger_severity,
    set_default_logger_verbosity,
)
from tilewright.api.inference.providers import (
    get_all_providers,
    get_available_providers,
    get_device,
)

__all__ = [
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
]
