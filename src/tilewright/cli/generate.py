"""`tilewright generate`: let a language model go on with a text, or answer, as it comes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, final

import click

from tilewright.base.errors import UserError
from tilewright.base.input_file import read_small_file, why_no_file
from tilewright.base.interrupts import INTERRUPTED, answered
from tilewright.base.json_text import read_json
from tilewright.base.output_file import check_output
from tilewright.base.text import printable, utf8
from tilewright.cli.display import err, example
from tilewright.cli.language_options import (
    CONTEXT,
    MODEL,
    PRECISION,
    THREADS,
    open_model,
    sampling_of,
    sampling_options,
)
from tilewright.cli.option_groups import OptionGroup, Verb, option

if TYPE_CHECKING:
    from tilewright.api.language.chat import Message
    from tilewright.api.language.language_model import LanguageModel, Text
    from tilewright.api.language.sampling import Sampling


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is asked of the model."""

    tokens: int
    system: str | None
    stop: tuple[str, ...]
    schema: Mapping[str, object] | None
    sampling: Sampling


_MOST_SCHEMA_BYTES: Final = 1 << 20


@click.command(
    "generate",
    cls=Verb,
    short_help="Let a language model go on with a text, or answer.",
    epilog=example(
        'tilewright generate model.gguf "Once upon a time"',
        'tilewright generate model.gguf --chat "Why is the sky blue?" --temperature 0',
        "tilewright generate model.gguf --chat   # a conversation, line by line",
        "cat notes.txt | tilewright generate model.gguf - --tokens 40",
        'tilewright generate model.gguf --chat "Name three rivers." --json-schema '
        '\'{"type": "array", "items": {"type": "string"}}\'',
    ),
)
@MODEL
@click.argument("prompt", required=False)
@option("--tokens", type=click.IntRange(0), default=128, show_default=True, metavar="N",
        help="How many tokens are made at most.")  # fmt: skip
@option("--chat/--raw", default=False,
        help="The prompt is a question to the assistant, or (default) a text to go on with.")  # fmt: skip
@option("--system", metavar="TEXT", help="What the assistant is told before (with --chat).")
@option("--stop", multiple=True, metavar="TEXT", help="End before this text.")
@option("--json", "is_json", is_flag=True, group=OptionGroup.SAMPLING,
        help="What is made is a JSON object.")  # fmt: skip
@option("--json-schema", metavar="FILE", group=OptionGroup.SAMPLING,
        help="What is made is JSON that this JSON schema allows; or the schema itself, which begins with {.")  # fmt: skip
@option("--prompt-cache", type=click.Path(path_type=Path), metavar="FILE",
        help="Take what was read from here, and leave it here (.safetensors).")  # fmt: skip
@CONTEXT
@THREADS
@PRECISION
@sampling_options
def command(
    model: Path,
    prompt: str | None,
    chat: bool,
    context: int | None,
    threads: int | None,
    precision: str,
    prompt_cache: Path | None,
    **options: object,
) -> None:
    """Let a language model (.gguf) go on with PROMPT; "-" reads it from standard input.

    The text comes as it is made; what it took stands at the end, on standard error.
    """
    request = _Request(
        tokens=cast("int", options["tokens"]),
        system=cast("str | None", options["system"]),
        stop=cast("tuple[str, ...]", options["stop"]),
        schema=_schema_of(
            cast("bool", options["is_json"]), cast("str | None", options["json_schema"])
        ),
        sampling=sampling_of(options),
    )
    if request.system is not None and not chat:
        raise UserError("--system is for --chat")
    if prompt is None and not chat:
        problem = why_no_file(model)
        if problem is not None:  # a prompt alone, say
            hint = 'tilewright generate model.gguf "Once upon a time"'
            raise UserError(problem, location=model, hint=hint)
        words = shlex.join(["tilewright", "generate", str(model)])
        raise UserError("no prompt given", hint=f'{words} "Once upon a time"')
    if prompt_cache is not None:
        check_output(prompt_cache, inputs=[model])
    opened = open_model(model, context, threads, precision)
    if prompt_cache is not None and prompt_cache.exists():
        _load_cache(opened, prompt_cache)
    if prompt == "-":
        prompt = _read(sys.stdin.read, opened)
    ended = (
        _converse(opened, prompt, request)
        if chat
        else _go_on(opened, prompt or "", request)
    )
    if prompt_cache is not None:
        opened.cache.save(prompt_cache)
    if not ended:
        raise click.exceptions.Exit(INTERRUPTED)


