"""Options of sessions and runs under onnxruntime's names.

What has a counterpart here takes effect; pure hints to onnxruntime's own executor and memory pools
are kept and do nothing, as said at each.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, final

from tilewright.api.inference.process import default_logger_severity
from tilewright.base.errors import UserError
from tilewright.base.knobs import THREAD_LIMIT
from tilewright.base.options import (
    count_option,
    flag_option,
    path_option,
    text_option,
    wrong,
)


class GraphOptimizationLevel(enum.IntEnum):
    """How much the compiler does; the values are onnxruntime's."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether independent nodes run side by side.  Here one kernel runs at a time, on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@final
class SessionOptions:
    """Options of a session.

    Attributes:
        intra_op_num_threads: threads of a call; 0 = the cores this process may use.
        graph_optimization_level: how much the compiler does.
        enable_profiling, profile_file_prefix: keep times of every command, for `end_profiling`.
        optimized_model_filepath: where to keep the compiled artifact (`.vmfb`).
        log_severity_level: 0 (verbose) to 4 (fatal); warnings are not shown from 3 on; -1: that of the process.
        use_deterministic_compute: kept; results have the same bits whatever the threads, always.
        execution_mode, execution_order, inter_op_num_threads: kept and of no effect.
        enable_cpu_mem_arena, enable_mem_pattern, enable_mem_reuse: kept and of no effect.
        use_per_session_threads, logid, log_verbosity_level: kept and of no effect.
    """

    __slots__ = (
        "_entries",
        "_free_dimensions",
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "enable_profiling",
        "execution_mode",
        "execution_order",
        "graph_optimization_level",
        "inter_op_num_threads",
        "intra_op_num_threads",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "optimized_model_filepath",
        "profile_file_prefix",
        "use_deterministic_compute",
        "use_per_session_threads",
    )

    def __init__(self) -> None:
        self.enable_cpu_mem_arena: bool = True
        self.enable_mem_pattern: bool = True
        self.enable_mem_reuse: bool = True
        self.enable_profiling: bool = False
        self.execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order: object = None
        self.graph_optimization_level: GraphOptimizationLevel = (
            GraphOptimizationLevel.ORT_ENABLE_ALL
        )
        self.inter_op_num_threads: int = 0
        self.intra_op_num_threads: int = 0
        self.log_severity_level: int = -1
        self.log_verbosity_level: int = 0
        self.logid: str = ""
        self.optimized_model_filepath: str = ""
        self.profile_file_prefix: str = "onnxruntime_profile_"
        self.use_deterministic_compute: bool = False
        self.use_per_session_threads: bool = True
        self._entries: dict[str, str] = {}
        self._free_dimensions: dict[str, int] = {}

    @property
    def free_dimensions(self) -> dict[str, int]:
        """Sizes of named dynamic dimensions."""
        return dict(self._free_dimensions)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the dynamic dimensions of that name.  Raises: UserError for a size below 1."""
        name = text_option("name", name, "the name of a dimension")
        self._free_dimensions[name] = count_option(f"dimension '{name}'", size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry for `get_session_config_entry`; none has an effect here.

        Raises: UserError for what is no text.
        """
        _keep(self._entries, key, value)

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added.  Raises: UserError if there is none."""
        if key not in self._entries:
            raise UserError(f"there is no session config entry '{key}'")
        return self._entries[key]

    def has_providers(self) -> bool:
        """Whether providers were added to the options: they are given to the session."""
        return False

    def add_free_dimension_override_by_denotation(self, name: str, size: int) -> NoReturn:
        """Raises: UserError; denotations are not read."""
        del size
        _refuse(
            f"dimensions are not found by their denotation '{name}'",
            "use add_free_dimension_override_by_name",
        )

    def add_initializer(self, name: str, value: object) -> NoReturn:
        """Raises: UserError; weights come from the model."""
        del value
        _refuse(f"the weight '{name}' cannot be replaced", "change the model before")

    def add_external_initializers(self, names: object, values: object) -> NoReturn:
        """Raises: UserError; weights come from the model and the files beside it."""
        del names, values
        _refuse("weights cannot be handed over", "keep them in the file beside the model")

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Raises: UserError; such libraries are written against onnxruntime's kernels."""
        _refuse(
            f"'{path}' is a library of kernels for onnxruntime", "decompose its operators"
        )


