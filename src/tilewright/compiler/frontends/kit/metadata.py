"""What a foreign model says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from tilewright.base.record import field, record


@final
@record
class ModelMetadata:
    """What a model says about itself.

    `opset`, `opsets` and `ir_version` are those of ONNX, 0 and empty for other formats; `version` is the model's own (0 where it states none), `properties` are its `metadata_props`.
    """

    name: str
    opset: int = 0
    opsets: tuple[tuple[str, int], ...] = ()
    ir_version: int = 0
    producer: str = ""
    description: str = ""
    domain: str = ""
    version: int = 0
    graph_description: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
