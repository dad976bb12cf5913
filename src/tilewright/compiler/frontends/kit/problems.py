"""What a model cannot have compiled, collected while it is imported.

A problem names a node in the model's terms and says what is wrong; the list keeps going after the
first so that a user sees all of them at once.  Not for bugs of ours (those are `InternalError`).
Filled by importers; `report` turns it into one `ModelError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, final

from tilewright.base.errors import InternalError, ModelError, TilewrightError
from tilewright.base.record import record
from tilewright.base.text import plural

SHOWN: Final = 40
MALFORMED: Final = (
    ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError,
)  # fmt: skip
"""What models run into that can be read, but make no sense."""
REFUSALS: Final = (TilewrightError, *MALFORMED)
"""What importing one operation may raise: what rows refuse, and what malformed operations run into."""


@final
class UnsupportedError(ModelError):
    """The model is well formed but asks for something that Tilewright does not compile."""


@final
class SkipNodeError(TilewrightError):
    """The node depends on one whose problem is already reported; never reaches a user."""


def refusal_of(error: Exception) -> TilewrightError:
    """One of `REFUSALS`, in words for users.  Raises: the error itself where it is a bug of ours."""
    if isinstance(error, InternalError):
        raise error
    if isinstance(error, TilewrightError):
        return error
    return ModelError(_complaint(error))


def _complaint(error: Exception) -> str:
    """What a model does that ran into one of `MALFORMED`."""
    text = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0][:200]
    if isinstance(error, MemoryError):
        return f"needs more memory than there is ({text})"
    return f"is malformed ({text})"


@final
@record
class Problem:
    """One reason why a model does not load; `node` is empty for the model as a whole."""

    op_type: str
    node: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"node '{self.node}' ({self.op_type}): " if self.op_type else ""
        return where + self.reason


def malformed(error: Exception, subject: str) -> Problem:
    """The problem of a whole model that ran into one of `MALFORMED`."""
    return Problem("", "", f"{subject} {_complaint(error)}")


def _grouped(problems: Sequence[Problem]) -> Iterable[str]:
    """One line per distinct (op, reason), with the nodes it concerns."""
    groups: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        groups.setdefault((problem.op_type, problem.reason), []).append(problem.node)
    for (op_type, reason), nodes in groups.items():
        if not op_type:
            yield reason
            continue
        names = ", ".join(f"'{n}'" for n in nodes[:3])
        more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
        yield f"{op_type} {names}{more}: {reason}"


def report(problems: Sequence[Problem], file: str) -> ModelError:
    """One error that names every problem of the model.

    A single problem reads as a plain message; several become a list, equal reasons once.
    """
    hints = dict.fromkeys(p.hint for p in problems if p.hint)
    verb = (
        "tilewright.coverage(model)"
        if file.startswith("<")
        else f"tilewright coverage {file}"
    )
    hint = "; ".join(hints) or f"see all of it: {verb}"
    if len(problems) == 1:
        return ModelError(str(problems[0]), location=file, hint=hint)
    lines = list(_grouped(problems))
    rest = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    listing = "\n".join([f"  {line}" for line in lines[:SHOWN]] + rest)
    head = f"{plural(len(problems), 'problem')} in the model"
    return ModelError(f"{head}\n{listing}", location=file, hint=hint)
