"""Libraries that TVM made for the tests, in environments of their own that the Makefile makes.

A release's libraries are made once per state of the scripts that make them, into `build/tvm`.  Run as a
program, this writes the stored executables of `tests/golden/relax`::

    python tests/fakes/tvm_libraries.py 0.25 0.27
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = tuple(
    Path(__file__).with_name(f"{name}.py")
    for name in ("tvm_models", "tvm_modules", "tvm_modules_with_state")
)
NEWEST = "newest"
STORED = ("branch", "calls", "closures", "loop", "numbers", "shapes", "strings", "tuples")
MODES = ("bytecode", "compiled")


def python_of(release: str = NEWEST) -> Path | None:
    """Python of an environment with TVM; None where there is none."""
    name = "tvm" if release == NEWEST else f"tvm-{release}"
    path = ROOT / "build" / "envs" / name / "bin" / "python"
    return path if path.exists() else None


@dataclass(frozen=True)
class Libraries:
    """What one release made, and what its own VM says."""

    folder: Path
    document: dict[str, Any]

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the release compiles."""
        return tuple(self.document["models"])

    def path(self, model: str, mode: str, suffix: str) -> Path:
        """A library."""
        return self.folder / f"{model}.{mode}.{suffix}"

    def calls(self, model: str) -> list[dict[str, Any]]:
        """Calls of a model: function, arguments, and result or kind of error."""
        return self.document["models"][model]["calls"]

    def arrays(self, model: str) -> dict[str, np.ndarray]:
        """The arrays of its calls by name."""
        with np.load(self.folder / f"{model}.npz") as stored:
            return dict(stored)


@functools.cache
def libraries(release: str = NEWEST, seed: int = 7) -> Libraries | None:
    """The libraries of a release; None where there is no environment with it."""
    python = python_of(release)
    if python is None:
        return None
    state = hashlib.sha256(b"".join(one.read_bytes() for one in SCRIPTS)).hexdigest()[:12]
    folder = ROOT / "build" / "tvm" / f"{release}-{seed}-{state}"
    index = folder / "cases.json"
    if not index.exists():
        # Several test processes may make it at the same time; the first one that is done wins.
        made = folder.with_name(f"{folder.name}.{os.getpid()}")
        command = [str(python), str(SCRIPTS[0]), str(made), "--seed", str(seed)]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        with suppress(OSError):
            made.rename(folder)
        shutil.rmtree(made, ignore_errors=True)
    return Libraries(folder, json.loads(index.read_text()))


# --- values -------------------------------------------------------------------------------------


def as_argument(
    row: dict[str, Any],
    arrays: dict[str, np.ndarray],
    shape: Callable[[tuple[int, ...]], Any],
) -> Any:
    """What a call was given: arrays, shapes, tuples, numbers, texts."""
    kind, value = next(iter(row.items()))
    if kind == "array":
        return np.array(arrays[value])
    if kind == "shape":
        return shape(tuple(value))
    if kind == "tuple":
        return tuple(as_argument(one, arrays, shape) for one in value)
    return value


def agrees(found: Any, row: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    """Whether a result is TVM's, arrays to 1e-6."""
    kind, expected = next(iter(row.items()))
    if kind == "array":
        array, other = np.from_dlpack(found), arrays[expected]
        same = (array.dtype, array.shape) == (other.dtype, other.shape)
        return same and np.allclose(array, other, rtol=1e-6, atol=1e-6, equal_nan=True)
    if kind == "tuple":
        rows = list(found)
        return len(rows) == len(expected) and all(
            agrees(one, other, arrays) for one, other in zip(rows, expected, strict=True)
        )
    return tuple(found) == tuple(expected) if kind == "shape" else found == expected


# --- functions that the models call ---------------------------------------------------------------


def _tile(source: Any, target: Any) -> None:
    array = np.from_dlpack(source)
    np.from_dlpack(target)[...] = np.concatenate([array, array], axis=1)


def registered_functions(
    tuple_of: Callable[[list[Any]], Any],
) -> dict[str, Callable[..., Any]]:
    """What `tvm_models.py` registers in TVM's process."""
    return {
        "tilewright.test.pair": lambda scale, flag: tuple_of([scale * 2, not flag]),
        "tilewright.test.describe": lambda x, greeting, text: (
            f"{greeting} {text} {tuple(x.shape)}"
        ),
        "tilewright.test.join": lambda *values: " ".join(str(one) for one in values),
        "tilewright.test.tile": _tile,
    }


# --- stored executables -----------------------------------------------------------------------------


def _executable_in(path: Path) -> bytes:
    """The bytes of the executable, which stand behind the name of their kind."""
    data, kind = path.read_bytes(), b"relax.VMExecutable"
    at = data.index(kind) + len(kind)
    return data[at + 8 : at + 8 + int.from_bytes(data[at : at + 8], "little")]


def main() -> int:
    """Write the stored executables of some releases."""
    for release in sys.argv[1:]:
        made = libraries(release) or libraries()
        assert made is not None, f"make build/envs/tvm-{release} first"
        rows = {
            f"{model}.{mode}": {
                "bytes": _executable_in(made.path(model, mode, "so")).hex(),
                "text": made.path(model, mode, "txt").read_text(),
                "stats": made.path(model, mode, "stats").read_text(),
            }
            for model in STORED
            for mode in MODES
        }
        data = lzma.compress(json.dumps(rows).encode(), preset=9 | lzma.PRESET_EXTREME)
        (ROOT / "tests" / "golden" / "relax" / f"tvm-{release}.json.xz").write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
