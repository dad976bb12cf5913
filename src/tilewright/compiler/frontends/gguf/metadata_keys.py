"""Metadata of a language model's file, each value checked where it is read.

Called by `hyperparameters`, which says what values mean.

Source: ggml, `docs/gguf.md` (types of values).
"""

from __future__ import annotations

import math
from typing import Final, final

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf.activations import Xielu
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.formats.gguf import GgufFile

MAX_SIZE: Final = 1 << 24
_MAX_REAL: Final = float(np.finfo(np.float32).max)


@final
class Keys:
    """Metadata of one architecture, each value checked where it is read.

    Raises (every method): ModelError naming the key that is missing, or of another type or size.
    """

    def __init__(self, file: GgufFile, prefix: str) -> None:
        self._file: GgufFile = file
        self._prefix: str = prefix

    def _find(self, key: str) -> tuple[str, object]:
        name = f"{self._prefix}.{key}"
        return name, self._file.metadata.get(name)

    def _wrong(self, name: str, value: object, expected: str) -> ModelError:
        got = "is missing" if value is None else f"is {str(value)[:40]!r}"
        return ModelError(
            f"metadata '{name}' {got}, expected {expected}", location=self._file.location
        )

    def size(
        self,
        key: str,
        default: int | None = None,
        limit: int = MAX_SIZE,
        *,
        least: int = 1,
    ) -> int:
        """A whole number from the least to a limit; one that all layers agree on."""
        name, value = self._find(key)
        if value is None and default is not None:
            return default
        if isinstance(value, np.ndarray) and value.size:
            if (value != value.flat[0]).any():
                raise UnsupportedError(
                    f"metadata '{name}' differs from layer to layer",
                    location=self._file.location,
                )
            value = value.flat[0].item()
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not least <= value <= limit
        ):
            raise self._wrong(name, value, f"a whole number from {least} to {limit}")
        return value

    def real(
        self, key: str, default: float | None = None, *, least: float = -math.inf
    ) -> float:
        """A number that is finite in f32, at least the `least`."""
        name, value = self._find(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        if not abs(value) <= _MAX_REAL:
            raise self._wrong(name, value, "a finite number of f32")
        if value < least:
            raise self._wrong(name, value, f"at least {least:g}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        name, value = self._find(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def refuse(self, key: str, neutral: tuple[float, ...]) -> None:
        """Raise UnsupportedError for a value, or one of several, that is none of those that change nothing."""
        name, value = self._find(key)
        several = value.flat if isinstance(value, np.ndarray) else (value,)
        if value is not None and any(each not in neutral for each in several):
            raise UnsupportedError(
                f"metadata '{name}' is {str(value)[:40]!r}, which is not supported",
                location=self._file.location,
            )

    def first(self, count: int, key: str) -> tuple[float, ...]:
        """Of several numbers so many, of one for all as many; none where it is not said."""
        name, value = self._find(key)
        if value is None:
            return ()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
            return tuple(float(each) for each in value.flat[:count])
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "numbers")
        return (float(value),) * count

    def windowed(self, key: str, layers: int) -> tuple[bool, ...] | None:
        """Whether each layer sees a window, or of how many layers the last does not; None: it is not said."""
        name, value = self._find(key)
        if value is None:
            return None
        if (
            isinstance(value, np.ndarray)
            and value.size == layers
            and value.dtype.kind in "biu"
        ):
            return tuple(bool(each) for each in value.flat)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(
                name, value, f"a whole number, or one for each of {layers} layers"
            )
        return all_but_last(value, layers)

    def slopes(self, layers: int) -> tuple[Xielu, ...]:
        """Of the activation of each layer; files have logarithms of two of them, under keys of no architecture."""
        keys = Keys(self._file, "xielu")
        names = ("alpha_p", "alpha_n", "beta", "eps")
        rows = [keys.first(layers, name) for name in names]
        numbers = (each for row in rows for each in row)
        is_finite = all(abs(each) <= _MAX_REAL for each in numbers)
        if not is_finite or any(len(row) != layers for row in rows):
            raise ModelError(f"metadata 'xielu' has no numbers for {layers} layers")
        return tuple(
            Xielu(_softplus(above), straight + _softplus(below), straight, end)
            for above, below, straight, end in zip(*rows, strict=True)
        )

    def has_tensor(self, ending: str) -> bool:
        """Whether the file has a tensor whose name ends so."""
        return any(name.endswith(ending) for name in self._file.tensors)

    def text(self, key: str, default: str) -> str:
        """A text."""
        name, value = self._find(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value


def all_but_last(period: int, layers: int) -> tuple[bool, ...]:
    """Of every so many layers all but the last, so of a period of one none; of a period of zero all."""
    return tuple(period == 0 or layer % period < period - 1 for layer in range(layers))


def _softplus(x: float) -> float:
    return float(np.logaddexp(x, 0.0))
