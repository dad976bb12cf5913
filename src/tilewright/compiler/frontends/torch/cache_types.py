"""Caches of transformers' models as containers that torch can take apart, where a model returns or takes one.

Only what transformers itself says of its classes is used; it takes seconds to import, so it is asked when torch could not
export a model without it.  Called by `export`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

_EXPORTER: Final = "transformers.exporters.exporter_dynamo"


def register_caches(model: Any) -> bool:
    """Let torch know the caches of the models of transformers in a module; whether there are any that it did not know."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return False
    kind = transformers.PreTrainedModel
    found = [part for part in model.modules() if isinstance(part, kind)]
    if not found:
        return False
    try:
        register = importlib.import_module(_EXPORTER).register_cache_pytrees_for_model
    except (ImportError, AttributeError):  # older ones know their caches themselves
        return False
    types = border.load("torch.utils._pytree").SUPPORTED_NODES
    before = len(types)
    for part in found:
        register(part)
    return len(types) > before
