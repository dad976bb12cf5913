"""What callers ask a language model for, checked where it comes in: without it a wrong type says another text, or fails in the middle.

Called by `language_model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from tilewright.api.language.constraints import TextForm
from tilewright.api.language.sampling import Sampling
from tilewright.base.options import wrong


def prompt_tokens(prompt: object) -> list[int]:
    """The tokens of a prompt that is no text; `Tokenizer.checked` looks at each.  Raises: UserError."""
    if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Iterable):
        raise wrong("prompt", prompt, "a text or a sequence of tokens")
    return list(cast("Iterable[int]", prompt))


def sampling_of(value: object) -> Sampling:
    """How tokens are drawn; where nothing is said, as `Sampling()` says.  Raises: UserError."""
    if value is None:
        return Sampling()
    if isinstance(value, Sampling):
        return value
    raise wrong(
        "sampling", value, "a Sampling", "sampling=tilewright.Sampling(temperature=0)"
    )


def form_option(value: object) -> TextForm | None:
    """The form of a text that is no schema.  Raises: UserError."""
    if value is None or isinstance(value, TextForm):
        return value
    raise wrong("schema", value, "a JSON schema, which is a mapping")
