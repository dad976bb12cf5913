"""Words and numbers for people: suggestions, sizes, durations, identifiers, quoted strings.

Pure functions on strings that error messages, printers and reports share.  Not a parser and not
a terminal library; called by every room that writes text for a reader.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Container, Iterable
from typing import Final

from tilewright.base.errors import UserError

_SIZE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_DURATION_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COMPARED_NAMES: Final = 4096
_COMPARED_LENGTH: Final = 128
_READ_LETTERS: Final = 4000  # of a line; a name in a file may have a million
_MOST_DIGITS: Final = 20  # which numbers of 64 bits have
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_UNESCAPED: Final = {v: "\\" + k for k, v in _ESCAPES.items()}


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint `did you mean 'x' or 'y'?` when `known` has something close to `word`.

    Looks at a bounded number of names of a bounded length: files bring names, and comparing takes
    time that grows with the square of their length.
    """
    if len(word) > _COMPARED_LENGTH:
        return None
    short = (name for name in known if len(name) <= _COMPARED_LENGTH)
    close = difflib.get_close_matches(
        word, sorted(itertools.islice(short, _COMPARED_NAMES)), n=3, cutoff=0.6
    )
    if not close:
        return None
    return f"did you mean {' or '.join(repr(c) for c in close)}?"


def whole_number(text: str, *, signed: bool = False) -> int | None:
    """The number that plain digits stand for; None for other texts and for numbers of more than 20 digits.

    `str.isdigit` is true of superscripts, which `int` refuses, and `int` raises for thousands of digits.
    """
    digits = text.removeprefix("-") if signed else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    return (
        int(text) if len(digits.lstrip("0")) <= _MOST_DIGITS and len(text) < 4096 else None
    )


def plural(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_bytes(size_bytes: float) -> str:
    """`512 B`, `1.5 KiB`, `97.7 MiB`."""
    size = float(size_bytes)
    for unit in _SIZE_UNITS[:-1]:
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_SIZE_UNITS[-1]}"


def format_duration(duration_ns: float) -> str:
    """`850 ns`, `1.52 ms`, `2.30 s`."""
    for scale, unit in _DURATION_UNITS[:-1]:
        if duration_ns >= scale:
            return f"{duration_ns / scale:.2f} {unit}"
    return f"{duration_ns:.0f} ns"


def format_quantity(value: float, unit: str) -> str:
    """`12 FLOP`, `1.23 GFLOP`, `97 MB/s`: three digits, and a prefix of powers of 1000."""
    for scale, prefix in _PREFIXES:
        if abs(value) >= 0.9995 * scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def identifier(text: str, *, fallback: str = "v") -> str:
    """`text` as an identifier of C, our text forms and symbol names.

    Every run of other characters becomes one underscore; a leading digit gets one in front.
    """
    cleaned = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or fallback
    return "_" + cleaned if cleaned[0].isdigit() else cleaned


def unique(name: str, taken: Container[str]) -> str:
    """`name`, or `name_1`, `name_2` …: the first that `taken` does not contain."""
    if name not in taken:
        return name
    count = 1
    while f"{name}_{count}" in taken:
        count += 1
    return f"{name}_{count}"


def quote(text: str) -> str:
    r"""`text` between double quotes on one line, with `\n \t \r \" \\ \uXXXX` escapes."""
    pieces: list[str] = []
    for char in text:
        escaped = _UNESCAPED.get(char)
        if escaped is None and (ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F):
            escaped = f"\\u{ord(char):04x}"
        pieces.append(escaped or char)
    return '"' + "".join(pieces) + '"'


def unquote(text: str) -> str:
    """Undo `quote`.

    Raises: UserError when `text` is not such a string.
    """
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        raise UserError(f"expected a quoted string, got {text[:40]!r}")
    pieces: list[str] = []
    position, end = 1, len(text) - 1
    while position < end:
        char = text[position]
        position += 1
        if char != "\\":
            pieces.append(char)
            continue
        code = text[position] if position < end else ""
        position += 1
        if code == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", text[position : position + 4]):
            pieces.append(chr(int(text[position : position + 4], 16)))
            position += 4
        elif code in _ESCAPES:
            pieces.append(_ESCAPES[code])
        else:
            raise UserError(f"unknown escape '\\{code}' in a quoted string")
    return "".join(pieces)


def printable(text: str) -> str:
    r"""`text` for a terminal: what would steer it or turn its letters around as `\x1b`.

    Names come from files of strangers.  Line ends and tabs stay, and so do bytes of file names that
    are no letters (`surrogateescape`), which the stream writes as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in "\n\t" or "\udc80" <= c <= "\udcff"
        else c.encode("unicode_escape").decode()
        for c in text
    )


def printable_line(text: str) -> str:
    """`printable` for what stands in one line, which no name of strangers may end."""
    return printable(text).replace("\n", "\\n")


def utf8(text: str, location: str | None = None) -> bytes:
    """The bytes of a text that comes from outside.

    Raises: UserError for what is no character: half of one, or a byte that nothing could be made of (`surrogateescape`).
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code, hint = ord(text[error.start]), None
        character = f"U+{code:04X}"
        if 0xDC80 <= code <= 0xDCFF:
            character = f"the byte {code - 0xDC00:#x}"
            hint = "change the encoding of the text (iconv) to UTF-8"
        raise UserError(
            f"{character} behind {error.start} characters is no text",
            location=location,
            hint=hint,
        ) from error


def abridged(text: str) -> str:
    """`text` with the middle left out of lines that nobody reads to their end."""
    half = _READ_LETTERS // 2
    return "\n".join(
        line
        if len(line) <= _READ_LETTERS
        else f"{line[:half]}… {len(line) - 2 * half} letters …{line[-half:]}"
        for line in text.split("\n")
    )


def beginning(text: str, most: int) -> str:
    """So many characters of `text`, and a mark where there are more."""
    return text if len(text) <= most else f"{text[:most]}…"


def indent(text: str, prefix: str = "  ") -> str:
    """Every line that is not blank with `prefix` in front."""
    return "\n".join(prefix + line if line.strip() else line for line in text.split("\n"))
