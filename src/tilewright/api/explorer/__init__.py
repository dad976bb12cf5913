"""A page about a model that can be asked: other levels, targets, types, sizes, beside each other.

`settings` are what can be asked for, `explorer` makes the page of one, `server` shows them to the browser of
this machine.  The page itself is that of `api.report`.  Called by `tilewright explore`.
"""

from tilewright.api.explorer.explorer import Explorer
from tilewright.api.explorer.server import ExplorerServer

__all__ = ["Explorer", "ExplorerServer"]
