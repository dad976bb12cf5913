"""Kinds of modules that a library carries as bytes: who makes a module of them again.

A kind that is registered here is looked for first; one whose loader somebody put into tvm-ffi's
registry, as `ffi.Module.load_from_bytes.<kind>`, counts as well.  Last come installed packages that offer a
loader for exactly this kind, as an entry point: what a file says never imports anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from tilewright.base.entry_points import EntryPointGroup, find_entry_point
from tilewright.base.errors import InputError, UserError
from tilewright.base.options import wrong
from tilewright.runtime.packed.functions import get_global_func
from tilewright.runtime.packed.genuine import as_module
from tilewright.runtime.packed.module import Module

LoadFromBytes: TypeAlias = Callable[[bytes], Module]

GLOBAL_PREFIX: Final = "ffi.Module.load_from_bytes."

_LOADERS: Final[dict[str, LoadFromBytes]] = {}


def register_module_kind(
    kind: str, load_from_bytes: LoadFromBytes, *, override: bool = False
) -> None:
    """Say how a module of a kind is made of its bytes.

    Args:
        kind: what `Module.kind` says.
        load_from_bytes: takes what `Module.save_to_bytes` gave; raises ArchiveError for bytes that
            are damaged.  They come from a file, so it must not trust them.
        override: replace the loader that the kind has.

    Raises: InputError for a kind that has one, or a name that is none; UserError for what is no function.
    """
    if not callable(load_from_bytes):
        raise wrong(
            "load_from_bytes", load_from_bytes, "a function that makes a module of bytes"
        )
    if not kind or kind.startswith("_"):
        raise InputError(f"'{kind}' is no name for a kind of modules")
    if kind in _LOADERS and not override:
        raise InputError(
            f"modules of kind '{kind}' have a loader already",
            hint="replace it: override=True",
        )
    _LOADERS[kind] = load_from_bytes


def remove_module_kind(kind: str) -> None:
    """Forget the loader of a kind.

    Raises: InputError for a kind that nobody registered.
    """
    if _LOADERS.pop(kind, None) is None:
        raise InputError(f"no loader for modules of kind '{kind}'")


def registered_loader(
    kind: str, built_in: Mapping[str, LoadFromBytes] | None = None
) -> LoadFromBytes | None:
    """The loader of a kind; None for an unknown one.

    Args:
        kind: as in the library.
        built_in: those that come after what users registered, and before tvm-ffi's.

    Raises: UserError for an installed package that offers one and fails.
    """
    ours = _LOADERS.get(kind) or (built_in or {}).get(kind)
    if ours is not None:
        return ours
    theirs = get_global_func(GLOBAL_PREFIX + kind, allow_missing=True)
    if theirs is None:
        return _installed_loader(kind)
    return lambda data: as_module(theirs(data))


def made_module(kind: str, load: LoadFromBytes, data: bytes, location: str) -> Module:
    """What a loader makes of bytes.

    Raises: what the loader raises; InputError where that is no module, naming kind and file.
    """
    made: object = load(data)
    try:
        return as_module(made)
    except InputError as error:
        raise InputError(
            f"the loader of modules of kind '{kind}' gave a '{type(made).__name__}', expected a module",
            location=location,
        ) from error


def how_to_register(kind: str) -> str:
    """The hint of errors about a kind that has no loader."""
    return (
        "register what makes a module of its bytes: "
        f"tilewright.runtime.register_module_kind('{kind}', load) "
        "(of commands: in what --byoc-module names), "
        f"import the package that registers '{GLOBAL_PREFIX}{kind}', "
        f"or install one that offers '{kind}' in 'tilewright.module_kinds'"
    )


def _installed_loader(kind: str) -> LoadFromBytes | None:
    row = find_entry_point(EntryPointGroup.MODULE_KINDS, kind)
    if row is None:
        return None
    loader = row.load()
    if not callable(loader):
        raise UserError(
            f"is a {type(loader).__name__}, expected a function that makes a module of bytes",
            location=row,
        )
    return cast("LoadFromBytes", loader)
