"""Keys and values of the tokens that a model has read: what makes the next token cheap.

A text that begins as one that was read is not computed again as far as they agree.  Saved to a file and loaded
again (.safetensors), for long prompts that stay.  Called by `language_model`.

Some models sum up what they read in states, of which there is one, that behind the last token: a text that parts from it goes
on from a copy that was taken before, or is read anew (docs/decisions/0031-states-of-a-text.md).
"""

from __future__ import annotations

import contextlib
import math
import mmap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import ArchiveError, UserError, reason_of
from tilewright.base.input_file import read_beginning, why_no_file
from tilewright.base.options import path_option
from tilewright.base.output_file import open_output
from tilewright.formats.parameters import read_arrays, write_safetensors
from tilewright.formats.tensor_spec import TensorSpec

_TOKENS: Final = "tokens"
_MODEL: Final = "model"
_COPIES: Final = "copies"
_CHECKSUM: Final = "checksum"
_MOST_COPIES: Final = 4
"""Of states; each takes as much memory as they do."""
_MUCH_MORE: Final = 4
"""Times what this model can have read."""
_MOST_HEAD_BYTES: Final = 16 << 20
"""Of a file, with the tokens."""

Floats = npt.NDArray[np.float32]
_States = Mapping[str, Floats]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """States behind so many tokens of the text."""

    count: int
    states: _States


