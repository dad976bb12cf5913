"""Reading Relax executables: real ones of two releases of TVM, and damaged ones."""

from __future__ import annotations

import struct

import pytest

from fakes.relax_executables import RELEASES, stored_executables
from tilewright.base.errors import ArchiveError
from tilewright.formats.dlpack_types import DataType
from tilewright.formats.relax_executable import (
    Argument,
    ArgumentKind,
    Call,
    FunctionKind,
    Goto,
    RelaxExecutable,
    Return,
    ShapeConstant,
    TensorConstant,
    read_relax_executable,
)

LOOP = stored_executables("0.27")["loop.bytecode"].data


def _text(data: str) -> bytes:
    return struct.pack("<Q", len(data.encode())) + data.encode()


def _function(
    kind: int, name: str, place: tuple[int, int] = (0, 0), frame: tuple[int, int] = (0, 1)
) -> bytes:
    return struct.pack("<i", kind) + _text(name) + struct.pack("<5q", *place, *frame, 0)


def _words(*words: int) -> bytes:
    return struct.pack(f"<Q{len(words)}q", len(words), *words)


def _executable(
    code: list[list[int]], functions: list[bytes] | None = None, constants: bytes = b""
) -> bytes:
    """One function `main` of two registers with the code, and `f`, which is packed."""
    table = functions or [_function(1, "main", (0, len(code)), (1, 2)), _function(0, "f")]
    offsets = [sum(map(len, code[:index])) for index in range(len(code))]
    return b"".join(
        [
            struct.pack("<Q", 0xD225DE2F4214151D),
            _text("0.14"),
            struct.pack("<Q", len(table)),
            *table,
            constants or bytes(8),
            _words(*offsets),
            _words(*(word for one in code for word in one)),
        ]
    )


def _read(code: list[list[int]], **more: object) -> RelaxExecutable:
    return read_relax_executable(_executable(code, **more), "net.so")  # type: ignore[arg-type]


def test_a_loop_of_tvm_is_two_functions_with_names_constants_and_jumps() -> None:
    executable = read_relax_executable(LOOP)
    step = executable.function("step")
    assert step is not None
    assert step.kind is FunctionKind.BYTECODE
    assert (step.argument_count, step.parameter_names) == (2, ("i", "x"))
    assert Goto(2) in executable.instructions
    assert DataType(2, 32) in executable.constants
    assert ShapeConstant(()) in executable.constants
    tensors = [one for one in executable.constants if isinstance(one, TensorConstant)]
    assert [(str(one.element_type), one.shape, bytes(one.data)) for one in tensors] == [
        ("int32", (), bytes(4))
    ]
    assert executable.function("nothing") is None


@pytest.mark.parametrize("release", RELEASES)
def test_every_executable_that_tvm_wrote_is_read(release: str) -> None:
    for stored in stored_executables(release).values():
        assert read_relax_executable(stored.data).functions


def test_a_file_of_the_first_layout_has_no_memory_scopes() -> None:
    executable = _read([[2, 0]])
    assert executable.memory_scopes == {}
    assert executable.instructions == (Return(0),)


def test_arguments_keep_their_signs() -> None:
    low = (1 << 56) | ((-5) & ((1 << 56) - 1))
    executable = _read([[1, 1, 1, 2, 0, low], [2, 1]])
    assert executable.instructions[0] == Call(
        1, 1, (Argument(ArgumentKind.REGISTER, 0), Argument(ArgumentKind.IMMEDIATE, -5))
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ([[2, 2]], "instruction 0: register 2, the function has 2"),
        ([[2, -1]], "register -1, the function has 2"),
        (
            [[3, 2], [2, 0]],
            "instruction 0: goes on at instruction 2, outside of its function",
        ),
        ([[3, -1], [2, 0]], "goes on at instruction -1"),
        ([[4, 0, 1], [2, 0]], "a branch by 1 instructions"),
        ([[4, 0, 2], [2, 0]], "goes on at instruction 2"),
        ([[1, 1, 1, 0]], "goes on at instruction 1"),
        ([[1, 1, 2, 0], [2, 0]], "calls function 2, there are 2"),
        ([[1, 2, 1, 0], [2, 0]], "register 2, the function has 2"),
        ([[1, 1, 1, 1, 2], [2, 0]], "register 2, the function has 2"),
        ([[1, 1, 1, 1, 2 << 56], [2, 0]], "constant 0, there are 0"),
        ([[1, 1, 1, 1, (3 << 56) | 2], [2, 0]], "function 2, there are 2"),
        ([[1, 1, 1, 1, 4 << 56], [2, 0]], "an argument of the unknown kind 4"),
        ([[1, 1, 0, 0], [2, 0]], "calls 'main' with 0 arguments, expected 1"),
        ([[1, 1, 1, -1], [2, 0]], "a call with -1 arguments"),
        ([[1, 1, 1, 1 << 40], [2, 0]], "a call with 1099511627776 arguments"),
        ([[5, 0]], "instruction 0: unknown opcode 5"),
        ([[2]], "ends behind the code"),
        ([[3, 0], [2, 0]], "instruction 0: no way leads from here to a return"),
        (
            [[4, 0, 3], [1, 1, 1, 0], [3, -1], [2, 0]],
            "instruction 1: no way leads from here to a return",
        ),
    ],
)
def test_code_that_leaves_its_bounds_is_refused(code: list[list[int]], text: str) -> None:
    with pytest.raises(ArchiveError, match=r"net\.so: ") as caught:
        _read(code)
    assert text in str(caught.value)


