"""Options of the verbs that speak: which model, how much room, how tokens are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from tilewright.cli.display import phase_bar
from tilewright.cli.option_groups import NUMBER, OptionGroup, option
from tilewright.cli.options import THREADS, Command

if TYPE_CHECKING:
    from tilewright.api.language.language_model import LanguageModel
    from tilewright.api.language.sampling import Sampling

MODEL: Final = click.argument("model", type=click.Path(path_type=Path))
CONTEXT: Final = option(
    "--context",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens that prompt and answer have room for; default: the model's, at most 8192.",
)
PRECISION: Final = option(
    "--precision",
    type=click.Choice(["f32", "i8"]),
    default="f32",
    show_default=True,
    help="i8: round activations to 8 bits where they meet weights of 4 or 8 bits, as llama.cpp does; faster.",
)
_SAMPLING: Final = (
    option(
        "--temperature", type=NUMBER, default=0.8, show_default=True, metavar="X",
        help="Above 1 more surprising; 0 takes the most likely token, always.", group=OptionGroup.SAMPLING,
    ),
    option(
        "--top-k", type=click.IntRange(0), default=40, show_default=True, metavar="N",
        help="Draw from so many most likely tokens; 0: from all.", group=OptionGroup.SAMPLING,
    ),
    option(
        "--top-p", type=click.FloatRange(0, 1), default=0.95, show_default=True, metavar="X",
        help="Draw from the most likely ones that together reach this probability.", group=OptionGroup.SAMPLING,
    ),
    option(
        "--min-p", type=click.FloatRange(0, 1), default=0.05, show_default=True, metavar="X",
        help="Draw from those that are at least this share as likely as the most likely.", group=OptionGroup.SAMPLING,
    ),
    option(
        "--repetition-penalty", type=NUMBER, default=1.0, show_default=True, metavar="X",
        help="Above 1 takes from what was read or said before; 1: nothing.", group=OptionGroup.SAMPLING,
    ),
    option(
        "--presence-penalty", type=NUMBER, default=0.0, show_default=True, metavar="X",
        help="Is taken from scores of tokens that were said.", group=OptionGroup.SAMPLING,
    ),
    option(
        "--frequency-penalty", type=NUMBER, default=0.0, show_default=True, metavar="X",
        help="Is taken from scores of tokens as often as they were said.", group=OptionGroup.SAMPLING,
    ),
    option(
        "--seed", type=click.IntRange(0), metavar="N",
        help="The same seed says the same; default: another one each time.", group=OptionGroup.SAMPLING,
    ),
)  # fmt: skip


def sampling_options(command: Command) -> Command:
    """Add the options of `Sampling`."""
    steps: tuple[Callable[[Command], Command], ...] = _SAMPLING[::-1]
    return reduce(lambda made, add: add(made), steps, command)


def sampling_of(options: Mapping[str, object]) -> Sampling:
    """What the options of `sampling_options` say."""
    from tilewright.api.language.sampling import Sampling

    return Sampling(
        temperature=cast("float", options["temperature"]),
        top_k=cast("int", options["top_k"]),
        top_p=cast("float", options["top_p"]),
        min_p=cast("float", options["min_p"]),
        seed=cast("int | None", options["seed"]),
        repetition_penalty=cast("float", options["repetition_penalty"]),
        presence_penalty=cast("float", options["presence_penalty"]),
        frequency_penalty=cast("float", options["frequency_penalty"]),
    )


def open_model(
    model: Path, context: int | None, threads: int | None, precision: str
) -> LanguageModel:
    """Compile a model, or find it compiled, with a line of progress on a terminal.

    Raises: as `LanguageModel`.
    """
    from tilewright.api.language.language_model import LanguageModel

    with phase_bar() as progress:
        return LanguageModel(
            model, context=context, threads=threads, precision=precision, progress=progress
        )


__all__ = [
    "CONTEXT",
    "MODEL",
    "PRECISION",
    "THREADS",
    "open_model",
    "sampling_of",
    "sampling_options",
]