def _load_cache(model: LanguageModel, path: Path) -> None:
    """Take what an earlier run left.  Raises: UserError with what can be done about a file that is none of it."""
    try:
        model.cache.load(path)
    except UserError as error:
        error.hint = "give another name, or remove the file: a new one is written"
        raise


def _schema_of(is_json: bool, given: str | None) -> Mapping[str, object] | None:
    """What `--json` and `--json-schema` ask for.  Raises: UserError for no schema."""
    from tilewright.api.language.json_schemas import ANY_OBJECT, grammar_of

    if given is None:
        return ANY_OBJECT if is_json else None
    if is_json:
        raise UserError("--json and --json-schema are two forms of one text")
    text, place = given, "--json-schema"
    if not given.lstrip().startswith("{"):
        data = read_small_file(given, _MOST_SCHEMA_BYTES)
        text, place = data.decode("utf-8", "replace"), given
    try:
        schema = read_json(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is no JSON: {error}", location=place) from error
    if not isinstance(schema, dict):
        raise UserError("is no JSON object", location=place)
    found = cast("Mapping[str, object]", schema)
    grammar_of(found)  # what it says wrong is said before anything is compiled
    return found


def _go_on(model: LanguageModel, prompt: str, request: _Request) -> bool:
    """The prompt and what follows it."""
    text = model.stream(
        prompt,
        tokens=request.tokens,
        sampling=request.sampling,
        stop=request.stop,
        schema=request.schema,
    )
    click.echo(_shown(prompt), nl=False)
    return _show(text)


def _converse(model: LanguageModel, first: str | None, request: _Request) -> bool:
    """An answer to a question; without one to each line of standard input."""
    system: list[Message] = []
    if request.system is not None:
        system = [{"role": "system", "content": request.system}]
    turns = list(system)
    for question in [first] if first is not None else _lines(model):
        turns.append({"role": "user", "content": question})
        text = model.chat(
            turns,
            tokens=request.tokens,
            sampling=request.sampling,
            stop=request.stop,
            schema=request.schema,
        )
        if not _show(text):
            return False
        answer = model.tokenizer.decode(text.tokens)
        turns.append({"role": "assistant", "content": answer})
    return True


def _read(read: Callable[[int], str], model: LanguageModel) -> str:
    """A text, or a line, of standard input, which may never end.

    Raises: UserError for one that has no room in any case (nothing is cut, and no rest of a line is the next one), and
        for bytes that are no text.
    """
    most = model.context * model.tokenizer.longest_bytes + 1
    try:
        text = read(most)
    except UnicodeDecodeError as error:
        raise UserError(
            f"is no text in {error.encoding}: {error.reason}",
            location="standard input",
            hint="change its encoding (iconv), or say what it is: PYTHONIOENCODING=latin-1",
        ) from error
    utf8(text, "standard input")  # a stream may let every byte pass, as with LC_ALL=C
    if len(text) >= most:
        raise UserError(
            f"the prompt has {most} characters or more, there is room for {model.context - 1} tokens",
            hint="a larger context",
        )
    return text


def _lines(model: LanguageModel) -> Iterator[str]:
    """Lines of standard input, after a sign where somebody types them.  Raises: UserError as `_read`."""
    is_typed = sys.stdin.isatty()
    while True:
        if is_typed:
            click.echo("> ", nl=False, err=True)
        line = _read(sys.stdin.readline, model)
        if not line:
            return
        if line.strip():
            yield line.strip()


def _show(text: Text) -> bool:
    """Print a text as it comes, then what it took; whether nobody stopped it."""
    ended = True
    try:
        for part in text:
            click.echo(_shown(part), nl=False)
            sys.stdout.flush()
    except KeyboardInterrupt:
        answered()
        ended = False
    click.echo()
    err.print(str(text.timing) if ended else f"interrupted; {text.timing}")
    return ended


def _shown(text: str) -> str:
    """Text in lines, without what would steer a terminal."""
    return "\n".join(
        "\t".join(map(printable, line.split("\t"))) for line in text.split("\n")
    )