@final
class Cache:
    """What was read, and what of it was computed.  Not thread-safe.

    Args:
        specs: of what every layer keeps: rows of every place, `[1, heads, room, size]`, or states, whose sizes are known.
        room: tokens that there is room for.
        model: the digest of the model that they belong to.

    Attributes:
        tokens: that were read.
        arrays: rows of every place; those behind the last token mean nothing.
        turn: whose states are those behind the last token: a step reads them and writes the others.
    """

    def __init__(self, specs: Sequence[TensorSpec], room: int, model: bytes) -> None:
        self.room: Final[int] = room
        self.tokens: list[int] = []
        self.turn: int = 0
        self._model: bytes = model
        rows = [spec for spec in specs if not _is_state(spec)]
        # Zeros: places that nobody has written are hidden, but multiplied.
        self.arrays: Final[Mapping[str, Floats]] = {
            spec.name: _zeros((1, _size(spec, 1), room, _size(spec, 3))) for spec in rows
        }
        self._states: tuple[_States, _States] = (_states_of(specs), _states_of(specs))
        self._names: list[str] = [spec.name for spec in specs]
        self._copies: list[_Copy] = []
        # Larger files are not read: they could take all memory.  Those of like models get a message of their own.
        held = sum(array.nbytes for array in self.arrays.values())
        held += (_MOST_COPIES + 1) * sum(s.nbytes for s in self.states.values())
        self._most_bytes: int = _MUCH_MORE * held + _MOST_HEAD_BYTES
        self._parting: int = 0

    @property
    def states(self) -> _States:
        """Those behind the last token."""
        return self._states[self.turn]

    def inputs(self) -> list[Floats]:
        """What a step reads, in the order of the specs."""
        held = {**self.arrays, **self.states}
        return [held[name] for name in self._names]

    def outputs(self) -> list[Floats]:
        """Where it writes: rows over those that it reads, states beside them, so that a step that fails changes nothing."""
        held = {**self.arrays, **self._states[1 - self.turn]}
        return [held[name] for name in self._names]

    def end_of_step(self, total: int) -> int:
        """Up to where a step may read of a text of so many tokens: states are copied there, or it is the end."""
        if not self.states:
            return total
        done = len(self.tokens)
        return min(place for place in (*self._stops(total), total) if place > done)

    def _stops(self, total: int) -> tuple[int, int]:
        """Where another text may part from one: where one did before, and in front of the last token of a prompt."""
        return self._parting, total - 1

    def advance(self, new: Sequence[int], total: int) -> None:
        """Take up what a step has read and written; of a text of so many tokens, as for `end_of_step`."""
        if not self.states:
            self.tokens += new
            return
        self.tokens, self.turn = [*self.tokens, *new], 1 - self.turn
        if len(self.tokens) in self._stops(total):
            self._copy()

    def _copy(self) -> None:
        held = {name: state.copy() for name, state in self.states.items()}
        self._copies.append(_Copy(len(self.tokens), held))
        if len(self._copies) > _MOST_COPIES:
            # The one whose loss costs the fewest tokens that are read again, but not the last.
            places = [0, *(copy.count for copy in self._copies[:-1])]
            gaps = [after - before for before, after in pairwise(places)]
            del self._copies[gaps.index(min(gaps))]

    def keep(self, tokens: Sequence[int]) -> int:
        """Forget what is not the beginning of a text; how many of its tokens are left.

        At least the last token of the text is left out: its scores are wanted.
        """
        most = min(len(tokens) - 1, len(self.tokens))
        same = 0
        while same < most and tokens[same] == self.tokens[same]:
            same += 1
        if self.states and same < len(self.tokens):
            self._parting = same
            return self._go_back(same)
        del self.tokens[same:]
        return same

    def _go_back(self, most: int) -> int:
        """Keep so many tokens, or fewer, of whose states there is a copy; how many that are.

        The copy is written beside the states, for an interrupt in the middle must not leave some of each.
        """
        self._copies = [copy for copy in self._copies if copy.count <= most]
        last = self._copies[-1] if self._copies else None
        for name, state in self._states[1 - self.turn].items():
            state[...] = 0 if last is None else last.states[name]
        count = 0 if last is None else last.count
        self.tokens, self.turn = self.tokens[:count], 1 - self.turn
        return count

    # --- files

    def save(self, path: str | Path) -> None:
        """Write what was read to a file.  Raises: UserError when the system refuses."""
        held_tokens = np.array(self.tokens, np.int64)
        model = np.frombuffer(self._model, np.uint8)
        held = self._held(len(self.tokens))
        if self.states:
            held[_COPIES] = np.array([copy.count for copy in self._copies], np.int64)
        for copy in self._copies:
            held |= {_name_of(name, copy.count): a for name, a in copy.states.items()}
        arrays = {_TOKENS: held_tokens, _MODEL: model, **held}
        with open_output(Path(path_option("path", path))) as file:
            write_safetensors(file, {**arrays, _CHECKSUM: _checksum(arrays)})

    def _held(self, count: int) -> dict[str, npt.NDArray[np.generic]]:
        """What is kept of so many tokens, by name."""
        return {
            **{name: array[:, :, :count] for name, array in self.arrays.items()},
            **self.states,
        }

    def load(self, path: str | Path) -> None:
        """Take what an earlier run has written.

        After an error everything is as it was, after an interrupt nothing may be left of what was read.

        Raises: UserError for a file of another model, with more than there is room for, or that cannot be read;
            ArchiveError for one that is damaged.
        """
        path = path_option("path", path)
        found = read_arrays(_contents(path, self._most_bytes), Path(path).name)
        tokens, model = found.get(_TOKENS), found.get(_MODEL)
        if tokens is None or model is None or tokens.dtype != np.int64 or tokens.ndim != 1:
            raise ArchiveError("is no saved prompt", location=path)
        _check_sum(found, path)
        if model.tobytes() != self._model:
            raise UserError(
                "was saved for another model, or for another context or precision of this one",
                location=path,
            )
        if len(tokens) > self.room:
            raise UserError(
                f"has {len(tokens)} tokens, there is room for {self.room}", location=path
            )
        for name, wanted in self._held(len(tokens)).items():
            _check_fits(found, name, wanted, path)
        copies = list(self._saved_copies(found, len(tokens), path))
        # From here on nothing is refused, and an interrupt leaves no text: a part of this one would stand under tokens
        # that it is not of.
        self._go_back(0)
        for name, array in self.arrays.items():
            array[:, :, : len(tokens)] = found[name]
        for name, state in self._states[1 - self.turn].items():
            state[...] = found[name]
        self._copies = copies
        self.tokens, self.turn = tokens.tolist(), 1 - self.turn

    def _saved_copies(
        self, found: Mapping[str, npt.NDArray[np.generic]], most: int, path: str | Path
    ) -> Iterator[_Copy]:
        """Copies of states that a file has.  Raises: ArchiveError for such as cannot be of its text."""
        if not self.states:
            return
        listed = found.get(_COPIES)
        if listed is None or listed.dtype != np.int64 or listed.ndim != 1:
            raise ArchiveError(f"has no '{_COPIES}'", location=path)
        counts: list[int] = listed.tolist()
        rises = all(before < after for before, after in pairwise([0, *counts]))
        if not rises or len(counts) > _MOST_COPIES or max(counts, default=0) > most:
            raise ArchiveError(
                f"has copies of states behind {counts} of {most} tokens", location=path
            )
        for count in counts:
            held: dict[str, Floats] = {}
            for name, state in self.states.items():
                own = _name_of(name, count)
                _check_fits(found, own, state, path)
                held[name] = np.array(found[own], np.float32)
            yield _Copy(count, held)