def _keep(entries: dict[str, str], key: object, value: object) -> None:
    entries[text_option("key", key, "a text")] = text_option("value", value, "a text")


def _refuse(problem: str, hint: str) -> NoReturn:
    raise UserError(problem, hint=hint)


@final
class RunOptions:
    """Options of a run.

    Attributes:
        terminate: refuse to run; a call that has begun is not ended.
        only_execute_path_to_fetches, log_severity_level: kept and of no effect.
        log_verbosity_level, logid: kept and of no effect.
    """

    __slots__ = (
        "_entries",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "only_execute_path_to_fetches",
        "terminate",
    )

    def __init__(self) -> None:
        self.log_severity_level: int = -1
        self.log_verbosity_level: int = 0
        self.logid: str = ""
        self.only_execute_path_to_fetches: bool = False
        self.terminate: bool = False
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry for `get_run_config_entry`; none has an effect here.

        Raises: UserError for what is no text.
        """
        _keep(self._entries, key, value)

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added.  Raises: UserError if there is none."""
        if key not in self._entries:
            raise UserError(f"there is no run config entry '{key}'")
        return self._entries[key]


_QUIET_FROM: Final = (
    3  # onnxruntime's levels: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal
)


def is_quiet(options: SessionOptions) -> bool:
    """Whether the user asked not to see warnings, of this session or of all."""
    own = options.log_severity_level
    return (default_logger_severity() if own < 0 else own) >= _QUIET_FROM


def checked_options(options: Any) -> SessionOptions:
    """The options that a session was given.

    Raises: UserError for those of another library, and for values that an option cannot have.
    """
    if options is None:
        return SessionOptions()
    if not isinstance(options, SessionOptions):
        raise _foreign("sess_options", options, "SessionOptions")
    for name, check in _CHECKS.items():
        check(name, getattr(options, name))
    return options


def checked_run_options(options: Any) -> RunOptions | None:
    """The options that a run was given.

    Raises: UserError for those of another library, and for a run that was told to end.
    """
    if options is None:
        return None
    if not isinstance(options, RunOptions):
        raise _foreign("run_options", options, "RunOptions")
    if flag_option("terminate", options.terminate):
        raise UserError("the run was told to terminate")
    return options


def _foreign(name: str, options: object, wanted: str) -> UserError:
    kind = type(options)
    return UserError(
        f"{name} is a {kind.__module__}.{kind.__name__}, expected tilewright.{wanted}",
        hint="import tilewright as ort",
    )


def _check_threads(name: str, value: object) -> None:
    count_option(name, value, least=0, most=THREAD_LIMIT)


def _check_level(name: str, value: object) -> None:
    count_option(name, value, least=-1)


def _check_path(name: str, value: object) -> None:
    if value != "":
        path_option(name, value)


def _check_text(name: str, value: object) -> None:
    text_option(name, value, "a text")


def _member_of(kind: type[enum.IntEnum]) -> Callable[[str, object], None]:
    def check(name: str, value: object) -> None:
        if isinstance(value, bool) or value not in list(kind):
            raise wrong(name, value, f"a member of {kind.__name__}")

    return check


_CHECKS: Final[Mapping[str, Callable[[str, object], object]]] = {
    "intra_op_num_threads": _check_threads,
    "inter_op_num_threads": _check_threads,
    "graph_optimization_level": _member_of(GraphOptimizationLevel),
    "execution_mode": _member_of(ExecutionMode),
    "enable_profiling": flag_option,
    "enable_cpu_mem_arena": flag_option,
    "enable_mem_pattern": flag_option,
    "enable_mem_reuse": flag_option,
    "use_deterministic_compute": flag_option,
    "use_per_session_threads": flag_option,
    "profile_file_prefix": _check_text,
    "optimized_model_filepath": _check_path,
    "logid": _check_text,
    "log_severity_level": _check_level,
    "log_verbosity_level": _check_level,
}
"""What values an attribute of `SessionOptions` can have; looked at when a session is made of them."""
