"""How likely texts are under frames of labels (CTC): the loss that torch computes by one operator, as a loop over frames.

Torch itself does not say what that operator gives before it has run, which ends an export.  Called by `traceable`.

Source: Graves et al., Connectionist Temporal Classification (2006), equations 6 to 8; `torch.nn.CTCLoss`, reference page.
"""

from __future__ import annotations

import math
from typing import Any

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any


def _torch() -> Any:
    return border.load()


def connectionist_losses(
    log_probs: Held, targets: Held, lengths: Held, counts: Held, blank: int
) -> Held:
    """The negative logarithm of how likely each text is.

    Shapes: log_probs: [T, N, C]; targets: [N, S]; lengths, counts: [N], frames and labels that count; result: [N].
    """
    torch = _torch()
    batch, most = targets.shape
    places = torch.arange(most, device=targets.device)
    labels = torch.where(places < counts.unsqueeze(1), targets, blank)
    states = labels.new_full((batch, 2 * most + 1), blank)
    states[:, 1::2] = labels
    every = states.unsqueeze(0).expand(log_probs.shape[0], -1, -1)
    frames = log_probs.gather(2, every)
    # A label follows the one before at once where they differ.
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    order = torch.arange(states.shape[1], device=targets.device)
    first = torch.where(order < 2, frames[0], -math.inf)

    def step(held: Held, given: tuple[Held, Held]) -> tuple[Held, Held]:
        frame, place = given
        one, two = (_shifted(held, by) for by in (1, 2))
        ways = torch.stack([held, one, torch.where(skips, two, -math.inf)])
        found = torch.logsumexp(ways, 0) + frame
        found = torch.where((place < lengths).unsqueeze(1), found, held)
        return found, found.new_zeros(())

    steps = torch.arange(1, log_probs.shape[0], device=targets.device)
    last = first
    if steps.shape[0] > 0:
        scan = border.load("torch._higher_order_ops.scan").scan
        last, _ = scan(step, first, (frames[1:], steps))
    return _ended(last, lengths, counts)


def _shifted(held: Held, by: int) -> Held:
    """What stood so many states before."""
    pad = _torch().nn.functional.pad
    return pad(held, (by, 0), value=-math.inf)[:, : held.shape[1]]


def _ended(last: Held, lengths: Held, counts: Held) -> Held:
    """A text ends with its last label or the blank behind it; one without frames has no labels."""
    torch = _torch()
    end = 2 * counts.unsqueeze(1)
    blank = last.gather(1, end)
    label = torch.where(end > 0, last.gather(1, (end - 1).clamp(min=0)), -math.inf)
    found = -torch.logsumexp(torch.cat([blank, label], 1), 1)
    nothing = torch.where(counts > 0, math.inf, 0.0).to(last.dtype)
    return torch.where(lengths > 0, found, nothing)


def connectionist_loss(
    log_probs: Held, targets: Held, input_lengths: Held, target_lengths: Held, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Held:  # fmt: skip
    """The loss as `torch.nn.functional.ctc_loss` has it.

    Returns: NotImplemented for what torch is left to say something about.
    """
    torch = _torch()
    if log_probs.dim() not in (2, 3) or reduction not in ("none", "mean", "sum"):
        return NotImplemented
    is_batch = log_probs.dim() == 3
    frames = log_probs if is_batch else log_probs.unsqueeze(1)
    lengths, counts = (
        torch.as_tensor(given, device=targets.device).to(torch.int64).reshape(-1)
        for given in (input_lengths, target_lengths)
    )
    if targets.dim() == 1 and is_batch:
        rows = _rows(targets, counts, target_lengths)
    else:
        rows = targets if is_batch else targets.reshape(1, -1)
    found = connectionist_losses(frames, rows.to(torch.int64), lengths, counts, blank)
    if zero_infinity:
        found = torch.where(found == math.inf, 0.0, found)
    if reduction == "mean":
        return (found / counts.clamp(min=1)).mean()
    if reduction == "sum":
        return found.sum()
    return found if is_batch else found.reshape(())


def _rows(targets: Held, counts: Held, given: Held) -> Held:
    """Texts that lie one behind the other, as rows."""
    torch = _torch()
    is_data = border.is_instance(given, "Tensor")
    most = targets.shape[0] if is_data else max(given, default=0)
    begins = counts.cumsum(0) - counts
    places = begins.unsqueeze(1) + torch.arange(most, device=targets.device)
    behind = torch.nn.functional.pad(targets, (0, 1))
    return behind[places.clamp(max=targets.shape[0])]
