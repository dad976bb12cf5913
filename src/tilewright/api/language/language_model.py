"""A language model that is spoken to: text in, text out, token by token.

    model = tw.LanguageModel("model.gguf")
    print(model.generate("Once upon a time", tokens=64))

Joins the compiled programs, the tokenizer, the cache of keys and values, and sampling.  The graph is made by
`compiler.frontends.gguf`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np
import numpy.typing as npt

from tilewright.api.language.arguments import form_option, prompt_tokens, sampling_of
from tilewright.api.language.cache import Cache
from tilewright.api.language.chat import Message, render
from tilewright.api.language.constraints import Constraint, TextForm
from tilewright.api.language.form_store import FormStore
from tilewright.api.language.programs import Programs, digest_of, make_programs
from tilewright.api.language.sampling import Sampler, Sampling
from tilewright.api.language.stops import until
from tilewright.api.language.token_scores import TokenScore, token_score
from tilewright.api.language.tokenizer import Tokenizer
from tilewright.api.language.tool_calls import BEGIN
from tilewright.api.language.vocabulary import TokenType
from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import InputError, ModelError, UserError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.options import (
    choice_option,
    count_option,
    flag_option,
    names_option,
    path_option,
    text_option,
)
from tilewright.base.text import utf8
from tilewright.compiler.frontends.gguf import files_of, read_hyperparameters, read_model
from tilewright.formats.gguf import GgufFile
from tilewright.runtime.plan_executor import PlanExecutor
from tilewright.runtime.plan_executor.prepared_call import PreparedCall, PreparedFlow
from tilewright.runtime.session import Session

if TYPE_CHECKING:
    from tilewright.compiler.pipeline import Progress

_DEFAULT_CONTEXT: Final = 8192
_SPAN: Final = 128
"""Steps of one token look at a multiple of so many places, so that most of them are the same call."""
_PIECES: Final = (32, 512)
_PIECE_WORK: Final = 1 << 34
"""Of a prompt so many tokens are read at once, and others have a word in between: tokens times weights, about a second
of one core.  By a clock it would be closer, but where pieces end changes the last digits of scores."""

Floats = npt.NDArray[np.float32]


@final
@dataclass(slots=True)
class Timing:
    """What a text took.

    Attributes:
        prompt_tokens: of the prompt.
        reused_tokens: of them, those that the cache held already.
        read_tokens: of them, those that were read so far.
        new_tokens: that were made.
        prompt_seconds: for what was read so far, and in the end until the first token could be chosen.
        new_seconds: for the tokens behind the first.
        reason: why it ended: `stop` (the model said so), `length`; empty while it goes on.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    read_tokens: int = 0
    new_tokens: int = 0
    prompt_seconds: float = 0.0
    new_seconds: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        read = self.read_tokens
        parts = [f"{read} tokens read, {_rate(read, self.prompt_seconds)}"]
        if self.reused_tokens:
            parts[0] += f" ({self.reused_tokens} were read before)"
        made = max(0, self.new_tokens - 1)
        parts.append(f"{self.new_tokens} tokens made, {_rate(made, self.new_seconds)}")
        return "; ".join(parts)


def _rate(count: int, seconds: float) -> str:
    return (
        f"{count / seconds:.1f} tokens/s" if seconds > 0 and count else "no time measured"
    )


@final
@dataclass(slots=True, eq=False)
class Text:
    """A text that is being made: iterate over its parts as they come.

    Attributes:
        parts: the text of each step, which may be empty: where a character is not complete, and between pieces of a
            prompt that are read.
        timing: what it took so far.
        tokens: those that were made so far.
        scores: how likely each of them was, where that was asked for; without those that only `stop` cut off.
    """

    parts: Iterable[str]
    timing: Timing = field(default_factory=Timing)
    tokens: list[int] = field(default_factory=list[int])
    scores: list[TokenScore] = field(default_factory=list[TokenScore])

    def __iter__(self) -> Generator[str]:
        yield from self.parts

    def __str__(self) -> str:
        return "".join(self.parts)

    def cut(self, length: int) -> None:
        """Note that a text which stops it stands behind so many characters."""
        self.timing.reason = "stop"
        while self.scores and self.scores[-1].start >= length:
            self.scores.pop()


