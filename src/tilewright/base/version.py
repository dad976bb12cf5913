"""The version of Tilewright, stated once.

What it is: the number that the wheel, ``tilewright.__version__`` and every artifact carry.
What it is not: a format version; formats have their own major.minor (``formats/``).
Who calls it: the build (pyproject.toml), the façade, packaging.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
