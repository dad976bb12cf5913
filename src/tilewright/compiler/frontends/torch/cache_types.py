"""Caches of transformers' models as containers that torch can take apart, where a model returns or takes one.

Only what transformers itself says of its classes is used.  It is asked before a model of its is exported: an export that
meets a cache unknown to torch fails at its end, in every way.  Called by `export`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

_EXPORTER: Final = "transformers.exporters.exporter_dynamo"


def register_caches(model: Any) -> None:
    """Let torch know the caches of the models of transformers in a module."""
    # Where no model of its is, this is not loaded: to ask the package for the class would load it.
    models = sys.modules.get("transformers.modeling_utils")
    kind = getattr(models, "PreTrainedModel", None)
    if kind is None:
        return
    found = [part for part in model.modules() if isinstance(part, kind)]
    if not found:
        return
    try:
        register = importlib.import_module(_EXPORTER).register_cache_pytrees_for_model
    except (ImportError, AttributeError):  # older ones know their caches themselves
        return
    for part in found:
        register(part)