def test_a_circle_is_named_by_its_function_and_its_place_in_the_file() -> None:
    code = [[2, 0], [1, 1, 1, 0], [3, -1], [2, 0]]
    places = {"main": (0, 1), "f": (1, 3)}
    functions = [_function(1, name, place, (0, 2)) for name, place in places.items()]
    with pytest.raises(ArchiveError, match=r"^net\.so: function 'f': instruction 1: no"):
        _read(code, functions=functions)


def test_a_loop_that_a_branch_leads_out_of_is_read() -> None:
    code = [[4, 0, 3], [1, 1, 1, 0], [3, -2], [2, 0]]
    assert len(_read(code).instructions) == 4


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (_function(1, "main", (0, 2)), "instructions 0 to 2, there are 1"),
        (_function(1, "main", (1, 1)), "instructions 1 to 1"),
        (_function(1, "main", (-1, 1)), "instructions -1 to 1"),
        (_function(1, "main", (0, 1), (2, 1)), "2 arguments in 1 registers"),
        (_function(1, "main", (0, 1), (0, 1 << 60)), "1152921504606846976 registers"),
        (_function(2, "main", (0, 0), (1, 1)), "no register for its result"),
        (_function(3, "main"), "is of the unknown kind 3"),
        (_function(0, "g"), "two functions are called 'g'"),
    ],
)
def test_functions_that_cannot_be_are_refused(row: bytes, text: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        _read([[2, 0]], functions=[row, _function(0, "g")])
    assert text in str(caught.value)


def test_functions_that_share_their_code_are_refused() -> None:
    """A small file could have each of thousands of functions go over all of it."""
    rows = [_function(1, name, (0, 2)) for name in ("main", "again")]
    with pytest.raises(ArchiveError, match="'again' shares instructions with others"):
        _read([[3, 1], [2, 0]], functions=rows)


def test_functions_of_many_arguments_are_few() -> None:
    count = 1 << 16
    rows = [
        _function(1, f"f{i}", (i, i + 1), (count, count)) for i in range((1 << 20) // count)
    ]
    code = [[2, 0]] * (len(rows) + 1)
    assert len(_read(code, functions=rows).functions) == len(rows)
    rows.append(_function(1, "main", (len(rows), len(rows) + 1), (1, 1)))
    with pytest.raises(ArchiveError, match="more than 1048576 arguments together"):
        _read(code, functions=rows)


def test_other_files_and_other_versions_are_refused() -> None:
    with pytest.raises(ArchiveError, match="no Relax executable: it begins with"):
        read_relax_executable(bytes(64))
    with pytest.raises(ArchiveError, match=r"version '0\.13' .*, expected '0\.14'"):
        read_relax_executable(LOOP.replace(b"0.14", b"0.13", 1))
    with pytest.raises(ArchiveError, match="3 bytes behind the end"):
        read_relax_executable(LOOP + b"abc")


def test_a_file_that_ends_anywhere_is_refused() -> None:
    for length in range(0, len(LOOP), 7):
        with pytest.raises(ArchiveError):
            read_relax_executable(LOOP[:length])


def test_a_constant_of_an_unknown_kind_is_refused() -> None:
    constants = struct.pack("<Qiq", 1, 99, 0)
    with pytest.raises(ArchiveError, match="constant 0 is of the unknown kind 99"):
        _read([[2, 0]], constants=constants)


def test_constants_that_are_numbers_texts_and_types() -> None:
    constants = b"".join(
        [
            struct.pack("<Q", 4),
            struct.pack("<iq", 1, -7),
            struct.pack("<id", 3, 0.5),
            struct.pack("<iBBH", 5, 4, 16, 1),
            struct.pack("<i", 65) + _text("ä"),
        ]
    )
    found = _read([[2, 0]], constants=constants).constants
    assert found == (-7, 0.5, DataType(4, 16), "ä")
    assert str(found[2]) == "bfloat16"
