"""Keys and values of the tokens that a model has read: what makes the next token cheap.

A text that begins as one that was read is not computed again as far as they agree.  Saved to a file and loaded
again (.safetensors), for long prompts that stay.  Called by `language_model`.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.input_file import why_no_file
from tilewright.base.output_file import open_output
from tilewright.formats.parameters import read_arrays, write_safetensors
from tilewright.formats.tensor_spec import TensorSpec

_TOKENS: Final = "tokens"
_MODEL: Final = "model"

Floats = npt.NDArray[np.float32]


@final
class Cache:
    """What was read, and what of it was computed.  Not thread-safe.

    Args:
        specs: of the keys and values of every layer, `[1, heads, room, size]`.
        room: tokens that there is room for.
        model: the digest of the model that they belong to.
    """

    def __init__(self, specs: Sequence[TensorSpec], room: int, model: bytes) -> None:
        self.room: Final[int] = room
        self.tokens: list[int] = []
        self._model: bytes = model
        # Zeros: places that nobody has written are hidden, but multiplied.
        self.arrays: Final[Mapping[str, Floats]] = {
            spec.name: _zeros((1, _size(spec, 1), room, _size(spec, 3))) for spec in specs
        }

    def keep(self, tokens: Sequence[int]) -> int:
        """Forget what is not the beginning of a text; how many of its tokens are left.

        At least the last token of the text is left out: its scores are wanted.
        """
        most = min(len(tokens) - 1, len(self.tokens))
        same = 0
        while same < most and tokens[same] == self.tokens[same]:
            same += 1
        del self.tokens[same:]
        return same

    def save(self, path: str | Path) -> None:
        """Write what was read to a file.  Raises: UserError when the system refuses."""
        count = len(self.tokens)
        held = {name: array[:, :, :count] for name, array in self.arrays.items()}
        held_tokens = np.array(self.tokens, np.int64)
        model = np.frombuffer(self._model, np.uint8)
        with open_output(Path(path)) as file:
            write_safetensors(file, {_TOKENS: held_tokens, _MODEL: model, **held})

    def load(self, path: str | Path) -> None:
        """Take what an earlier run has written.

        After an error everything is as it was.

        Raises: UserError for a file of another model, with more than there is room for, or that cannot be read;
            ArchiveError for one that is damaged.
        """
        found = read_arrays(_contents(path), Path(path).name)
        tokens, model = found.get(_TOKENS), found.get(_MODEL)
        if tokens is None or model is None or tokens.dtype != np.int64 or tokens.ndim != 1:
            raise ArchiveError("is no saved prompt", location=path)
        if model.tobytes() != self._model:
            raise UserError(
                "was saved for another model, or for another context or precision of this one",
                location=path,
            )
        if len(tokens) > self.room:
            raise UserError(
                f"has {len(tokens)} tokens, there is room for {self.room}", location=path
            )
        places = {name: array[:, :, : len(tokens)] for name, array in self.arrays.items()}
        for name, wanted in places.items():
            kept = found.get(name)
            if kept is None or kept.shape != wanted.shape or kept.dtype != wanted.dtype:
                raise ArchiveError(f"has no '{name}' that fits", location=path)
        # From here on nothing is refused: a part of it would stand under tokens that it is not of.
        for name, wanted in places.items():
            wanted[...] = found[name]
        self.tokens = tokens.tolist()


def _contents(path: str | Path) -> bytes:
    problem = why_no_file(path)
    if problem is not None:
        raise UserError(problem, location=path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", location=path) from error


def _zeros(shape: tuple[int, ...]) -> Floats:
    """Zeros that take memory where something is written, and no more.

    numpy asks for pages of 2 MiB, of which the first token would touch one for every head of every layer.
    """
    if not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, np.float32)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    held = mmap.mmap(-1, max(4 * math.prod(shape), 1), flags=flags)
    with contextlib.suppress(OSError):  # of a kernel that knows no such pages
        held.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(held, np.float32, math.prod(shape)).reshape(shape)


def _size(spec: TensorSpec, axis: int) -> int:
    size = spec.shape[axis]
    assert isinstance(size, int), "only the room is dynamic"
    return size
