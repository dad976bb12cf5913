"""Objects of C sources, kept on disk and found again by all that their compiler read.

    source → what the preprocessor makes of it, which compiler that is → digest → object, or a miss

An export compiles the same C core each time.  A key has the words of the command, what the driver says
of itself with `-v` (version, machine, every option that it adds), the files of the programs behind it, and
the preprocessed source, so headers of the system are in it by content.  What reads files behind the
preprocessor's back has no key.  A driver that does not know these questions is asked to compile.

Not here: where entries lie, and how damaged ones are found (`base.compilation_cache`).  Called by
`toolchain`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from tilewright.base.c_compiler.commands import output_of, run_all
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import UserError

_KIND: Final = "object of C, 1"
_PROGRAMS: Final = ("cc1", "as")
"""What a driver starts to make an object, where it does not do that itself."""
_READS_FILES: Final = re.compile(
    # Of the assembler; and directives that the preprocessor left (`#embed`).
    r"\.inc(bin|lude)|^[ \t]*#[ \t]*(?!\d|line\b|pragma\b|ident\b)\S",
    re.MULTILINE,
)


class Step(NamedTuple):
    """A source, as its compiler is called with it, and where its object goes."""

    source: str
    made: Path


@final
class ObjectStore:
    """What the cache has of one command's objects.

    Args:
        cache: where they are kept.
        command: the words that call the driver.
        options: the words that it compiles with.
        folder: where it is started.
    """

    def __init__(
        self,
        cache: CompilationCache,
        command: Sequence[str],
        options: Sequence[str],
        folder: Path,
    ) -> None:
        self._cache: CompilationCache = cache
        self._command: tuple[str, ...] = tuple(command)
        self._options: tuple[str, ...] = tuple(options)
        self._folder: Path = folder
        self._keys: dict[Path, str] = {}

    def take(self, steps: Sequence[Step]) -> list[Step]:
        """Write the objects that are kept.  Returns: the steps whose objects are not."""
        self._keys = self._find_keys([s for s in steps if s.source.endswith(".c")])
        missing: list[Step] = []
        for step in steps:
            key = self._keys.get(step.made)
            found = None if key is None else self._cache.get(key)
            if found is None:
                missing.append(step)
            else:
                step.made.write_bytes(found)
        return missing

    def keep(self, steps: Sequence[Step]) -> None:
        """Keep the objects of steps that `take` did not find, and that were compiled since."""
        kept = [step for step in steps if step.made in self._keys]
        for step in kept:
            self._cache.put(self._keys[step.made], step.made.read_bytes())
        if kept:
            self._cache.trim()

    def _find_keys(self, steps: Sequence[Step]) -> dict[Path, str]:
        driver = _describe(self._command)
        if not driver or not steps:
            return {}
        # By names below the folder: where that lies makes no difference.
        names = [f"{step.made.stem}.i" for step in steps]
        try:
            said = run_all(
                [
                    [*self._command, "-E", "-v", *self._options, "-o", name, step.source]
                    for step, name in zip(steps, names, strict=True)
                ],
                cwd=str(self._folder),
            )
            texts = [(self._folder / name).read_text("latin-1") for name in names]
        except (UserError, OSError):
            return {}
        words = "\0".join((*self._command, *self._options))
        return {
            step.made: CompilationCache.key(
                _KIND, driver, words, self._placeless(told), text
            )
            for step, told, text in zip(steps, said, texts, strict=True)
            if not _READS_FILES.search(text)
        }

    def _placeless(self, text: str) -> str:
        for folder in (self._folder.resolve(), self._folder):
            text = text.replace(str(folder), ".")
        return text


def _describe(command: Sequence[str]) -> str:
    """The files of a driver and of the programs that it starts; empty where there is none."""
    names = [word for word in command if not word.startswith("-")]
    names += [output_of([*command, f"-print-prog-name={p}"]).strip() for p in _PROGRAMS]
    paths = [Path(path) for path in map(shutil.which, filter(None, names)) if path]
    return "\n".join(map(_identity, filter(Path.is_file, paths)))


def _identity(path: Path) -> str:
    """What changes when a file is replaced, also by one of the same size and time."""
    real = path.resolve()
    found = real.stat()
    numbers = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    return f"{real} {numbers}"
