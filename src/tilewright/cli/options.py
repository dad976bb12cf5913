"""Options that several verbs take, and inputs for the models they name.

numpy is imported when a value is read, so that help and wrong options take no time.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import click

from tilewright.base.errors import InputError, UserError
from tilewright.base.input_file import why_no_file
from tilewright.base.text import whole_number
from tilewright.cli.option_groups import OptionGroup, option

if TYPE_CHECKING:
    from tilewright.formats.tensor_spec import TensorSpec
    from tilewright.formats.tensor_text import Array
    from tilewright.runtime.session import Session

Command = TypeVar("Command", bound=Callable[..., object])


NO_LIMITS: Final = option(
    "--no-limits",
    is_flag=True,
    help="Do not measure the machine's limits.",
    group=OptionGroup.MEASURING,
)
CALLS: Final = option(
    "--calls",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Calls that are timed; what is shown are medians.",
    metavar="N",
)
THREADS: Final = option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="Threads that a call may use; default: the cores of this process.",
)
_INPUT_SHAPE: Final = option(
    "--input-shape",
    "input_shape",
    multiple=True,
    metavar="NAME=D,D,…",
    help="Fix or name the dimensions of an input, for example ids=batch,128.",
)
_INPUT_VALUE: Final = option(
    "--input-value",
    "input_value",
    multiple=True,
    metavar="NAME=VALUE",
    help="Make an input a constant, for example shape=2xi64=1 128 (see run --help).",
)
TARGET: Final = option(
    "--target",
    show_default="host",
    metavar="TEXT",
    help="For example 'x86_64 -mcpu=znver4' or 'aarch64'; after the word c ('c', 'c host', 'c x86_64-v3') "
    "code is made through C, by whichever compiler there is.",
)


def coverage_options(command: Command) -> Command:
    """--target, --input-shape, --input-value: what decides how a model will run."""
    for decorate in (_INPUT_VALUE, _INPUT_SHAPE, TARGET):
        command = decorate(command)
    return command


def compile_options(command: Command) -> Command:
    """What a compilation is told.

    --target, --levels, --opt-level, --threads, --jobs, --input-shape, --input-value,
    --precision, --no-index-checks, --no-cache.
    """
    for decorate in (
        option(
            "--no-cache",
            is_flag=True,
            help="Do not reuse machine code of earlier compilations.",
            group=OptionGroup.CODE,
        ),
        option(
            "--precision",
            type=click.Choice(["f32", "bf16", "f16", "i8"]),
            default="f32",
            show_default=True,
            help="Round the operands of matrix products and convolutions; sums and results stay f32. "
            "i8: rows that meet weights of 4 or 8 bits in blocks.",
            group=OptionGroup.CODE,
        ),
        option(
            "--no-index-checks",
            is_flag=True,
            help="Clamp indices of the data that are out of range, without a word.",
            group=OptionGroup.CODE,
        ),
        _INPUT_SHAPE,
        _INPUT_VALUE,
        option(
            "--jobs",
            type=click.IntRange(1),
            help="Processes that generate code.",
            metavar="N",
            group=OptionGroup.CODE,
        ),
        THREADS,
        option(
            "-O",
            "--opt-level",
            type=click.IntRange(0, 3),
            default=2,
            show_default=True,
            help="0 = the model's ops as they are, 1 = rewritten for kernels (layouts, packed "
            "weights, one op for several), 2 = and fused into few kernels; 3 is the same.",
            metavar="N",
            group=OptionGroup.CODE,
        ),
        option(
            "--levels",
            metavar="v2,v3,v4",
            help="Make code for several x86-64 levels or CPUs; the best is picked at load.",
            group=OptionGroup.CODE,
        ),
        TARGET,
    ):
        command = decorate(command)
    return command


def compile_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """What some of `compile_options` say, as arguments of `tilewright.compile`.  Raises: UserError."""
    readers: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
        "input_shape": ("input_shapes", parse_input_shapes),
        "input_value": ("input_values", parse_input_values),
        "levels": ("levels", parse_levels),
        "no_cache": ("cache", operator.not_),
        "no_index_checks": ("check_indices", lambda no: False if no else None),
    }
    arguments: dict[str, Any] = {}
    for name, value in given.items():
        argument, read = readers.get(name, (name, lambda same: same))
        arguments[argument] = read(value)
    return arguments


def json_option(group: OptionGroup = OptionGroup.COMMON) -> Callable[[Command], Command]:
    """--json."""
    return option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON object instead.",
        group=group,
    )


def timing_options(command: Callable[..., None]) -> Callable[..., None]:
    """--input, --dim, --calls, --no-limits: calls whose medians are shown beside the limits."""
    return call_options(CALLS(NO_LIMITS(command)))


@final
@dataclass(frozen=True, slots=True)
class CallOptions:
    """What `--input` and `--dim` say of calls: the values themselves, or sizes of random ones."""

    inputs: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The values of `--dim`.  Raises: UserError, also beside `--input`."""
        return parse_dims(self.dims, self.inputs)

    def arrays(self, session: Session) -> Sequence[Array]:
        """What the session is called with.  Raises: UserError."""
        sizes = self.sizes
        if self.inputs:
            return given_inputs(self.inputs, session.executor.input_names, session.inputs)
        from tilewright.api.model_inputs import random_inputs

        return random_inputs(session.inputs, sizes)


