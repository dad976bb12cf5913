"""Kernels from text: `parse_kernel(kernel_text(k))` prints the same text and computes the same.

For tests that state a kernel before and after a step, and for people who change one by hand.  A statement is
read by its first word, by one row of `_STATEMENTS`; a line that begins otherwise is a store.  Text may come from
anywhere: whatever is wrong with it is a UserError with line and column.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, final

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError, UserError
from tilewright.base.symbolic import Symbol
from tilewright.base.text import whole_number
from tilewright.base.text_reader import NUMBER, TextReader
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Barrier,
    Body,
    Buffer,
    For,
    Function,
    If,
    Kernel,
    LoopKind,
    Parameter,
    Prefetch,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.text import implied_bounds
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.readers.expression_text import ExpressionParser, Scope

_TEXT: Final = "kernel text"
_DEPTH_LIMIT: Final = 60
_LINE_LIMIT: Final = 1_000_000
_NOTE: Final = "# note: "
_HEADER: Final = re.compile(r"kernel\s+([^\s(]+)\s*\(")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_KINDS: Final = {kind.value: kind for kind in LoopKind}
_SPACES: Final = {space.value: space for space in Space}
_ACCESSES: Final = {access.value: access for access in AccessMode}
_MARK: Final = re.compile(r"[\w.$']+")


def parse_kernel(text: str) -> Kernel:
    """The kernel that a text states.

    Raises: UserError, with line and column, for anything that is not one well-formed kernel.
    """
    found = parse_kernels(text)
    if len(found) != 1:
        raise UserError(f"kernel text with {len(found)} kernels, expected one")
    return found[0]


def parse_kernels(text: str) -> tuple[Kernel, ...]:
    """All kernels of a text, one below the other.

    Raises: UserError, with line and column, for anything else.
    """
    lines = _lines_of(text)
    found: list[Kernel] = []
    while not lines.is_done():
        found.append(_KernelParser(lines).read())
    return tuple(found)


@final
class _Lines:
    """The lines that are not empty, one after another; how far in a line begins is its place in the nest."""

    def __init__(self, lines: list[TextReader]) -> None:
        self.lines: list[TextReader] = lines
        self.next: int = 0

    def is_done(self) -> bool:
        return self.next == len(self.lines)

    def peek(self) -> TextReader | None:
        return None if self.is_done() else self.lines[self.next]

    def take(self) -> TextReader:
        line = self.lines[self.next]
        self.next += 1
        return line


def _lines_of(text: str) -> _Lines:
    numbered = enumerate(text.splitlines(), 1)
    lines = [TextReader(line, _TEXT, number) for number, line in numbered if line.strip()]
    if len(lines) > _LINE_LIMIT:
        raise UserError(f"kernel text of more than {_LINE_LIMIT} lines")
    for line in lines:
        line.skip_space()
    return _Lines(lines)


@final
class _KernelParser:
    """Reads one kernel: its first line, what it declares, its body and notes."""

    def __init__(self, lines: _Lines) -> None:
        self.lines: _Lines = lines
        self.scope: Scope = Scope()
        self.depth: int = 0

    def read(self) -> Kernel:
        """The kernel whose first line comes next."""
        line = self.lines.take()
        match = _HEADER.match(line.text)
        if match is None:
            raise line.expected("'kernel name('")
        line.position = match.end()
        parameters, dims = self._signature(line)
        self._expect_line_of_block(line)
        locals_ = tuple(self._declarations())
        body = self.block(0)
        kernel = Kernel(
            match[1], parameters, dims, locals_, body, notes=tuple(self._notes())
        )
        try:
            verify(kernel)
        except InternalError as error:
            place = f"{_TEXT}, line {line.number}"
            raise UserError(error.message, location=place) from error
        return kernel

    def _expect_line_of_block(self, line: TextReader) -> None:
        following = self.lines.peek()
        if following is None or following.position == 0:
            raise line.error("expected lines that belong to it, further in")

    # --- what is declared ----------------------------------------------------------------

    def _signature(
        self, line: TextReader
    ) -> tuple[tuple[Parameter, ...], tuple[Symbol, ...]]:
        """The parameters and sizes of the first line."""
        begin = line.position
        place = line.text.find("*, ", begin)
        line.position = len(line.text) if place < 0 else place + 2
        # Sizes stand last, but shapes before them name them.
        sizes = () if place < 0 else tuple(self._sizes(line))
        end, line.position = line.position, begin
        parameters: list[Parameter] = []
        while not line.is_at("*,") and not line.is_at(")"):
            parameters.append(self._parameter(line))
            if not line.accept(","):
                break
        if place >= 0:
            line.expect("*,")
            line.position = end
        line.expect(")")
        line.expect(":")
        line.expect_end()
        return tuple(parameters), sizes

    def _sizes(self, line: TextReader) -> Iterator[Symbol]:
        while not line.is_at(")"):
            start = line.skip_space()
            found = self.symbol(line)
            self.declare_symbol(found, line, start)
            yield found
            if not line.accept(","):
                break

    def symbol(self, line: TextReader) -> Symbol:
        """`n`, or `n: 1..64`."""
        name = line.word("the name of a size")
        return Symbol(name, *(line.bounds() if line.accept(":") else ()))

    def declare_symbol(self, symbol: Symbol, line: TextReader, at: int) -> None:
        if symbol.name in self.scope.symbols:
            raise line.error(f"'{symbol.name}' stands for something already", at=at)
        self.scope.symbols[symbol.name] = symbol

    def _parameter(self, line: TextReader) -> Parameter:
        start = line.skip_space()
        word = line.word("read, write or read_write")
        if word not in _ACCESSES:
            raise line.unknown("access", word, _ACCESSES, start)
        return Parameter(self._buffer(line), _ACCESSES[word])

    def _buffer(self, line: TextReader) -> Buffer:
        """`name: f32[4, n]@workgroup`, and its data."""
        start = line.skip_space()
        name = line.word("a buffer")
        line.expect(":")
        parser = ExpressionParser(line, self.scope)
        dtype = parser.dtype()
        line.expect("[")
        shape = parser.dims("]")
        line.expect("]")
        space = Space.DEVICE
        if line.accept("@"):
            at = line.skip_space()
            word = line.word("a space")
            if word not in _SPACES:
                raise line.unknown("space", word, _SPACES, at)
            space = _SPACES[word]
        data = self._data(line, dtype) if line.accept("=") else None
        buffer = Buffer(name, dtype, shape, space, data)
        if name in self.scope.buffers:
            raise line.error(f"two buffers are called '{name}'", at=start)
        self.scope.buffers[name] = buffer
        return buffer

    def _data(self, line: TextReader, dtype: DType) -> tuple[float, ...]:
        """`[1.0, 2.0]`, or `99 values` and their bytes in base 64."""
        if not line.accept("["):
            return self._packed_data(line, dtype)
        return line.several(lambda: self._datum(line, dtype), "]")

    def _datum(self, line: TextReader, dtype: DType) -> float:
        number = line.read(NUMBER, "a number")
        if dtype.is_float:
            return float(number)
        whole = whole_number(number, signed=True)
        if whole is None:
            raise line.error(f"'{number[:40]}' is no value of {dtype}")
        return whole

    def _packed_data(self, line: TextReader, dtype: DType) -> tuple[float, ...]:
        count = line.whole("a number of values")
        line.expect("values")
        start = line.skip_space()
        text = line.take(_BASE64) or ""
        try:
            raw = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise line.error("not base 64", at=start) from None
        if len(raw) != count * dtype.itemsize:
            raise line.error(f"{len(raw)} bytes for {count} values of {dtype}", at=start)
        values = np.frombuffer(raw, dtype.numpy)
        kind = float if dtype.is_float else int
        return tuple(kind(value) for value in values)

    def _declarations(self) -> Iterator[Buffer]:
        """The functions and local buffers before the body."""
        while True:
            line = self.lines.peek()
            if line is None or line.position == 0:
                return
            if line.text.startswith("function ", line.position):
                self._function(self.lines.take())
            elif line.text.startswith("local ", line.position):
                self.lines.take().expect("local ")
                yield self._buffer(line)
                line.expect_end()
            else:
                return

    def _function(self, line: TextReader) -> None:
        """`function name(f32) -> f32 = $0 * $0`."""
        line.expect("function ")
        start = line.skip_space()
        name = line.word("the name of a function")
        line.expect("(")
        parser = ExpressionParser(line, self.scope)
        types = line.several(parser.dtype, ")")
        line.expect("->")
        result = parser.dtype()
        self.scope.parameters = types
        body = parser.expression() if line.accept("=") else None
        self.scope.parameters = ()
        line.expect_end()
        if body is not None and (body.dtype is not result or body.lanes != 1):
            raise line.error(f"a body of {body.dtype} x {body.lanes}, expected {result}")
        if (name, types) in self.scope.functions:
            raise line.error(f"two functions are called '{name}'", at=start)
        self.scope.functions[name, types] = Function(name, types, result, body)

    def _notes(self) -> Iterator[str]:
        while not self.lines.is_done():
            line = self.lines.lines[self.lines.next]
            if line.position == 0 or not line.text.startswith(_NOTE, line.position):
                break
            self.lines.take()
            yield line.text[line.position + len(_NOTE) :]

    # --- statements ----------------------------------------------------------------------

    def block(self, around: int) -> Body:
        """The statements that begin further in than `around`, all at one place."""
        self.depth += 1
        found: list[Statement] = []
        first = self.lines.peek()
        inner = around if first is None else first.position
        if self.depth > _DEPTH_LIMIT and first is not None:
            raise first.error("statements are nested too deeply")
        while True:
            line = self.lines.peek()
            if line is None or line.position <= around or self._is_note(line):
                break
            if line.position != inner:
                raise line.error(f"expected {inner} spaces before a statement")
            found.extend(self._statement(self.lines.take()))
        self.depth -= 1
        return tuple(found)

    def _is_note(self, line: TextReader) -> bool:
        return self.depth == 1 and line.text.startswith(_NOTE, line.position)

    def _statement(self, line: TextReader) -> Iterator[Statement]:
        for word, read in _STATEMENTS.items():
            if line.is_at(word):
                yield from read(self, line)
                return
        yield self._store(line)

    def check_inner(self, line: TextReader, around: int) -> None:
        following = self.lines.peek()
        if following is None or following.position <= around:
            raise line.error("expected statements inside, or 'pass'")

    def _store(self, line: TextReader) -> Store:
        """`x[i : 8 lanes] = value where mask`."""
        start = line.skip_space()
        parser = ExpressionParser(line, self.scope)
        buffer, indices, lanes, step = parser.place()
        line.expect("=")
        value = parser.expression()
        if value.lanes != lanes:
            raise line.error(f"{value.lanes} lanes stored as {lanes}", at=start)
        mask = None
        if line.accept("where"):
            mask = ExpressionParser(line, self.scope).expression()
        line.expect_end()
        return Store(buffer, indices, value, step, mask)


def _for(p: _KernelParser, line: TextReader) -> Iterator[Statement]:
    """`for i in range(n):  # unroll, reduction, i: 0..7`."""
    around = line.position
    line.expect("for ")
    start = line.skip_space()
    name = line.word("a loop's variable")
    line.expect("in")
    line.expect("range(")
    extent = ExpressionParser(line, p.scope).dim()
    line.expect(")")
    line.expect(":")
    kind, is_reduction = LoopKind.SERIAL, False
    var = Symbol(name, *implied_bounds(extent))
    while line.accept("," if line.text[: line.position].rstrip()[-1:] != ":" else "#"):
        at = line.skip_space()
        word = line.take(_MARK) or ""
        if word == name and line.is_at(":"):
            line.position = at
            var = p.symbol(line)
        elif word in _KINDS:
            kind = _KINDS[word]
        elif word == "reduction":
            is_reduction = True
        else:
            raise line.unknown("mark", word, [*_KINDS, "reduction"], at)
    line.expect_end()
    p.declare_symbol(var, line, start)
    p.check_inner(line, around)
    body = p.block(around)
    del p.scope.symbols[name]
    yield For(var, extent, body, kind, is_reduction)


def _if(p: _KernelParser, line: TextReader) -> Iterator[Statement]:
    around = line.position
    line.expect("if ")
    condition = ExpressionParser(line, p.scope).expression()
    line.expect(":")
    line.expect_end()
    p.check_inner(line, around)
    yield If(condition, p.block(around))


def _prefetch(p: _KernelParser, line: TextReader) -> Iterator[Statement]:
    """`prefetch x[i]  # level 2`."""
    line.expect("prefetch ")
    buffer, indices, _, _ = ExpressionParser(line, p.scope).place()
    line.expect("#")
    line.expect("level")
    start = line.skip_space()
    level = line.whole("a level of the cache")
    if not 1 <= level <= 3:
        raise line.error(f"level {level}, expected 1 to 3", at=start)
    line.expect_end()
    yield Prefetch(buffer, indices, level)


def _barrier(_: _KernelParser, line: TextReader) -> Iterator[Statement]:
    line.expect("barrier")
    line.expect_end()
    yield Barrier()


def _remark(_: _KernelParser, line: TextReader) -> Iterator[Statement]:
    """What people write between statements says nothing."""
    line.expect("#")
    return iter(())


def _pass(_: _KernelParser, line: TextReader) -> Iterator[Statement]:
    line.expect("pass")
    line.expect_end()
    return iter(())


_STATEMENTS: Final[
    Mapping[str, Callable[[_KernelParser, TextReader], Iterator[Statement]]]
] = {
    "for ": _for,
    "if ": _if,
    "prefetch ": _prefetch,
    "barrier": _barrier,
    "#": _remark,
    "pass": _pass,
}
"""Statements by their first word."""
