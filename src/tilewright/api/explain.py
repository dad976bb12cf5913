"""`explain`: why a model takes as long as it does, and what would help.

Called by users (`tilewright.explain`); the sentences are made by `api.profiling.explanation`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.api.model import Model, open_model, watcher_of
from tilewright.api.model_inputs import Inputs
from tilewright.api.profiling import CALLS
from tilewright.api.profiling.explanation import Explanation, explain_session
from tilewright.compiler import pipeline
from tilewright.compiler.frontends import onnx
from tilewright.compiler.graph.ir import Graph
from tilewright.runtime.session import Session

__all__ = ["explain"]


def explain(
    model: onnx.Source | Graph | Model | Session,
    inputs: Inputs = None,
    *,
    dims: Mapping[str, int] | None = None,
    calls: int = CALLS,
    threads: int | None = None,
    progress: pipeline.Progress | bool | None = None,
) -> Explanation:
    """Why a model takes as long as it does: every kernel with what holds it up, and what would help.

    Calls it a few times, measures the limits of this machine beside, and compares.

    Args:
        model: what `compile` takes, the path of a `.vmfb`, a `Model` or a `Session`.
        inputs: what it is called with: arrays by position or by name; default: random values.
        dims: sizes of dynamic dimensions for random values; others are 1.
        calls: calls that are timed; medians are shown.
        threads: threads a call may use, where the model is not loaded yet.
        progress: as for `compile`.

    Returns: what there is to say: `print(tw.explain("model.onnx"))`, or `.findings` to go through.
    Raises: InputError for inputs that do not fit; errors of compiling and loading.
    """
    opened = open_model(model, threads, progress)
    if isinstance(opened, Model):
        return opened.explain(inputs, dims=dims, calls=calls, progress=progress)
    return explain_session(
        opened,
        inputs,
        dims=dims,
        name=str(opened.location),
        calls=calls,
        watcher=watcher_of(progress),
    )