def _name_of(state: str, count: int) -> str:
    """Of a copy of a state in a file."""
    return f"{state}@{count}"


def _checksum(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint32]:
    """The CRC-32 of all arrays, in the order of their names: `[] u32`."""
    found = 0
    for name in sorted(arrays):
        data = np.ascontiguousarray(arrays[name]).reshape(-1)
        found = zlib.crc32(data.view(np.uint8).data, found)
    return np.array(found, np.uint32)


def _check_sum(found: Mapping[str, npt.NDArray[Any]], path: str | Path) -> None:
    """Refuse what was damaged since it was written; older files say nothing of it."""
    wanted = found.get(_CHECKSUM)
    arrays = {name: array for name, array in found.items() if name != _CHECKSUM}
    if wanted is not None and not np.array_equal(wanted, _checksum(arrays)):
        raise ArchiveError(
            "is damaged: its checksum is another one",
            location=path,
            hint="remove it, and the prompt is read again",
        )


def _check_fits(
    found: Mapping[str, npt.NDArray[np.generic]],
    name: str,
    wanted: npt.NDArray[np.generic],
    path: str | Path,
) -> None:
    kept = found.get(name)
    if kept is None or kept.shape != wanted.shape or kept.dtype != wanted.dtype:
        raise ArchiveError(f"has no '{name}' that fits", location=path)


def _is_state(spec: TensorSpec) -> bool:
    return all(isinstance(size, int) for size in spec.shape)


def _states_of(specs: Sequence[TensorSpec]) -> _States:
    """States before the first token."""
    return {
        spec.name: np.zeros(
            [_size(spec, axis) for axis in range(len(spec.shape))], np.float32
        )
        for spec in specs
        if _is_state(spec)
    }


def _contents(path: str | Path, most_bytes: int) -> bytes:
    problem = why_no_file(path)
    if problem is not None:
        raise UserError(problem, location=path)
    try:
        size = Path(path).stat().st_size
        data = b"" if size > most_bytes else read_beginning(path, size)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot be read: {reason_of(error)}", location=path) from error
    if size > most_bytes:
        raise UserError(
            "is larger than any prompt of this model with this context", location=path
        )
    return data


def _zeros(shape: tuple[int, ...]) -> Floats:
    """Zeros that take memory where something is written, and no more.

    numpy asks for pages of 2 MiB, of which the first token would touch one for every head of every layer.
    """
    if not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, np.float32)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    size = max(4 * math.prod(shape), 1)
    try:
        held = mmap.mmap(-1, size, flags=flags)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"{shape[2]} tokens take {size} bytes in each layer, more than there are",
            hint="a smaller context",
        ) from error
    with contextlib.suppress(OSError):  # of a kernel that knows no such pages
        held.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(held, np.float32, math.prod(shape)).reshape(shape)


def _size(spec: TensorSpec, axis: int) -> int:
    size = spec.shape[axis]
    assert isinstance(size, int), "only the room is dynamic"
    return size
