"""Which token comes next: the most likely one, or one drawn from those that are likely enough.

Every step is arithmetic on whole arrays.  Not the model, not the text.

Source: Holtzman et al., The Curious Case of Neural Text Degeneration, 2020, section 3.1 (top-p); Fan et al.,
Hierarchical Neural Story Generation, 2018, section 5.4 (top-k); Nguyen et al., Min-p Sampling, 2024, section 3;
Keskar et al., CTRL, 2019, section 4.1 (repetition); OpenAI API reference, Completions (presence and frequency).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast, final

import numpy as np
import numpy.typing as npt

from tilewright.api.language.constraints import Constraint
from tilewright.base.options import count_option, finite_option, wrong
from tilewright.base.random_numbers import random_generator

Floats = npt.NDArray[np.float32]
_SHARES: Final = ("top_p", "min_p")
_PENALTIES: Final = ("presence_penalty", "frequency_penalty")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn, in this order.

    Attributes:
        repetition_penalty: scores of tokens that stand in the prompt or were drawn are divided by it, those below 0
            multiplied; 1: nothing.
        presence_penalty: is taken from scores of tokens that were drawn.
        frequency_penalty: is taken from scores of tokens as often as they were drawn.
        logit_bias: is added to scores, by token.
        temperature: scores are divided by it; 0: always the most likely token, and nothing is drawn.
        top_k: of so many most likely tokens; 0: of all.
        top_p: of the most likely ones that together reach this probability.
        min_p: of those that are at least this share as likely as the most likely one.
        seed: the same seed draws the same; None: another one each time.

    Raises: UserError for a value that makes no sense.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float], hash=False)

    def __post_init__(self) -> None:
        for name in (*_SHARES, *_PENALTIES, "temperature", "repetition_penalty"):
            finite_option(name, getattr(self, name))
        if self.temperature < 0:
            raise wrong("temperature", self.temperature, "0 or more")
        count_option("top_k", self.top_k, least=0)
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise wrong(name, getattr(self, name), "0 to 1")
        if self.seed is not None:
            count_option("seed", self.seed, least=0)
        if self.repetition_penalty <= 0:
            raise wrong("repetition_penalty", self.repetition_penalty, "more than 0")
        if not isinstance(cast("object", self.logit_bias), Mapping):
            raise wrong("logit_bias", self.logit_bias, "a mapping from tokens")
        for token, bias in self.logit_bias.items():
            finite_option(f"logit_bias[{token!r}]", bias)


GREEDY = Sampling(temperature=0)


@final
class Sampler:
    """Draws one token after the other.  Not thread-safe: it has a state.

    Args:
        sampling: how.
        prompt: the tokens that stand before the first one, which only `repetition_penalty` looks at.
        constraint: the form that the text has; None: any.
    """

    def __init__(
        self,
        sampling: Sampling,
        prompt: Sequence[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        self._sampling: Sampling = sampling
        self._constraint: Constraint | None = constraint
        self._random: np.random.Generator = random_generator(sampling.seed)
        self._seen: set[int] = set(prompt) if sampling.repetition_penalty != 1 else set()
        self._drawn: Counter[int] = Counter()

    def choose(self, scores: Floats) -> int:
        """A token by its scores, `[vocabulary]`, which stay as they are; one whose score is no number is the least likely."""
        with np.errstate(
            all="ignore"
        ):  # of penalties and biases that leave no finite numbers
            token = self._draw(self._permitted(_as_numbers(self._adjusted(scores))))
        self._drawn[token] += 1
        if self._sampling.repetition_penalty != 1:
            self._seen.add(token)
        if self._constraint is not None:
            self._constraint.add(token)
        return token

    @property
    def is_complete(self) -> bool:
        """Whether no token can follow in the form that the text has."""
        return self._constraint is not None and self._constraint.is_complete

    def _permitted(self, scores: Floats) -> Floats:
        """Scores, those of tokens that the form does not allow at -inf."""
        if self._constraint is None:
            return scores
        allowed = self._constraint.allowed()
        found = np.full(scores.shape, -np.inf, scores.dtype)
        found[allowed] = scores[allowed]
        if not np.isfinite(found.max()):  # of tokens whose scores are no numbers
            found[allowed] = 0
        return found

    def _draw(self, scores: Floats) -> int:
        if self._sampling.temperature == 0:
            return int(scores.argmax())
        tokens, shares = likely(scores, self._sampling)
        place = np.searchsorted(np.cumsum(shares), self._random.random(), side="right")
        return int(tokens[min(int(place), len(tokens) - 1)])

    def _adjusted(self, scores: Floats) -> Floats:
        """Scores with penalties and biases."""
        own = self._sampling
        counts = self._drawn if own.presence_penalty or own.frequency_penalty else {}
        if not (self._seen or counts or own.logit_bias):
            return scores
        found = scores.copy()
        if self._seen:
            at = np.fromiter(self._seen, np.int64)
            penalty = np.float32(own.repetition_penalty)
            found[at] = np.where(found[at] > 0, found[at] / penalty, found[at] * penalty)
        for token, count in counts.items():
            found[token] -= count * own.frequency_penalty + own.presence_penalty
        for token, bias in own.logit_bias.items():
            found[token] += bias
        return found


def _as_numbers(scores: Floats) -> Floats:
    """Scores without NaN, and with an end above."""
    if np.isfinite(scores.max()):
        return scores
    return np.nan_to_num(scores, nan=-np.inf, posinf=None, neginf=-np.inf)


def likely(
    scores: Floats, sampling: Sampling
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The tokens that may be drawn, the most likely first, and how likely each is among them.

    Args:
        scores: `[vocabulary]`.
        sampling: with a temperature above 0.
    """
    count = len(scores)
    kept = min(sampling.top_k or count, count)
    tokens = np.arange(count)
    if kept < count:
        tokens = np.argpartition(scores, count - kept)[count - kept :]
    tokens = tokens[np.argsort(-scores[tokens], kind="stable")]
    found = scores[tokens].astype(np.float64)
    # Scores that are no numbers draw nothing but the most likely token.
    powers = np.nan_to_num(np.exp((found - found[0]) / sampling.temperature), nan=0.0)
    powers[0] = 1.0
    shares = powers / powers.sum()
    before = np.cumsum(shares) - shares
    fine = (before < sampling.top_p) & (shares >= sampling.min_p * shares[0]) & (shares > 0)
    fine[0] = True
    return tokens[fine], shares[fine] / shares[fine].sum()
