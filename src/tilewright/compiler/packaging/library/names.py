"""The names that a library has in C: what a linker, a preprocessor and a reader will take.

Called by all that writes C here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tilewright.base.text import identifier, unique

# Words that are no names in C, C++, Go or Rust, functions of every C library, and what `model.c` calls its own.
_RESERVED_WORDS: Final = """
    created dim_infos graph_json input_infos input_shape known levels model_of options out_model
    output_infos output_shape prepare programs run status weights workspace_bytes
    alignas alignof and as asm assert async auto await bool break byte case catch chan char class const
    continue crate default defer delete do double dyn else enum errno error exit explicit export extern
    fallthrough false float fn for free friend func go goto if impl import in inline int interface long
    loop main malloc map match mod move mut namespace new not nullptr operator or package private
    protected pub public range ref register restrict return select self short signed sizeof static
    std string struct super switch template this throw time trait true try type typedef typename union
    unsafe unsigned use assert_ complex ctype dlfcn fenv inttypes limits locale math pthread sched setjmp
signal stdarg stdatomic stddef stdint stdio stdlib tgmath threads time uchar unistd wchar wctype core tilewright using var virtual void volatile wchar_t where while xor yield
"""
_RESERVED: Final = frozenset(_RESERVED_WORDS.split())


def library_name(text: str) -> str:
    """`text` as the word that all names of a library begin with.

    It stands alone, too, as the name of a type, so that no keyword is left as it is.
    """
    name = identifier(text, fallback="model").strip("_") or "model"
    if name[0].isdigit():
        name = f"model_{name}"
    return f"{name}_model" if name in _RESERVED or name.startswith("tw_") else name


def macro_names(names: Iterable[str], *, endings: Sequence[str] = ()) -> tuple[str, ...]:
    """One word in capitals for each of the names, no two alike, and none of them `COUNT`.

    Args:
        names: of tensors or sizes.
        endings: with these behind them, words name further macros, which are no words either.
    """
    taken: set[str] = {"COUNT"}
    words: list[str] = []
    for index, name in enumerate(names):
        cleaned = identifier(name, fallback=str(index)).strip("_").upper()
        word = _free(cleaned or str(index), taken, endings)
        taken.update((word, *(f"{word}_{ending}" for ending in endings)))
        words.append(word)
    return tuple(words)


def _free(word: str, taken: set[str], endings: Sequence[str]) -> str:
    """`word`, or with the first number behind it with which all its macros are new."""
    chosen = unique(word, taken)
    tried = set(taken)
    while any(f"{chosen}_{ending}" in taken for ending in endings):
        tried.add(chosen)
        chosen = unique(word, tried)
    return chosen


def string(text: str) -> str:
    r"""`text` as a literal of C; what is not printable ASCII is written in octal."""
    plain = (
        chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}"
        for b in text.encode()
    )
    return f'"{"".join(plain)}"'


def comment(text: str) -> str:
    """`text` so that it cannot end a comment, on one line, without trigraphs."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    apart = printable.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
    return apart.replace("??", "? ?").rstrip("\\")
