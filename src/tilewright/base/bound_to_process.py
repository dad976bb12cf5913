"""Objects over workers, mapped files and machine code, which are nothing outside of the process that made them.

`pickle` and `copy` would fail somewhere inside of them, or share what one copy closes.  Called by nobody: it is
a base of what says so.
"""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from tilewright.base.errors import UserError


class BoundToProcess:
    """Refuses to be copied, and to be sent to another process."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """What `pickle`, `copy.copy` and `copy.deepcopy` ask for.  Raises: UserError."""
        raise UserError(
            f"a {type(self).__name__} holds memory and threads of this process, it is neither copied nor pickled",
            hint="threads may share it; another process loads the saved file: tilewright.load(path)",
        )
