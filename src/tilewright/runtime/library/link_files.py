"""What a module brings to a linker: objects, sources in C, and how they are compiled.

Modules that are exported and are ours say it all at once (`Linkable`); of others, one file is written
(`Module.write_to_file`).  Called by `export`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, final

from tilewright.base.record import field, record
from tilewright.formats.byte_view import Buffer


@final
@record(kw_only=True)
class LinkFiles:
    """Files that become one library.

    All `files` go below one folder, where the compiler is started.

    Attributes:
        name: what the symbols of the C interface begin with; empty where there is none.
        arch, os: of the machine that the objects are for, as in a `Target`.
        files: sources, headers and data by name.
        objects: relocatable objects by name.
        units: those of `files` that a compiler takes.
        entry_units: likewise, of which a process has one each: they define the names by which a library
            is found when it is loaded.
        public: headers for users of the library.
        exports: the symbols that a shared library shows.
        flags: for the compiler.
        link_flags: for the linker.
    """

    name: str
    arch: str
    os: str
    files: Mapping[str, Buffer] = field(default_factory=dict)
    objects: Mapping[str, Buffer] = field(default_factory=dict)
    units: tuple[str, ...] = ()
    entry_units: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()


class Linkable(Protocol):
    """A module of ours that brings all its files, and those of the modules that go with it."""

    def link_files(self, name: str, weights: Path | None) -> LinkFiles:
        """The files.

        Args:
            name: what the symbols of the C interface shall begin with.
            weights: the file beside the library that has the weights (written here); None: inside.
        """
        ...

    def goes_along(self, module: object) -> bool:
        """Whether what `link_files` gives has an imported module in it already."""
        ...
