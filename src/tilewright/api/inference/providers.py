"""Execution providers: onnxruntime's word for what runs a model.  Here it is always the CPU.

Called by `InferenceSession` and by programs that ask before they choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tilewright.base.diagnostics import warn
from tilewright.base.errors import UserError
from tilewright.base.options import wrong

CPU: Final = "CPUExecutionProvider"
Provider = str | tuple[str, Mapping[str, object]]


def get_available_providers() -> list[str]:
    """The providers that a session may be asked for."""
    return [CPU]


def get_all_providers() -> list[str]:
    """The same: nothing is left out of this build."""
    return [CPU]


def get_device() -> str:
    """What models run on."""
    return "CPU"


def check_providers(providers: Sequence[Provider] | None) -> None:
    """Warn of providers that are not there, as onnxruntime does; the model runs on the CPU.

    Raises: UserError for what is no list of names, or of pairs of a name and its options.
    """
    if isinstance(providers, str):
        raise UserError(
            f"providers is the text '{providers}', expected a list", hint=f"['{providers}']"
        )
    if providers is not None and not isinstance(providers, Iterable):
        raise wrong("providers", providers, "a list")
    names = [_name(provider) for provider in providers or ()]
    missing = [name for name in names if name not in get_available_providers()]
    if missing and CPU not in names:
        warn(f"provider '{missing[0]}' is not available, the model runs on '{CPU}'")


def _name(provider: object) -> str:
    name = provider[0] if isinstance(provider, tuple) and provider else provider
    if not isinstance(name, str):
        raise UserError(
            f"got the provider {provider!r}, expected a name or a pair of name and options"
        )
    return name
