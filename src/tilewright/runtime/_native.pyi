from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Self, final

from typing_extensions import Buffer

SOURCES: str

@final
class Memory(Buffer):
    def __new__(cls, size_bytes: int) -> Self: ...
    @property
    def address(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    def check(self) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Heap:
    def __new__(
        cls, capacity_bytes: int | None = None, kept_bytes: int | None = None
    ) -> Self: ...
    @property
    def capacity_bytes(self) -> int | None: ...
    @property
    def address(self) -> int: ...
    def lease(self, size_bytes: int, use: int = 1, /) -> Memory: ...
    def trim(self) -> None: ...
    def close(self) -> None: ...
    def report(self) -> tuple[int, int, int, int, int, int, int, int, int]: ...

def map_file(
    path: str | bytes | PathLike[str], offset: int = 0, length: int | None = None
) -> Memory: ...
def use_backend_pool(pool: Pool, /) -> None: ...
def backend_function(name: str, has_barriers: bool = False, /) -> int: ...
def relax_functions() -> tuple[int, int]: ...
def tensor_capsule(
    owner: object, address: int, shape: tuple[int, ...], code: int, bits: int, lanes: int, /
) -> object: ...
def import_thunk() -> int: ...
def processor_data() -> tuple[int, ...]: ...

@final
class CodeImage:
    def __new__(
        cls,
        size_bytes: int,
        segments: Sequence[tuple[int, Buffer]],
        relocations: Sequence[tuple[int, int, bool]],
        protections: Sequence[tuple[int, int, int]],
    ) -> Self: ...
    @property
    def base(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def address(self, offset: int, /) -> int: ...
    def read(self, address: int, length: int, /) -> bytes: ...
    def holds_code(self, address: int, /) -> bool: ...
    def call_query(self, offset: int, version: int, environment_address: int, /) -> int: ...

@final
class Pool:
    def __new__(
        cls, thread_count: int, cpu_ids: Sequence[int] | None = None, spin_us: int = 100
    ) -> Self: ...
    @property
    def thread_count(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

@final
class CommandList:
    def __new__(
        cls,
        commands: Buffer,
        bindings: Buffer,
        slots: Buffer,
        constants: Buffer,
        host_calls: Sequence[Callable[..., object]] = (),
        owners: Sequence[object] = (),
        names: Sequence[str] = (),
    ) -> Self: ...
    @property
    def command_count(self) -> int: ...
    @property
    def slot_count(self) -> int: ...
    def run(
        self,
        pool: Pool | None,
        buffers: Sequence[Buffer | int | None],
        heap: Heap | None = None,
        /,
    ) -> None: ...
    def run_timed(
        self,
        pool: Pool | None,
        buffers: Sequence[Buffer | int | None],
        heap: Heap | None = None,
        /,
    ) -> list[tuple[int, int, tuple[tuple[int, int, int], ...]]]: ...

@final
class PackedCall:
    def __new__(
        cls,
        function: int,
        tensors: tuple[tuple[int, int, int, tuple[int, ...]], ...],
        owner: object,
        fail: Callable[[], object],
    ) -> Self: ...
    def __call__(self, *buffers: Buffer) -> None: ...
    @staticmethod
    def fail_again() -> int: ...

@final
class FlowProgram:
    def __new__(
        cls,
        tables: tuple[bytes, ...],
        texts: bytes,
        constants: tuple[Buffer, ...],
        owners: tuple[object, ...],
        heap: Heap | None = None,
    ) -> Self: ...
    def run(
        self,
        pool: Pool | None,
        dims: tuple[int, ...],
        inputs: tuple[Any, ...],
        allocate: Callable[[int, tuple[int, ...]], Any],
        /,
    ) -> None: ...

@final
class RecordedCall:
    def __new__(
        cls,
        commands: CommandList,
        pool: Pool | None,
        inputs: Sequence[tuple[str, str, Sequence[int]]],
        outputs: Sequence[Callable[[], Any]],
        constants: Sequence[Buffer | int] = (),
        heap: Heap | None = None,
        counted_bytes: int = 0,
        tensors: type | None = None,
    ) -> Self: ...
    def __call__(self, *arrays: Any) -> Any: ...