def call_options(command: Callable[..., None]) -> Callable[..., None]:
    """--input, --dim: what a model is called with over and over; the command gets them as one `call`."""

    @option("--input", "inputs", multiple=True, metavar="[NAME=]VALUE",
            help="As for run; default: random values.")  # fmt: skip
    @option("--dim", "dims", multiple=True, metavar="NAME=N", help="A dynamic size.")
    @functools.wraps(command)
    def run(
        *given: Any, inputs: tuple[str, ...], dims: tuple[str, ...], **others: Any
    ) -> None:
        command(*given, call=CallOptions(inputs, dims), **others)

    return run


def beside(model: str | Path, suffix: str) -> Path:
    """Where a verb writes to without `--output`.  Raises: InputError if there is no such model."""
    problem = why_no_file(model)
    if problem is not None:
        raise InputError(problem, location=model)
    return Path(model).with_suffix(suffix)


def parse_levels(text: str | None) -> tuple[str, ...] | None:
    """The levels of `--levels v2,v3`."""
    return tuple(word.strip() for word in text.split(",")) if text else None


def parse_input_shapes(values: Sequence[str]) -> Mapping[str, Sequence[int | str]] | None:
    """The shapes of `--input-shape name=1,N`.  Raises: UserError."""
    shapes: dict[str, Sequence[int | str]] = {}
    for value in values:
        name, equals, dims = value.partition("=")
        if not equals or not name:
            raise UserError(f"--input-shape '{value}': expected NAME=D,D,…")
        words = [w.strip() for w in dims.split(",")] if dims.strip() else []
        shapes[name] = [_size_or_name(value, w) for w in words]
    return shapes or None


def _size_or_name(option: str, word: str) -> int | str:
    if not word.lstrip("-").isdigit():
        return word
    size = whole_number(word, signed=True)
    if size is None:
        shown = f"--input-shape '{option[:40]}'"
        raise UserError(f"{shown}: '{word[:40]}' is no size of 64 bits")
    return size


def parse_input_values(values: Sequence[str]) -> Mapping[str, Array] | None:
    """The arrays of `--input-value name=2xi64=1 2`.  Raises: UserError."""
    from tilewright.formats.tensor_text import TensorReader

    found: dict[str, Array] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise UserError(f"--input-value '{value}': expected NAME=VALUE")
        (found[name],) = TensorReader().read([text])
    return found or None


def parse_dims(values: Sequence[str], inputs: Sequence[str] = ()) -> dict[str, int]:
    """The values of `--dim batch=4`.  Raises: UserError, also beside `--input`."""
    if values and inputs:
        raise UserError(f"--dim '{values[0]}': goes with random inputs, not with --input")
    dims: dict[str, int] = {}
    for value in values:
        name, _, number = value.partition("=")
        size = whole_number(number)
        if not name or size is None:
            raise UserError(f"--dim '{value[:80]}': expected NAME=NUMBER")
        dims[name] = size
    return dims


def given_inputs(
    values: Sequence[str], names: Sequence[str], specs: Sequence[TensorSpec] = ()
) -> list[Array]:
    """The arrays of `--input`, in the order of the inputs; `specs` as for `read_inputs`.  Raises: InputError."""
    from tilewright.cli.tensor_arguments import read_inputs
    from tilewright.runtime.plan_executor import arrange

    plain, named = read_inputs(values, names, specs)
    return arrange(names, plain, named or None)