@final
class LanguageModel(BoundToProcess):
    """A model in a GGUF file, compiled for this machine.

    Thread-safety: texts may be made side by side, from several threads, but the cache is one: it is cheap to
    make one after the other.

    Args:
        path: the file.
        context: tokens that prompt and answer have room for; default: what the model was made for, at most 8192.
        threads: threads that a step may use; default: those of `compile`.
        precision: `"i8"` rounds activations to 8 bits where they meet the weights, as llama.cpp does: faster, and
            scores are off in the second digit instead of the fifth.
        cache: keep compiled programs on disk, so that the next start takes no time.
        progress: as for `compile`.

    Raises: ModelError, ArchiveError naming what is wrong with the file; UserError for options that make no sense.
    """

    _made_again = "tilewright.LanguageModel(path)"

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        context: int | None = None,
        threads: int | None = None,
        precision: str = "f32",
        cache: bool = True,
        progress: Progress | bool | None = None,
    ) -> None:
        place = Path(path_option("path", path))
        self.file: Final[GgufFile] = read_model(place)
        form = read_hyperparameters(self.file)
        self.context: Final[int] = _room_of(self.file, form.context, context)
        self.tokenizer: Final[Tokenizer] = Tokenizer.of(self.file)
        _check_rows(self.file, len(self.tokenizer))
        digest = digest_of(self.file, files_of(place, self.file))
        precision = choice_option("precision", precision, ("f32", "i8"))
        self._programs: Programs = make_programs(
            place,
            digest,
            threads=threads,
            precision=precision,
            cache=flag_option("cache", cache),
            progress=progress,
        )
        specs = self._programs.next.inputs[3:]
        identity = bytes.fromhex(digest)
        if precision != "f32":  # keys and values of rounded activations are others
            identity += precision.encode()
        if "rope_factors_long.weight" in self.file.tensors:
            # Keys are turned by one set of divisors or the other.
            identity += bytes([self.context > form.near_context])
        self.cache: Final[Cache] = Cache(specs, self.context, identity)
        self._lock: threading.RLock = fork_lock(Rank.IMPORT)
        self._is_stepping: bool = False
        self._owner: Text | None = None
        self._steps: dict[tuple[int, int], _Step] = {}
        self._forms: FormStore = FormStore(self.tokenizer)
        self._piece: int = _piece_of(self.file)

    @property
    def name(self) -> str:
        """What the model is called."""
        name = self.file.metadata.get("general.name")
        return name if isinstance(name, str) else self.file.location

    @property
    def chat_template(self) -> str | None:
        """The template of conversations, if the file has one."""
        found = self.file.metadata.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    # --- text

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int = 128,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        schema: Mapping[str, object] | None = None,
    ) -> str:
        """The text that follows a prompt (see `stream`)."""
        return str(
            self.stream(prompt, tokens=tokens, sampling=sampling, stop=stop, schema=schema)
        )

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int = 128,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        likely: int | None = None,
        schema: Mapping[str, object] | TextForm | None = None,
    ) -> Text:
        """The text that follows a prompt, part by part.

        Args:
            prompt: a text, in which special tokens stand as themselves, or tokens.
            tokens: how many are made at most.
            sampling: how they are drawn; default: `Sampling()`.
            stop: texts that end it; they are not part of it.
            likely: keep how likely each token was (`Text.scores`), with so many most likely ones; None: do not.
            schema: the text is JSON that this JSON schema allows, as far as it comes: `{}` is any JSON, and where there are
                too few tokens the text ends in the middle of it.  Or what `form_of` made of one, for many texts.

        Raises: UserError for a prompt that there is no room for, and for a schema that cannot be kept to; InputError for
            tokens that there are not.
        """
        given = self.encode(prompt) if isinstance(prompt, str) else prompt_tokens(prompt)
        if not given:
            given = [t for t in (self.tokenizer.vocabulary.bos,) if t is not None]
        if not given:
            raise UserError("the prompt is empty, and the model has no token to begin with")
        self._check_room(len(given))
        sampling = sampling_of(sampling)
        given = self.tokenizer.checked(given)
        self.tokenizer.checked(sampling.logit_bias)
        most = min(count_option("tokens", tokens, least=0), self.context - len(given))
        kept = None if likely is None else count_option("likely", likely, least=0)
        stops = names_option("stop", stop or (), "texts")
        form = self.form_of(schema) if isinstance(schema, Mapping) else form_option(schema)
        constraint = None if form is None else Constraint(form)
        text = Text(())
        sampler = Sampler(sampling, given, constraint)
        made = self._made(given, most, sampler, text, kept)
        text.parts = until(made, stops, text.cut) if stops else made
        return text

    def form_of(self, schema: Mapping[str, object]) -> TextForm:
        """What texts a JSON schema allows.  Raises: UserError for a schema that cannot be kept to."""
        return self._forms.of_schema(schema)

    def encode(self, text: str, *, bos: bool | None = None) -> list[int]:
        """The tokens of a prompt, which is not looked at where even the longest tokens are too many.

        Args:
            text: any text, in which special tokens stand as themselves.
            bos: begin with the token that begins texts; default: as the model has it.

        Raises: UserError for one that there is no room for, and for half a character.
        """
        length = len(utf8(text_option("text", text, "a text")))
        self._check_room(length // self.tokenizer.longest_bytes, "at least ")
        return self.tokenizer.encode(text, bos=bos)

    def _check_room(self, count: int, more: str = "") -> None:
        if count >= self.context:
            raise UserError(
                f"the prompt has {more}{count} tokens, there is room for {self.context - 1}",
                hint="a larger context",
            )

    def _made(
        self,
        given: Sequence[int],
        most: int,
        sampler: Sampler,
        text: Text,
        likely: int | None,
    ) -> Generator[str]:
        timing, stream = text.timing, self.tokenizer.stream()
        timing.prompt_tokens = len(given)
        held, begin, first, length = list(given), time.perf_counter(), 0.0, 0
        if most:
            yield from self._read_ahead(held, text)
        while timing.new_tokens < most:
            token = self._choose(held, sampler, text, (likely, length))
            first = first or time.perf_counter()
            timing.prompt_seconds = first - begin
            timing.read_tokens = timing.prompt_tokens - timing.reused_tokens
            if token in self.tokenizer.vocabulary.ends:
                timing.reason = "stop"
                break
            held.append(token)
            text.tokens.append(token)
            timing.new_tokens += 1
            timing.new_seconds = time.perf_counter() - first
            part = stream.add(token)
            length += len(part)
            yield part
            if sampler.is_complete:
                timing.reason = "stop"
                break
        timing.reason = timing.reason or "length"
        yield stream.finish()

    def _read_ahead(self, held: Sequence[int], text: Text) -> Generator[str]:
        """Read a prompt up to its last piece; an empty part after each piece lets others have a word.

        Where another text takes over the cache meanwhile the rest is left to `_choose`, which reads all of it in one go:
        else two long prompts in turn would begin anew for ever.
        """
        begin, timing = time.perf_counter(), text.timing
        with self._one_at_a_time():
            self._own(held, text)
        while True:
            with self._one_at_a_time():
                left = len(held) - len(self.cache.tokens)
                if self._owner is not text or left <= self._piece:
                    return
                self._advance(held)
                timing.read_tokens += left - (len(held) - len(self.cache.tokens))
                timing.prompt_seconds = time.perf_counter() - begin
            yield ""

    def _choose(
        self,
        held: Sequence[int],
        sampler: Sampler,
        text: Text,
        kept: tuple[int | None, int],
    ) -> int:
        """The token behind those of a text; another text may have been made in between, from whatever thread.

        Args:
            held: the tokens before it.
            sampler: draws it.
            text: of which it is one.
            kept: how many likely ones are kept with it (None: nothing is), and the characters before it.
        """
        with self._one_at_a_time():
            if self._owner is not text or len(self.cache.tokens) != len(held) - 1:
                self._own(held, text)
            scores = self._read(held)[: len(self.tokenizer)]
            token = sampler.choose(scores)
            likely, start = kept
            if likely is not None and token not in self.tokenizer.vocabulary.ends:
                text.scores.append(token_score(scores, token, likely, start))
            return token

    def _own(self, held: Sequence[int], text: Text) -> None:
        """Let the cache be that of a text, as far as it agrees with it."""
        is_first = self._owner is not text and not text.tokens
        self._owner = text
        reused = self.cache.keep(held)
        if is_first:
            text.timing.reused_tokens = reused

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tokens: int = 512,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        schema: Mapping[str, object] | None = None,
    ) -> Text:
        """The assistant's answer to a conversation, part by part (see `stream`).

        Args:
            messages: the turns so far: `{"role": "user", "content": "Hello"}`.
            tokens: how many are made at most.
            sampling: how they are drawn; default: `Sampling()`.
            stop: texts that end it.
            schema: the answer is JSON that this JSON schema allows.

        Raises: UserError for a model without a chat template, and as `stream`.
        """
        prompt = self.encode(self.conversation(messages), bos=False)
        return self.stream(
            prompt, tokens=tokens, sampling=sampling, stop=stop, schema=schema
        )

    def conversation(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        options: Mapping[str, object] | None = None,
    ) -> str:
        """A conversation as the text that the model reads.

        Args:
            messages: the turns so far.
            tools: functions that the assistant may call, as JSON schema describes them.
            options: what else the chat template may look at, such as `{"enable_thinking": False}`.

        Raises: UserError for a model without a chat template, or whose template knows nothing of such tools.
        """
        template = self.chat_template
        if template is None:
            raise UserError(
                "has no chat template",
                location=self.file.location,
                hint="generate from a text",
            )
        if tools and not self._takes_tools(template):
            raise UserError(
                "'tools' is not supported: the chat template has none of the form <tool_call>",
                location=self.file.location,
            )
        vocabulary = self.tokenizer.vocabulary
        bos = "" if vocabulary.bos is None else vocabulary.tokens[vocabulary.bos]
        eos = "" if vocabulary.eos is None else vocabulary.tokens[vocabulary.eos]
        return render(
            template,
            messages,
            tools=tools,
            options=options,
            tokens={"bos_token": bos, "eos_token": eos},
            location=self.file.location,
        )

    def _takes_tools(self, template: str) -> bool:
        """Whether tools are put before the model, and what it calls can be read: it stands in the text."""
        if "tools" not in template or BEGIN not in template:
            return False
        (*_, token) = [-1, *self.tokenizer.encode(BEGIN, bos=False)]
        types = self.tokenizer.vocabulary.types
        return token < 0 or types[token] != TokenType.CONTROL

    # --- numbers

    def scores(self, tokens: Sequence[int]) -> Floats:
        """What the model says of the token behind these: `[vocabulary]`, before any sampling.

        Raises: InputError for no tokens, those that there are not, and more than there is room for.
        """
        given = self.tokenizer.checked(tokens)
        if not 1 <= len(given) <= self.context:
            raise InputError(f"got {len(given)} tokens, expected 1 .. {self.context}")
        with self._one_at_a_time():
            self._owner = None
            self.cache.keep(given)
            return self._read(given).copy()

    @contextmanager
    def _one_at_a_time(self) -> Generator[None]:
        """One thread at a time goes on with the cache, and a process that forks waits for it.

        Raises: UserError in a handler of a signal that came in the middle of a step.
        """
        with self._lock:
            if self._is_stepping:
                raise UserError(
                    "this thread is in the middle of a step of the model",
                    hint="a handler of a signal may note what it wants, for later",
                )
            self._is_stepping = True
            try:
                yield
            finally:
                self._is_stepping = False

    def _read(self, tokens: Sequence[int]) -> Floats:
        """Scores behind `tokens`, of which the cache holds the first; from then on it holds all of them."""
        scores: Floats | None = None
        while len(self.cache.tokens) < len(tokens):
            scores = self._advance(tokens)
        assert scores is not None, "at least one token is new"
        return scores

    def _advance(self, tokens: Sequence[int]) -> Floats:
        """Read one more piece of `tokens`; scores behind it."""
        done, total = len(self.cache.tokens), len(tokens)
        new = list(tokens[done : min(done + self._piece, self.cache.end_of_step(total))])
        scores = self._one(new[0], done) if len(new) == 1 else self._several(new, done)
        self.cache.advance(new, total)
        return scores

    def _one(self, token: int, position: int) -> Floats:
        span = min(-(-(position + 1) // _SPAN) * _SPAN, self.context)
        own = (span, self.cache.turn)
        step = self._steps.get(own)
        if step is None:
            step = self._steps[own] = _Step(self._programs.next, self.cache, 1, span)
        return step.run([token], position)

    def _several(self, tokens: Sequence[int], position: int) -> Floats:
        count = len(tokens)
        step = _Step(self._programs.read, self.cache, count, position + count)
        return step.run(tokens, position)


def _room_of(file: GgufFile, trained: int, context: int | None) -> int:
    """How many tokens there is room for; a model whose positions have rows of numbers has no more than these."""
    table = file.tensors.get("position_embd.weight")
    most = table.shape[0] if table is not None and table.shape else None
    if context is None:
        return min(trained, _DEFAULT_CONTEXT, most or trained)
    wanted = count_option("context", context, least=1)
    if most is not None and wanted > most:
        raise UserError(
            f"context is {wanted}, the model has {most} positions", location=file.location
        )
    return wanted


def _check_rows(file: GgufFile, tokens: int) -> None:
    """Every token has a row of numbers; there may be more rows, which are never drawn."""
    for name in ("token_embd.weight", "output.weight"):
        tensor = file.tensors.get(name)
        rows = tensor.shape[0] if tensor is not None and tensor.shape else tokens
        if rows < tokens:
            raise ModelError(
                f"tensor '{name}' has {rows} rows for {tokens} tokens",
                location=file.location,
            )


def _piece_of(file: GgufFile) -> int:
    """Tokens that a model reads at once, a power of 2."""
    weights = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    piece = 1 << max(0, round(math.log2(_PIECE_WORK / max(1, weights))))
    return min(max(piece, _PIECES[0]), _PIECES[1])


@final
class _Step:
    """A step over so many tokens and places, whose arrays are checked once."""

    def __init__(self, session: Session, cache: Cache, count: int, span: int) -> None:
        executor = session.executor
        assert isinstance(executor, PlanExecutor), "programs have plans"
        self._tokens: npt.NDArray[np.int64] = np.zeros((1, count), np.int64)
        self._position: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        places = np.zeros(span, np.bool_)
        inputs = [self._tokens, self._position, places, *cache.inputs()]
        outputs = [None, *cache.outputs()]
        self._call: PreparedCall | PreparedFlow = executor.prepare(inputs, outputs)

    def run(self, tokens: Sequence[int], position: int) -> Floats:
        """The scores behind the last token."""
        self._tokens[0] = tokens
        self._position[0] = position
        return self._call()[0][0]


def generate(
    model: str | PathLike[str] | LanguageModel,
    prompt: str | Sequence[int],
    *,
    tokens: int = 128,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
) -> str:
    """The text that follows a prompt.

    Args:
        model: a GGUF file, or a `LanguageModel`, which is the one to keep for several texts.
        prompt: a text, in which special tokens stand as themselves, or tokens.
        tokens: how many are made at most.
        sampling: how they are drawn (`Sampling(temperature=0)`: always the most likely one).
        stop: texts that end it; they are not part of it.

    Raises: as `LanguageModel` and `LanguageModel.stream`.
    """
    if not isinstance(model, LanguageModel):
        model = LanguageModel(model)
    return model.generate(prompt, tokens=tokens, sampling=sampling, stop=stop)
