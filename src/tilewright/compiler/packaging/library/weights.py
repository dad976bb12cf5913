"""The weights of a library: bytes inside it, or a file beside it that it maps.

Inside they are assembled from a file (`.incbin`), which no compiler has to read as text.  Beside,
the library knows the size of the file and a checksum of its header, so a wrong file is refused
without reading all of it; any parameter file will do whose data is stored as it is.  Called by
`sources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from tilewright.base.arena import align
from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, view_bytes

INSIDE_LIMIT_BYTES: Final = 1 << 30
"""Code reaches its data by 32-bit distances; more weights than this go into a file."""
_FNV_BASIS: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


@final
@record(kw_only=True)
class WeightsFile:
    """A parameter file that lies beside the library.

    Attributes:
        name: of the file, without folder.
        size_bytes: of the file.
        header: its first bytes, up to where data begins: names and offsets.
        offsets: of each constant of the plan in the file, in order; multiples of 64.
    """

    name: str
    size_bytes: int
    header: bytes
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raises: UserError for a name with a folder, or data that is not aligned."""
        if Path(self.name).name != self.name:
            raise UserError(f"'{self.name}' is no name of a file beside the library")
        odd = [offset for offset in self.offsets if offset % 64]
        if odd:
            raise UserError(
                f"a weight lies at byte {odd[0]}, expected a multiple of 64: a library reads its "
                "weights where they lie",
                location=self.name,
                hint="let the export write a file of its own: .irpa or .safetensors",
            )


def checksum(data: bytes) -> int:
    """FNV-1a, 64 bits.  MIRROR WEIGHTS CHECKSUM."""
    value = _FNV_BASIS
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & (1 << 64) - 1
    return value


def place_inside(constants: Sequence[Buffer]) -> tuple[tuple[int, ...], int]:
    """Where each constant begins in the library's bytes, and how many there are.

    Raises: UserError for more than a library can hold.
    """
    offsets: list[int] = []
    size = 0
    for constant in constants:
        offsets.append(size)
        size += align(view_bytes(constant).nbytes)
    if size > INSIDE_LIMIT_BYTES:
        raise UserError(
            f"the weights have {size} bytes, a library holds up to {INSIDE_LIMIT_BYTES}",
            hint="put them into a file beside it: --weights=FILE",
        )
    return tuple(offsets), size
