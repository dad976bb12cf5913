"""Building functions: the interface for emitters.

    build = FunctionBuilder("0rI_r")
    view, size = build.arguments
    doubled = build.emit("mul.i64", size, build.constant("i64", 2))
    (result,) = build.call(make, [view, doubled], ["ref"])
    build.return_(result)
    function = build.finish()

Emitters use as many registers as they like and never think of reference lifetimes: `finish`
hands references over at their last use, discards the rest, shares registers and orders branch
moves (`allocation`).  Mistakes of the emitter are `InternalError`s.  Called by
`compiler.program`; text is `text`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, final

from tilewright.base.errors import InternalError
from tilewright.base.record import record
from tilewright.formats.bytecode.allocation import (
    Assignment,
    Releases,
    allocate,
    order_moves,
    release_references,
)
from tilewright.formats.bytecode.drafts import Block, Draft, DraftValue, Edge, Register
from tilewright.formats.bytecode.encoding import (
    FieldValue,
    Instruction,
    Moves,
    bits_from_float,
    encode_instruction,
)
from tilewright.formats.bytecode.forms import Field, FieldKind
from tilewright.formats.bytecode.isa import (
    BLOCK,
    MOVE_BIT,
    PLAIN_ARGUMENT,
    REF_BIT,
    Opcode,
    opcode_by_name,
)
from tilewright.formats.bytecode.limits import FEATURE_UNWIND, FEATURE_YIELD
from tilewright.formats.calling_convention import WIDE_BANKS, parse_calling_convention

Argument = Register | Sequence[Register | Sequence[Register]]
"""What a variadic call takes: a register, or a list of entries (registers or tuples)."""

_ZEROS: Final = {"i32": 0, "i64": 0, "f32": 0, "f64": 0}


@final
@record(kw_only=True)
class AssembledFunction:
    """A function in its final bytes, with what its descriptor must say."""

    calling_convention: str
    code: bytes
    block_count: int
    word_registers: int
    ref_registers: int
    requirements: int


@final
class FunctionBuilder:
    """Builds one function, block by block.

    Args:
        calling_convention: of the function, such as `0rI_r`.

    Attributes:
        arguments: the registers the arguments arrive in.
    """

    def __init__(self, calling_convention: str) -> None:
        convention = parse_calling_convention(calling_convention)
        self._convention: Final = calling_convention
        self._results: Final = convention.results
        self._registers: list[Register] = []
        self._constants: dict[tuple[str, int], Register] = {}
        self._prologue: list[Draft] = []
        places = list(convention.argument_registers())
        self.arguments: Final = tuple(self.register(bank) for bank, _ in places)
        self._fixed: Final = [
            (register, place)
            for register, (_, place) in zip(self.arguments, places, strict=True)
        ]
        self._blocks: list[Block] = []
        self._current: Block | None = None
        self.place(Block())

    # --- registers and blocks ------------------------------------------------------------------

    def register(self, bank: str) -> Register:
        """A new register; give it a value with `into=`."""
        register = Register(len(self._registers), bank)
        self._registers.append(register)
        return register

    def block(self, *banks: str) -> Block:
        """A new block with parameters of the given banks; it must be placed once."""
        return Block(tuple(self.register(bank) for bank in banks))

    def place(self, block: Block) -> tuple[Register, ...]:
        """Go on with the given block.  Returns: its parameters."""
        if self._current is not None:
            raise InternalError("the block before does not end in a terminator")
        if block.placed:
            raise InternalError("a block is placed twice")
        block.placed = True
        block.drafts.append(Draft(BLOCK, ()))
        self._blocks.append(block)
        self._current = block
        return block.parameters

    @property
    def is_open(self) -> bool:
        """The current block still wants instructions."""
        return self._current is not None

    # --- instructions --------------------------------------------------------------------------

    def emit(
        self,
        name: str,
        *values: DraftValue | float,
        into: Register | None = None,
        results: Sequence[str | Register] = (),
    ) -> Register:
        """Append an instruction.

        Args:
            name: of the opcode, as in the table.
            values: one per field in encoding order, results and moves left out; blocks to go to
                as `Edge`s, floats as numbers.
            into: the register for the result; default: a new one.
            results: for opcodes with a result list: banks or registers.

        Returns:
            The result register; meaningless for opcodes without one.
        """
        opcode = self._opcode(name)
        draft = Draft(opcode, self._values(opcode, list(values), into, results))
        self._append(draft)
        written = list(draft.results())
        return written[0] if written else Register(-1, "")

    def constant(self, bank: str, value: float) -> Register:
        """A constant, made once at the start of the function and shared; do not assign to it."""
        bits = bits_from_float(value, bank) if bank in ("f32", "f64") else int(value)
        key = (bank, bits)
        if key not in self._constants:
            register = self.register(bank)
            zero = bits == _ZEROS[bank]
            opcode = self._opcode(f"const.{bank}.zero" if zero else f"const.{bank}")
            values: tuple[DraftValue, ...] = (register,) if zero else (bits, register)
            self._prologue.append(Draft(opcode, values))
            self._constants[key] = register
        return self._constants[key]

    def call(
        self,
        callee: int,
        arguments: Sequence[Register],
        results: Sequence[str | Register] = (),
    ) -> tuple[Register, ...]:
        """Call a function without list arguments.

        Args:
            callee: ordinal, bit 31 set for an import.
            arguments: in order.
            results: the banks of the results, or registers to put them into.
        """
        written = self._targets(results)
        opcode = self._opcode("call")
        self._append(Draft(opcode, (callee, tuple(arguments), written)))
        return written

    def call_variadic(
        self,
        callee: int,
        arguments: Sequence[Argument],
        results: Sequence[str | Register] = (),
    ) -> tuple[Register, ...]:
        """Call an import of which some arguments are lists, given as sequences."""
        segments, flat = _flatten(arguments)
        written = self._targets(results)
        opcode = self._opcode("call.variadic")
        self._append(Draft(opcode, (callee, segments, flat, written)))
        return written

    def call_yieldable(
        self,
        callee: int,
        arguments: Sequence[Argument],
        results: Sequence[str | Register] = (),
    ) -> tuple[Register, ...]:
        """Call an import that may suspend; building goes on in a block of its own."""
        written = self._targets(results)
        after = Block()
        if all(isinstance(argument, Register) for argument in arguments):
            plain = tuple(cast("Sequence[Register]", arguments))
            values: tuple[DraftValue, ...] = (callee, plain, Edge(after), written)
            self._append(Draft(self._opcode("call.yieldable"), values))
        else:
            segments, flat = _flatten(arguments)
            values = (callee, segments, flat, Edge(after), written)
            self._append(Draft(self._opcode("call.variadic.yieldable"), values))
        self.place(after)
        return written

    def branch(self, block: Block, *arguments: Register) -> None:
        """Go to a block."""
        self._append(Draft(self._opcode("br"), (self._edge(block, arguments), None)))

    def branch_if(
        self,
        condition: Register,
        then: Block,
        otherwise: Block,
        then_arguments: Sequence[Register] = (),
        otherwise_arguments: Sequence[Register] = (),
    ) -> None:
        """Go to one of two blocks."""
        edges = self._edge(then, then_arguments), self._edge(otherwise, otherwise_arguments)
        values = (condition, edges[0], None, edges[1], None)
        self._append(Draft(self._opcode("cond_br"), values))

    def branch_table(self, index: Register, default: Block, cases: Sequence[Block]) -> None:
        """Go to `cases[index]`, or to `default` when there is none."""
        edges = tuple(self._edge(block, ()) for block in cases)
        values = (index, self._edge(default, ()), None, edges)
        self._append(Draft(self._opcode("br_table"), values))

    def return_(self, *results: Register) -> None:
        """Leave the function."""
        banks = tuple(register.bank for register in results)
        if banks != self._results:
            raise InternalError(f"a function returns {banks}, expected {self._results}")
        self._append(Draft(self._opcode("return"), (tuple(results),)))

    def fail(self, status: Register, message: str) -> None:
        """Leave with an error."""
        text = message.encode()[:0xFFFF]
        self._append(Draft(self._opcode("fail"), (status, text)))

    # --- the end -------------------------------------------------------------------------------

    def finish(self) -> AssembledFunction:
        """The bytes of the function; the builder is used up."""
        if self._current is not None:
            raise InternalError("the last block does not end in a terminator")
        self._blocks[0].drafts[1:1] = self._prologue
        for block in self._blocks:
            for draft in block.drafts:
                if any(not edge.block.placed for edge in draft.edges()):
                    raise InternalError(
                        f"'{draft.opcode.name}' goes to a block never placed"
                    )
        releases = release_references(self._blocks, self.arguments, self._registers)
        assignment = allocate(self._blocks, self._fixed, self._registers)
        return _Encoder(self._blocks, releases, assignment).function(self._convention)

    # --- inside --------------------------------------------------------------------------------

    def _opcode(self, name: str) -> Opcode:
        try:
            return opcode_by_name(name)
        except KeyError as error:
            raise InternalError(f"there is no VM opcode '{name}'") from error

    def _append(self, draft: Draft) -> None:
        if self._current is None:
            raise InternalError(f"'{draft.opcode.name}' stands behind the end of its block")
        for field, value in draft.items():
            _check_banks(draft.opcode, field, value)
        self._current.drafts.append(draft)
        if draft.opcode.terminator:
            self._current = None

    def _edge(self, block: Block, arguments: Sequence[Register]) -> Edge:
        given = tuple(register.bank for register in arguments)
        wanted = tuple(register.bank for register in block.parameters)
        if given != wanted:
            raise InternalError(f"a block takes {wanted}, a branch brings {given}")
        return Edge(block, tuple(arguments))

    def _targets(self, results: Sequence[str | Register]) -> tuple[Register, ...]:
        return tuple(r if isinstance(r, Register) else self.register(r) for r in results)

    def _values(
        self,
        opcode: Opcode,
        given: list[DraftValue | float],
        into: Register | None,
        results: Sequence[str | Register],
    ) -> tuple[DraftValue, ...]:
        values: list[DraftValue] = []
        for field in opcode.fields:
            if field.kind is FieldKind.RESULT:
                values.append(into or self.register(field.bank))
            elif field.kind is FieldKind.RESULTS:
                values.append(self._targets(results))
            elif field.kind is FieldKind.MOVES:
                values.append(None)
            elif not given:
                raise InternalError(f"'{opcode.name}' lacks its field '{field.name}'")
            elif field.kind is FieldKind.IMMEDIATE and field.bank in ("f32", "f64"):
                values.append(
                    bits_from_float(float(cast("float", given.pop(0))), field.bank)
                )
            else:
                values.append(cast("DraftValue", given.pop(0)))
        if given:
            raise InternalError(f"'{opcode.name}' has {len(given)} values too many")
        return tuple(values)


def _flatten(
    arguments: Sequence[Argument],
) -> tuple[tuple[int, ...], tuple[Register, ...]]:
    segments: list[int] = []
    flat: list[Register] = []
    for argument in arguments:
        if isinstance(argument, Register):
            segments.append(PLAIN_ARGUMENT)
            flat.append(argument)
            continue
        segments.append(len(argument))
        for entry in argument:
            flat.extend((entry,) if isinstance(entry, Register) else entry)
    return tuple(segments), tuple(flat)


def _check_banks(opcode: Opcode, field: Field, value: DraftValue) -> None:
    if field.kind in (FieldKind.OPERAND, FieldKind.RESULT):
        registers = (cast("Register", value),)
    elif field.kind in (FieldKind.OPERANDS, FieldKind.RESULTS):
        registers = cast("tuple[Register, ...]", value)
    else:
        return
    for register in registers:
        if field.bank not in ("any", register.bank):
            raise InternalError(
                f"'{opcode.name}' wants {field.bank} for '{field.name}', got {register.bank}"
            )


@final
class _Encoder:
    """Drafts → bytes, once every register has its place."""

    def __init__(
        self, blocks: Sequence[Block], releases: Releases, assignment: Assignment
    ) -> None:
        self._blocks: Final = blocks
        self._releases: Final = releases
        self._assignment: Final = assignment
        self._starts: dict[Block, int] = {}
        self._scratch = False

    def function(self, calling_convention: str) -> AssembledFunction:
        # Sizes do not depend on the values of targets, so the second pass hits the first's pcs.
        self._encode()
        code = self._encode()
        refs = self._assignment.refs + self._scratch
        return AssembledFunction(
            calling_convention=calling_convention,
            code=code,
            block_count=len(self._blocks),
            word_registers=self._assignment.words + self._scratch,
            ref_registers=refs,
            requirements=self._features() | (FEATURE_UNWIND if refs else 0),
        )

    def _features(self) -> int:
        features = 0
        for block in self._blocks:
            for draft in block.drafts:
                features |= draft.opcode.feature
                if draft.opcode.name in _YIELDING:
                    features |= FEATURE_YIELD
        return features

    def _encode(self) -> bytes:
        code = bytearray()
        for block in self._blocks:
            self._starts[block] = len(code)
            for draft in block.drafts:
                encode_instruction(code, self._instruction(draft))
        return bytes(code)

    def _instruction(self, draft: Draft) -> Instruction:
        values: list[FieldValue] = []
        position = 0
        edge = Edge(self._blocks[0])
        for field, value in draft.items():
            if field.kind is FieldKind.OPERAND:
                values.append(self._operand(draft, position, cast("Register", value)))
                position += 1
            elif field.kind is FieldKind.OPERANDS:
                registers = cast("tuple[Register, ...]", value)
                values.append(
                    tuple(
                        self._operand(draft, position + i, r)
                        for i, r in enumerate(registers)
                    )
                )
                position += len(registers)
            elif field.kind is FieldKind.TARGET:
                edge = cast("Edge", value)
                values.append(self._starts.get(edge.block, 0))
            elif field.kind is FieldKind.MOVES:
                values.append(self._moves(edge))
            else:
                values.append(self._plain(field, value))
        return Instruction(draft.opcode, tuple(values))

    def _plain(self, field: Field, value: DraftValue) -> FieldValue:
        if field.kind is FieldKind.RESULT:
            return self._place(cast("Register", value))
        if field.kind is FieldKind.RESULTS:
            return tuple(self._place(r) for r in cast("tuple[Register, ...]", value))
        if field.kind is FieldKind.CASES:
            edges = cast("tuple[Edge, ...]", value)
            return tuple((self._starts.get(e.block, 0), self._moves(e)) for e in edges)
        return cast("FieldValue", value)

    def _place(self, register: Register) -> int:
        place = self._assignment.places[register.number]
        return place | REF_BIT if register.is_ref else place

    def _operand(self, draft: Draft, position: int, register: Register) -> int:
        released = (
            draft.opcode is _DISCARD or (id(draft), position) in self._releases.operands
        )
        return self._place(register) | (MOVE_BIT if released else 0)

    def _moves(self, edge: Edge) -> Moves:
        pairs: list[tuple[int, int]] = []
        for position, (source, target) in enumerate(edge.moves()):
            if target.number not in self._assignment.places:
                continue
            released = (id(edge), position) in self._releases.moves
            taken = MOVE_BIT if released else 0
            pairs.append((self._place(source) | taken, self._place(target)))
            if source.bank in WIDE_BANKS:
                pairs.append((self._place(source) + 1, self._place(target) + 1))
        scratch = self._assignment.words, self._assignment.refs
        ordered, used = order_moves(pairs, *scratch)
        self._scratch |= used
        return tuple(ordered)


_DISCARD: Final = opcode_by_name("discard.refs")
_YIELDING: Final = frozenset({"yield", "call.yieldable", "call.variadic.yieldable"})
