"""How likely a model found the tokens of a text: logarithms of probabilities, as clients ask for them.

They are the model's own, before penalties, temperature and whatever else decides what is drawn.  Called by
`language_model`; written into answers by `answers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt

LEAST: Final = -9999.0
"""What stands for a token that cannot be: JSON has no infinity."""


@final
@dataclass(frozen=True, slots=True)
class TokenScore:
    """One token of a text.

    Attributes:
        token: which.
        start: characters of the text that stood before it.
        logprob: natural logarithm of how likely it was.
        likely: the most likely tokens at its place with theirs, the most likely first.
    """

    token: int
    start: int
    logprob: float
    likely: tuple[tuple[int, float], ...]


def token_score(
    scores: npt.NDArray[np.float32], token: int, count: int, start: int
) -> TokenScore:
    """A token among the scores, `[vocabulary]`, that it was drawn by, with `count` most likely ones."""
    found = scores.astype(np.float64)
    with np.errstate(all="ignore"):
        found -= found.max()
        found -= np.log(np.exp(found).sum())
    found = np.maximum(np.nan_to_num(found, nan=LEAST, posinf=0.0, neginf=LEAST), LEAST)
    count = min(count, len(found))
    best = np.argpartition(-found, count - 1)[:count] if count else np.arange(0)
    best = best[np.argsort(-found[best], kind="stable")]
    likely = tuple((int(t), float(found[t])) for t in best)
    return TokenScore(token, start, float(found[token]), likely)
