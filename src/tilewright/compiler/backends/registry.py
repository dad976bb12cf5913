"""Which back end a target asks for.

The words are a table of `base.target`; a back end is the folder of that name, whose file `backend` has the
one object.  Its code is loaded when a target first asks for it.
"""

from __future__ import annotations

import functools
import importlib
from typing import cast

from tilewright.base.target import Target
from tilewright.compiler.backends.backend import Backend


def backend_of(target: Target) -> Backend:
    """The back end that makes code for a target."""
    return find_backend(target.backend)


@functools.cache
def find_backend(name: str) -> Backend:
    """The back end of a word of `base.target.BACKENDS`."""
    module = importlib.import_module(f"{__package__}.{name}.backend")
    return cast("Backend", module.BACKEND)
