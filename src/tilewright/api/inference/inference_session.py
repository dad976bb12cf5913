"""A session under onnxruntime's name: a model in, arrays in and out by name.

Not the interface that shows what Tilewright is (`compile`, `Session`); for programs that were
written for onnxruntime.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final, final

from tilewright.api.inference.io_binding import IOBinding
from tilewright.api.inference.node_arg import ModelMetadata, NodeArg
from tilewright.api.inference.options import (
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    checked_options,
    checked_run_options,
    is_quiet,
)
from tilewright.api.inference.ort_value import OrtValue, checked_value
from tilewright.api.inference.providers import CPU, Provider, check_providers
from tilewright.api.load import run_reference
from tilewright.api.profiling import ProfiledCall, sample, timeline
from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import InputError, UserError
from tilewright.base.file_kinds import is_artifact_name
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.options import names_option, wrong
from tilewright.base.output_file import write_text_output
from tilewright.base.text import did_you_mean
from tilewright.formats.vmfb import is_archive
from tilewright.runtime.plan_executor import Array, as_array
from tilewright.runtime.session import Session

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tilewright.compiler.frontends.onnx import Source
    from tilewright.runtime.session_options import LoadOptions

Feed = Mapping[str, object]
Outputs = Array | tuple[Array, ...]
Callback = Callable[[Sequence[Array], object, str], object]
_LEVELS: Final = {
    GraphOptimizationLevel.ORT_DISABLE_ALL: 0,
    GraphOptimizationLevel.ORT_ENABLE_BASIC: 1,
}


@final
class InferenceSession(BoundToProcess):
    """Runs a model, with onnxruntime's methods.

    Args:
        path_or_bytes: an ONNX model or a `.vmfb`: its path or its bytes; or an `onnx.ModelProto`.
        sess_options: see `SessionOptions`.
        providers: names, or pairs of a name and options; the model runs on the CPU.
        provider_options: one mapping per provider; none has an effect.

    Raises: ModelError listing everything that is not supported; ArchiveError; UserError.
    Thread-safety: runs from several threads are independent.
    """

    _made_again = "tilewright.InferenceSession(path)"

    def __init__(
        self,
        path_or_bytes: Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        del provider_options
        self._options: SessionOptions = checked_options(sess_options)
        check_providers(providers)
        # Under this name programs for onnxruntime look for the model's path.
        self._model_path: str | None = (
            fspath(path_or_bytes) if isinstance(path_or_bytes, str | PathLike) else None
        )
        with warnings.catch_warnings():
            if is_quiet(self._options):
                warnings.simplefilter("ignore", TilewrightWarning)
            self._session, self._metadata = _open(path_or_bytes, self._options)
        self._input_names: tuple[str, ...] = self._session.executor.input_names
        self._output_names: tuple[str, ...] = self._session.executor.output_names
        self._profiled: list[ProfiledCall] | None = (
            [] if self._options.enable_profiling else None
        )
        self._profiling_start_ns: int = time.perf_counter_ns()

    def __repr__(self) -> str:
        return f"<InferenceSession of {self._session!r}>"

    @property
    def session(self) -> Session:
        """The session behind it, with what onnxruntime has no word for."""
        return self._session

    # --- what the model is ---------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in order."""
        return [NodeArg.of(spec) for spec in self._session.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in order."""
        return [NodeArg.of(spec) for spec in self._session.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are constants of the compiled code."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        """The options of this session."""
        return self._options

    def get_providers(self) -> list[str]:
        """What runs the model."""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, object]]:
        """No provider has options here."""
        return {CPU: {}}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        """Warn of providers that are not there; the model stays on the CPU."""
        del provider_options
        check_providers(providers)

    def enable_fallback(self) -> None:
        """Nothing: there is one provider."""

    def disable_fallback(self) -> None:
        """Nothing: there is one provider."""

    # --- runs ----------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feed,
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """Run once.

        Args:
            output_names: which outputs, in which order; None or empty = all.
            input_feed: an array (or what is convertible to one) per input.
            run_options: see `RunOptions`.

        Raises: InputError naming the input that is missing, unknown or does not fit; UserError for
        an unknown output.
        """
        wanted = self._output_indices(output_names) if output_names else None
        checked_run_options(run_options)
        results = self._call(input_feed)
        return list(results) if wanted is None else [results[i] for i in wanted]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feed,
        callback: Callback,
        user_data: object,
        run_options: RunOptions | None = None,
    ) -> None:
        """Begin a run; `callback(results, user_data, error)` is called on a thread when it ends.

        The error is empty if there was none, and then there are results.
        Raises: what `run` raises for unknown outputs.
        """
        wanted = self._output_indices(output_names or self._output_names)
        checked_run_options(run_options)
        if not callable(callback):
            raise wrong(
                "callback", callback, "a function of results, user data and an error"
            )
        if not isinstance(input_feed, Mapping):
            raise self._wrong_feed(input_feed)

        def ended(call: Future[Outputs]) -> None:
            error = call.exception()
            if error is not None:
                callback([], user_data, str(error))
                return
            results = _as_tuple(call.result())
            callback([results[i] for i in wanted], user_data, "")

        self._session.begin(dict(input_feed)).add_done_callback(ended)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` on values."""
        if not isinstance(input_dict_ort_values, Mapping):
            raise self._wrong_feed(input_dict_ort_values)
        feed = {
            name: checked_value(name, value).numpy()
            for name, value in input_dict_ort_values.items()
        }
        return [OrtValue(array) for array in self.run(output_names, feed, run_options)]

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on what is bound; the outputs go where they are bound to."""
        checked_run_options(run_options)
        if not isinstance(iobinding, IOBinding):
            raise wrong("iobinding", iobinding, "what io_binding() returned")
        results = self._call(iobinding.inputs)
        iobinding.accept(dict(zip(self._output_names, results, strict=True)))

    def _call(self, feed: Feed) -> tuple[Array, ...]:
        try:
            arrays = [feed[name] for name in self._input_names]
        except (KeyError, TypeError) as error:
            raise self._wrong_feed(feed) from error
        if len(feed) != len(arrays):
            raise self._wrong_feed(feed)
        results = _as_tuple(self._session(*arrays))
        if self._profiled is not None:
            self._profile(self._profiled, arrays)
        return results

    # --- profiling -----------------------------------------------------------------------

    def _profile(self, calls: list[ProfiledCall], values: Sequence[object]) -> None:
        """Make the call once more, command by command."""
        arrays = [as_array(value) for value in values]
        dims = self._session.executor.dimensions_of(arrays)
        calls.append(ProfiledCall(sample(self._session, arrays), dims))

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, on the clock of `time.perf_counter_ns`."""
        return self._profiling_start_ns

    def end_profiling(self) -> str:
        """Write a timeline of the runs since the session was made, for Perfetto.

        Each of them was made once more, command by command, for it.
        Returns: the file; empty if the options did not ask for profiling.
        """
        if self._profiled is None:
            return ""
        session, calls = self._session, self._profiled
        plan = None if session.variant is None else session.variant.plan
        moment = time.strftime("%Y-%m-%d_%H-%M-%S")
        path = f"{self._options.profile_file_prefix}_{moment}.json"
        write_text_output(path, json.dumps(timeline(session.location, CPU, plan, calls)))
        self._profiled = None
        return path

    def _wrong_feed(self, feed: object) -> InputError:
        if not isinstance(feed, Mapping):
            return InputError(
                f"input_feed is a {type(feed).__name__}, expected a mapping from name to array"
            )
        missing = [name for name in self._input_names if name not in feed]
        if missing:
            return InputError(f"required inputs {missing} are missing from the input feed")
        unknown = next(str(name) for name in feed if name not in self._input_names)
        return InputError(
            f"there is no input '{unknown}'",
            hint=did_you_mean(unknown, self._input_names)
            or f"inputs: {', '.join(self._input_names)}",
        )

    def _output_indices(self, names: Sequence[str]) -> list[int]:
        names = names_option("output_names", names, "names")
        unknown = [name for name in names if name not in self._output_names]
        if unknown:
            raise UserError(
                f"there is no output '{unknown[0]}'",
                hint=did_you_mean(unknown[0], self._output_names)
                or f"outputs: {', '.join(self._output_names)}",
            )
        return [self._output_names.index(name) for name in names]


def _open(source: Source, options: SessionOptions) -> tuple[Session, ModelMetadata]:
    """Load an artifact, or compile a model."""
    threads = options.intra_op_num_threads
    settings: LoadOptions = {"threads": threads or None, "host_function": run_reference}
    if isinstance(source, str | PathLike) and is_artifact_name(fspath(source)):
        session = Session.from_file(fspath(source), **settings)
    elif isinstance(source, bytes | bytearray | memoryview) and is_archive(source):
        session = Session.from_bytes(source, **settings)
    else:
        return _compile(source, options, threads)
    return session, ModelMetadata(graph_name=session.location)


def _compile(
    source: Source, options: SessionOptions, threads: int
) -> tuple[Session, ModelMetadata]:
    # Imported here: who loads artifacts needs no compiler.
    with LATE_IMPORTS:
        from tilewright.api import model  # noqa: PLC0415
        from tilewright.compiler.frontends import onnx  # noqa: PLC0415
        from tilewright.compiler.packaging.archive import (  # noqa: PLC0415
            check_artifact_path,
        )

    saved = options.optimized_model_filepath
    if saved:  # said before the work, not after it
        check_artifact_path(saved)
    found = onnx.read_metadata(source)
    sizes = options.free_dimensions
    compiled = model.compile(
        source,
        threads=threads or None,
        opt_level=_LEVELS.get(options.graph_optimization_level),
        input_shapes=onnx.shapes_with(source, sizes) if sizes else None,
    )
    if saved:
        compiled.save(saved)
    metadata = ModelMetadata(
        producer_name=found.producer,
        graph_name=found.name,
        domain=found.domain,
        description=found.description,
        graph_description=found.graph_description,
        version=found.version,
        custom_metadata_map=dict(found.properties),
    )
    return compiled.session, metadata


def _as_tuple(results: Outputs) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)
