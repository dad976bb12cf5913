"""Sequences of several lengths in one tensor (`torch.nn.utils.rnn.PackedSequence`), while torch traces.

Torch packs and unpacks in code that looks at lengths, which ends an export.  Here both are written in operators that do
not: how many rows there are is counted by the data, and recurrent layers run over padded steps under a mask.  Lengths
that torch itself refuses (none, more than there are steps, in another order than it asks for) fail the call.
Called by `export`, `traceable` and `recurrent`.

Source: `torch.nn.utils.rnn` (`pack_padded_sequence`, `pad_packed_sequence`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing

# Torch's tensors have no types that we see.
Held = Any
_COUNT: Final = "tilewright_sequences"
"""The attribute of sizes of batches that says how many sequences there are."""


@contextlib.contextmanager
def packed_sequences() -> Generator[None]:
    """While this thread traces in this context, sequences are packed and unpacked by operators of this file.

    Contexts of several threads may overlap; what another thread packs meanwhile is packed by torch.
    """
    with contextlib.ExitStack() as kept:
        for substitute in (_FUNCTIONS, *_CHECKS):
            kept.enter_context(substitute.used())
        yield


def pack(padded: Held, lengths: Held, batch_first: bool) -> tuple[Held, Held]:
    """The rows of all sequences, step after step, and how many sequences each step has.

    Shapes: `padded` [steps, sequences, ...], or [sequences, steps, ...]; `lengths` [sequences], falling.
    """
    torch = border.load()
    rows = padded.transpose(0, 1) if batch_first else padded
    falls = (lengths.sort(descending=True).values == lengths).all()
    is_right = falls & (lengths[-1] > 0)
    steps = torch.where(is_right, lengths[0], -1).item()
    torch._check(steps >= 0)
    torch._check(steps <= rows.shape[0])
    present = torch.arange(steps, device=lengths.device).unsqueeze(1) < lengths
    batch_sizes = present.sum(1)
    setattr(batch_sizes, _COUNT, rows.shape[1])
    return rows[:steps][present], batch_sizes


def unpack(
    rows: Held, batch_sizes: Held, batch_first: bool, padding: float, steps: Held
) -> tuple[Held, Held]:
    """Padded sequences of so many steps, and the length of each; the other way round from `pack`."""
    torch = border.load()
    places, present = _places(rows, batch_sizes, count_of(batch_sizes))
    held = torch.cat([rows, rows.new_full((1, *rows.shape[1:]), padding)])[places]
    if steps is not batch_sizes.shape[0]:
        missing = steps - batch_sizes.shape[0]
        more = rows.new_full((missing, *held.shape[1:]), padding)
        held = torch.cat([held, more])
    return held.transpose(0, 1) if batch_first else held, present.sum(0)


def count_of(batch_sizes: Held) -> Held:
    """How many sequences there are: those of the first step."""
    known = getattr(batch_sizes, _COUNT, None)
    if known is not None:
        return known
    found = batch_sizes[0].item()
    border.load()._check(found >= 0)
    return found


def first_size(batch_sizes: Held, index: object) -> Held:
    """An element of sizes of batches, which remembers how many sequences there are."""
    known = getattr(batch_sizes, _COUNT, None)
    if known is None or type(index) is not int or index:
        return NotImplemented
    found = batch_sizes.select(0, 0)
    setattr(found, _COUNT, known)
    return found


def zeros(*size: Held, **options: Held) -> Held:
    """Of a shape with a size that is a tensor, as initial states of packed sequences have."""
    given = size[0] if len(size) == 1 and isinstance(size[0], list | tuple) else size
    known = [getattr(n, _COUNT, None) for n in given] if isinstance(given, Sequence) else []
    if not any(count is not None for count in known):
        return NotImplemented
    pairs = zip(given, known, strict=True)
    shape = [n if count is None else count for n, count in pairs]
    return border.load().zeros(shape, **options)


def recurrent(
    run: Callable[..., Sequence[Held]],
    rows: Held,
    batch_sizes: Held,
    states: Held,
    *rest: Held,
) -> tuple[Held, ...]:
    """A recurrent layer over packed sequences.

    Args:
        run: the layer over padded ones: (inputs, states, ..., batch first, which steps are present).
        rows: [rows, features].
        batch_sizes: [steps].
        states: before the first step of each sequence.
        rest: weights and options, without `batch_first`.

    Returns: [rows, hidden], and the states after the last step of each.
    Raises: RuntimeError for states of another shape; where a call decides it, the call fails.
    """  # fmt: skip
    torch = border.load()
    held = states if isinstance(states, list | tuple) else (states,)
    first = held[0]
    _check_states(held, count_of(batch_sizes), *rest)
    places, present = _places(rows, batch_sizes, first.shape[1])
    padded = torch.cat([rows, rows.new_zeros((1, rows.shape[1]))])[places]
    found, *ended = run(padded, states, *rest, False, present)
    # What is no step is written behind the last row.
    stacked = rows.new_zeros((rows.shape[0] + 1, found.shape[2]))
    return stacked.index_put((places,), found)[:-1], *ended


def _check_states(
    states: Sequence[Held], count: Held, weights: Sequence[Held], *options: Held
) -> None:
    """Let states be [layers times directions, sequences, hidden], as torch asks for.

    Args:
        states: one, or two of a layer with cells.
        count: of sequences.
        weights: of all layers; the second is what the first one multiplies its state with.
        options: whether there are biases, layers, dropout, whether it trains, whether there are two directions.

    Source: `torch.nn.modules.rnn` (`check_forward_args`).
    """
    check = border.load()._check
    _, layers, _, _, is_two_way = options
    recurrent_weights = weights[1]
    # A cell is as wide as each of four gates; what layers give may be projected to another width.
    widths = (recurrent_weights.shape[1], recurrent_weights.shape[0] // 4)
    for state, width in zip(states, widths, strict=False):
        check(state.ndim == 3)
        check(state.shape[0] == layers * (1 + bool(is_two_way)))
        check(state.shape[1] == count)
        check(state.shape[2] == width)


def _places(rows: Held, batch_sizes: Held, count: Held) -> tuple[Held, Held]:
    """[steps, sequences]: the row of each step, one behind the last for those that a sequence does not have, and which it has."""
    torch = border.load()
    numbers = torch.arange(count, device=batch_sizes.device)
    present = numbers < batch_sizes.unsqueeze(1)
    begins = batch_sizes.cumsum(0) - batch_sizes
    return torch.where(present, begins.unsqueeze(1) + numbers, rows.shape[0]), present


# --- what stands in torch meanwhile -------------------------------------------------------------


@final
class _Functions:
    """Torch's own functions, with ours for packing in threads that trace.

    Args:
        held: the functions.
        tracing: of the thread that asks.
    """

    def __init__(self, held: Any, tracing: Tracing) -> None:
        self._held: Any = held
        self._tracing: Tracing = tracing

    def __getattr__(self, name: str) -> Any:
        """Raises: AttributeError for what torch does not have."""
        ours = {"_pack_padded_sequence": pack, "_pad_packed_sequence": unpack}.get(name)
        if ours is None or not self._tracing.depth:
            return getattr(self._held, name)
        return ours


def _module() -> Any:
    return border.load("torch.nn.utils.rnn")


def _layer(name: str) -> Any:
    return getattr(border.load("torch.nn.modules.rnn"), name)


def _unless_packed(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    """A check of shapes that asks sizes of batches for a number: left out, for `recurrent` checks them."""

    @functools.wraps(original)
    def check(layer: Any, rows: Any, states: Any, batch_sizes: Any) -> None:
        if not tracing.depth or batch_sizes is None:
            original(layer, rows, states, batch_sizes)

    return check


_FUNCTIONS: Final = Substitute(_module, "_VF", _Functions)
_CHECKS: Final = tuple(
    Substitute(functools.partial(_layer, name), "check_forward_args", _unless_packed)
    for name in ("RNNBase", "LSTM")
)
