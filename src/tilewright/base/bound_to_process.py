"""Objects over workers, mapped files and machine code, which are nothing outside of the process that made them.

`pickle` and `copy` would fail somewhere inside of them, or share what one copy closes.  Called by nobody: it is
a base of what says so.
"""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex, final

from tilewright.base.errors import UserError


@final
class BoundToProcessError(UserError, TypeError):
    """The refusal; a `TypeError`, too, as what has no copy raises for `pickle` and `copy`: programs fall back on that."""


class BoundToProcess:
    """Refuses to be copied, and to be sent to another process."""

    _made_again: ClassVar[str]
    """How another process comes to one of its own: a call."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """What `pickle`, `copy.copy` and `copy.deepcopy` ask for.  Raises: BoundToProcessError."""
        name = type(self).__name__
        article = "an" if name[0] in "AEIOU" else "a"
        raise BoundToProcessError(
            f"{article} {name} holds memory and threads of this process, it is neither copied nor pickled",
            hint=f"threads may share it; another process makes its own: {self._made_again}",
        )
