"""A call that can be suspended, resumed, awaited and stepped through.

Keeps the frames of bytecode functions itself instead of on Python's stack: `yield` suspends, and a
resumable call of an import that would have to wait suspends with what it waits for.  Runs on the
interpreter's steps, whatever the mode of the module.  Called by `bytecode_module` for its users.

Source: IREE `vm/invocation.h` (begin, resume, end).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator, Sequence
from typing import Any, Final, Protocol, cast, final

from tilewright.base.budget import CURRENT, Account, acting_for
from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.bytecode.isa import (
    IMPORT_BIT,
    REF_BIT,
    REF_MASK,
    WORD_MASK,
)
from tilewright.formats.bytecode.text import Names, format_instruction
from tilewright.formats.vmfb import ModuleDef
from tilewright.formats.vmfb.text import module_names
from tilewright.runtime.vm.frame import Function, State
from tilewright.runtime.vm.handlers.calls import variadic_arguments
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    gather_registers,
    scatter_registers,
)
from tilewright.runtime.vm.stack import DEPTH_LIMIT, source_location, traced

_CALLS: Final = frozenset({"call", "call.yieldable"})
_RESUMABLE: Final = frozenset({"call.yieldable", "call.variadic.yieldable"})


class Waitable(Protocol):
    """What a suspended call waits for: a fence, to this module no more than these two."""

    def wait(self) -> None:
        """Block until it is reached."""
        ...

    def __await__(self) -> Generator[Any, None, None]: ...


class Library(Protocol):
    """What an invocation asks of the module."""

    @property
    def definition(self) -> ModuleDef: ...

    def bound(self, index: int) -> Function: ...

    def context(self, index: int) -> CodeContext: ...


def _account_of(state: State) -> Account | None:
    """That of the call around it where there is one: a call inside of a call is part of it."""
    if state.budget is None:
        return None
    outer = CURRENT.account
    return outer if outer and outer.budget is state.budget else Account(state.budget)


@final
class Frame:
    """One function while it runs; registers may be looked at, and changed by who debugs.

    Attributes:
        words: the word registers; an i64 or f64 lies in the first of its pair.
        refs: the reference registers.
    """

    __slots__ = ("_names", "block", "function", "module", "position", "refs", "words")

    def __init__(
        self, module: ModuleDef, function: Function, arguments: Sequence[Any]
    ) -> None:
        self.module: ModuleDef = module
        self.function: Function = function
        self.words, self.refs = function.registers(arguments)
        self.block: int = 0
        self.position: int = 0
        self._names: Names | None = None

    @property
    def instruction(self) -> Instruction:
        """What runs next."""
        return self.function.blocks[self.block].code[self.position]

    @property
    def pc(self) -> int:
        """Where it stands."""
        return self.instruction.pc

    @property
    def name(self) -> str:
        """`module.function`."""
        return f"{self.module.name}.{self.function.name}"

    @property
    def source(self) -> str:
        """`model.mlir:3:5`; empty where the module does not say."""
        return source_location(self.module, self.function.index, self.pc)

    @property
    def text(self) -> str:
        """What runs next, disassembled."""
        if self._names is None:
            self._names = module_names(self.module)
        blocks = self.function.blocks
        labels = {block.pc: f"^bb{index}" for index, block in enumerate(blocks)}
        return format_instruction(self.instruction, self._names, labels)

    def __repr__(self) -> str:
        place = f" ({self.source})" if self.source else ""
        return f"<{self.name} +{self.pc:#x}{place}: {self.text}>"


@final
class Invocation:
    """A call under way.  It begins before its first instruction; `resume` or `step` it.

    Attributes:
        frames: the functions that run, outermost first; empty when it is done.
        waits_for: what a suspended call waits for; None when it may go on at once.
    Thread-safety: one thread at a time, not always the same.
    """

    def __init__(
        self, library: Library, state: State, index: int, arguments: Sequence[Any]
    ) -> None:
        self._library: Library = library
        self._state: State = state
        self._results: tuple[object, ...] | None = None
        self._ready: bool = False
        self.waits_for: Waitable | None = None
        self.frames: list[Frame] = []
        self._account: Account | None = _account_of(state)
        self._push(index, arguments)

    @property
    def is_done(self) -> bool:
        """Whether there are results."""
        return self._results is not None

    @property
    def results(self) -> tuple[object, ...]:
        """What the function returned.  Raises: DeviceError while it still runs."""
        if self._results is None:
            raise failure(StatusCode.FAILED_PRECONDITION, "the call is not done")
        return self._results

    def resume(self) -> bool:
        """Run until the call suspends or is done; whether it is done.

        Blocks first if what it waits for is not reached.  Raises: what the call fails with.
        """
        if self.waits_for is not None:
            with acting_for(self._account or CURRENT.account):
                self.waits_for.wait()
        while not self.is_done:
            if self.step():
                break
        return self.is_done

    def run(self) -> tuple[object, ...]:
        """Resume until it is done."""
        while not self.resume():
            pass
        return self.results

    def __await__(self) -> Generator[Any, None, tuple[object, ...]]:
        """Run on the event loop, which does other work while the call is suspended."""
        while not self.resume():
            if self.waits_for is None:
                yield from asyncio.sleep(0).__await__()
            else:
                yield from self._reached(self.waits_for).__await__()
        return self.results

    async def _reached(self, waits_for: Waitable) -> None:
        """Wait without blocking the loop.  Raises: LimitError when the call's time is over."""
        account = self._account
        if account is None or math.isinf(account.remaining_s):
            await waits_for
            return
        try:
            async with asyncio.timeout(account.remaining_s):
                await waits_for
        except TimeoutError:
            account.late()

    def step(self) -> bool:
        """Run one instruction of the innermost function; whether the call suspended there.

        Raises: what the instruction fails with, with the place of every function that runs.
        """
        if not self.frames:
            raise failure(StatusCode.FAILED_PRECONDITION, "the call is done")
        frame = self.frames[-1]
        try:
            if self._account is None:
                return self._step(frame)
            with acting_for(self._account):
                if not self._ready:
                    self._account.spend(1)
                return self._step(frame)
        except Exception as error:
            self.waits_for = None
            raise self._unwound(error)  # noqa: B904 - often the same one

    # --- one instruction ----------------------------------------------------------------------------

    def _step(self, frame: Frame) -> bool:
        instruction = frame.instruction
        name = instruction.opcode.name
        callee = cast("int", instruction.value("callee")) if "call" in name else IMPORT_BIT
        if name in _CALLS and not callee & IMPORT_BIT:
            operands = cast("tuple[int, ...]", instruction.value("operands"))
            self._push(callee, gather_registers(operands)(frame.words, frame.refs))
            return False
        if name in _RESUMABLE and not self._ready and self._suspends(frame, callee):
            return True
        self._ready = False
        self.waits_for = None
        self._execute(frame)
        return name == "yield"

    def _suspends(self, frame: Frame, callee: int) -> bool:
        """Whether an import would have to wait; then the call is made when it need not."""
        waits = self._state.waits[callee & ~IMPORT_BIT]
        if waits is None:
            return False
        instruction = frame.instruction
        operands = [
            (frame.refs if r & REF_BIT else frame.words)[
                r & (REF_MASK if r & REF_BIT else WORD_MASK)
            ]
            for r in cast("tuple[int, ...]", instruction.value("operands"))
        ]
        context = self._library.context(frame.function.index)
        arguments = variadic_arguments(instruction, context, operands)
        self.waits_for = cast("Waitable | None", waits(*arguments))
        self._ready = self.waits_for is not None
        return self._ready

    def _execute(self, frame: Frame) -> None:
        block = frame.function.blocks[frame.block]
        if frame.position < len(block.steps):
            block.steps[frame.position](frame.words, frame.refs, self._state)
            frame.position += 1
            return
        following = block.leave(frame.words, frame.refs, self._state)
        if isinstance(following, int):
            frame.block, frame.position = following, 0
            return
        self.frames.pop()
        if self.frames:
            self._return(self.frames[-1], following)
        else:
            self._results = following

    def _push(self, index: int, arguments: Sequence[Any]) -> None:
        if len(self.frames) >= DEPTH_LIMIT:
            raise failure(
                StatusCode.RESOURCE_EXHAUSTED, f"calls are nested deeper than {DEPTH_LIMIT}"
            )
        function = self._library.bound(index)
        self.frames.append(Frame(self._library.definition, function, arguments))

    def _return(self, frame: Frame, results: tuple[object, ...]) -> None:
        """Put results where the calling instruction wants them, and go on behind it."""
        instruction = frame.instruction
        registers = cast("tuple[int, ...]", instruction.value("results"))
        scatter_registers(registers)(frame.words, frame.refs, results)
        if instruction.opcode.terminator:
            context = self._library.context(frame.function.index)
            target = cast("int", instruction.value("target"))
            frame.block, frame.position = context.block_index[target], 0
        else:
            frame.position += 1

    def _unwound(self, error: BaseException) -> BaseException:
        while self.frames:
            frame = self.frames.pop()
            error = traced(error, frame.module, frame.function, frame.pc)
        return error
