"""Runs a program on numpy, in one poisoned arena: finds tensors that share bytes too early."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.arena import Block, pack
from tilewright.base.symbolic import Dim, evaluate
from tilewright.compiler.kernel.evaluator import evaluate as evaluate_kernel
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.ops import catalogue
from tilewright.compiler.program.ir import (
    Copy,
    Dispatch,
    Entry,
    HostCall,
    Program,
    Step,
    Storage,
    operands_of,
    results_of,
)

POISON = 0xC5


class ProgramRunner:
    """One run.  Every storage that is not alive is poisoned again after each step."""

    def __init__(
        self, program: Program, kernels: Sequence[Kernel], dims: Mapping[str, int]
    ) -> None:
        self.program = program
        self.kernels = kernels
        self.dims = dims
        self.bytes: dict[Storage, np.ndarray] = {}
        transients = [s for s in program.storages if s.kind == "transient"]
        if program.arena_bytes >= 0:
            offsets, size = [s.offset_bytes for s in transients], program.arena_bytes
        else:
            blocks = [Block(self.number(s.size_bytes), s.first, s.last) for s in transients]
            packing = pack(blocks)
            offsets, size = list(packing.offsets), packing.size_bytes
        arena = np.full(size, POISON, np.uint8)
        for storage, offset in zip(transients, offsets, strict=True):
            end = offset + self.number(storage.size_bytes)
            assert 0 <= offset <= end <= size
            self.bytes[storage] = arena[offset:end]
        for storage in program.storages:
            if storage.kind != "transient":
                self.bytes[storage] = np.full(
                    self.number(storage.size_bytes), POISON, np.uint8
                )
            if storage.array is not None:
                self.bytes[storage] = np.frombuffer(storage.array.tobytes(), np.uint8)

    def number(self, dim: Dim) -> int:
        return evaluate(dim, self.dims)

    def view(self, entry: Entry) -> np.ndarray:
        shape = [self.number(d) for d in entry.type.shape]
        start = self.number(entry.offset_bytes)
        size = math.prod(shape) * entry.type.dtype.numpy.itemsize
        data = self.bytes[entry.storage][start : start + size]
        assert len(data) == size, f"{entry} leaves its storage"
        return data.view(entry.type.dtype.numpy).reshape(shape)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for (_, entry), array in zip(self.program.inputs, inputs, strict=True):
            self.view(entry)[...] = array
        for index, step in enumerate(self.program.steps):
            self.step(step)
            self.poison_the_dead(index)
        return [self.view(entry).copy() for _, entry in self.program.outputs]

    def step(self, step: Step) -> None:
        operands = [self.view(e).copy() for e in operands_of(step)]
        results = [self.view(e) for e in results_of(step)]
        match step:
            case Copy():
                results[0][...] = operands[0]
            case HostCall():
                given: list[np.ndarray | None] = [None] * len(step.operands)
                places = [i for i, e in enumerate(step.operands) if e is not None]
                for place, operand in zip(places, operands, strict=True):
                    given[place] = operand
                row = catalogue.lookup(step.op)
                for target, value in zip(
                    results, row.schema.evaluate(given, step.attributes), strict=True
                ):
                    target[...] = value
            case Dispatch():
                self.dispatch(step, operands, results)

    def dispatch(
        self, step: Dispatch, operands: list[np.ndarray], results: list[np.ndarray]
    ) -> None:
        kernel = self.kernels[step.kernel]
        fresh = [
            np.full_like(r, np.nan) if r.dtype.kind == "f" else r.copy() for r in results
        ]
        numbers = [self.number(d) for d in step.dims]
        dims = {s.name: n for s, n in zip(kernel.dims, numbers, strict=True)}
        evaluate_kernel(kernel, [*operands, *fresh], dims)
        for target, value in zip(results, fresh, strict=True):
            target[...] = value

    def poison_the_dead(self, index: int) -> None:
        alive = [
            self.bytes[s]
            for s in self.program.storages
            if s.kind == "transient" and s.first <= index < s.last
        ]
        for storage in self.program.storages:
            if storage.kind == "transient" and storage.last == index:
                mine = self.bytes[storage]
                for other in alive:
                    assert not np.shares_memory(mine, other), (
                        f"{storage} overlaps a live tensor"
                    )
                mine[...] = POISON
