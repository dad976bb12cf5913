"""Mutated files of every format that we read: refused with an error of ours, or read; nothing else.

What it is: a harness.  Real files are changed (bits, bytes, numbers that hurt, pieces cut out, moved
or doubled) and read to the last field.  Input `i` of seed `s` is always the same, so a finding is
reproduced by `--first i --count 1`.
What it is not: a test (`test_formats.py` runs a few thousand inputs of it), nor about bytecode that
runs (`bytecode_mutations.py`).
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/format_mutations.py elf --count 1000000 > build/fuzz-elf.txt
"""

from __future__ import annotations

import argparse
import base64
import functools
import gzip
import importlib.util
import io
import json
import lzma
import random
import struct
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fakes import graphs_of_tvm as graphs
from fakes import language_models, parameter_files
from fakes.kernel_image import kernel_image
from fakes.plans import calling_plan, dynamic_plan, static_plan
from fakes.relax_executables import stored_executables
from fuzz.harness import FindingError, Outcome, add_options, report, run_range
from tilewright.api.language.cache import Cache
from tilewright.api.language.cache import _checksum as prompt_checksum
from tilewright.api.language.tokenizer import Tokenizer
from tilewright.base import dtypes
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.compiler.frontends.gguf.hyperparameters import read_hyperparameters
from tilewright.compiler.frontends.stablehlo.artifact import read_artifact
from tilewright.formats.cuda_executable import is_cuda_executable, read_cuda_executable
from tilewright.formats.elf import join_images, parse_image, select_image
from tilewright.formats.elf.objects import parse_object
from tilewright.formats.elf.shared_library import read_shared_library
from tilewright.formats.gguf import read_gguf
from tilewright.formats.graph_json import read_graph, write_graph
from tilewright.formats.library_blob import (
    LibraryBlob,
    SavedModule,
    read_blob,
    read_legacy_blob,
    write_blob,
)
from tilewright.formats.parameters import (
    SplatEntry,
    StoredEntry,
    read_arrays,
    read_parameters,
    write_safetensors,
)
from tilewright.formats.plan import from_json, to_json
from tilewright.formats.relax_executable import format_executable, read_relax_executable
from tilewright.formats.signature import split_signatures
from tilewright.formats.tar import read_tar
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.library.c_module import CSourceModule, load_c_module
from tilewright.runtime.loaders.trusted_keys import TrustedKeys
from tilewright.runtime.relax_machine.native_program import encode

ARCHIVES = Path(__file__).resolve().parents[1] / "golden" / "archives"
LIBRARIES = ARCHIVES.parent / "libraries"
_ARCHIVE_LIMIT_BYTES = 8_000  # bigger ones hold more of the same and take longer
NASTY = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 40,
    (1 << 64) - 1,
)


@dataclass(frozen=True)
class Format:
    """Files to begin with, and how one is read whole."""

    seeds: Callable[[], tuple[bytes, ...]]
    read: Callable[[bytes], object]


# --- the formats --------------------------------------------------------------------------------


def _c_modules() -> tuple[bytes, ...]:
    source = "int __tvm_ffi_f(void) { return 0; }"
    return (CSourceModule(source, ["f"], ["-O2"]).save_to_bytes(),)


def _archives() -> tuple[bytes, ...]:
    packed = sorted(ARCHIVES.glob("*.vmfb.xz"))
    plain = sorted(ARCHIVES.glob("*.vmfb"))
    files = [lzma.decompress(p.read_bytes()) for p in packed] + [
        p.read_bytes() for p in plain
    ]
    return tuple(data for data in files if len(data) < _ARCHIVE_LIMIT_BYTES)


def _read_archive(data: bytes) -> None:
    module = read_archive(data)
    for segment in module.rodata:
        bytes(segment.data)


def _images() -> tuple[bytes, ...]:
    return (kernel_image(), *(path.read_bytes() for path in sorted(ARCHIVES.glob("*.so"))))


def _read_image(data: bytes) -> None:
    image = parse_image(data)
    for segment in image.segments:
        assert len(image.contents(segment)) == segment.file_bytes
    assert all(0 <= patch.value < 1 << 64 for patch in image.patches(1 << 20))


def _fat_images() -> tuple[bytes, ...]:
    by_machine = {parse_image(image).machine: image for image in _images()}
    return (join_images(list(by_machine.values())),)


def _read_fat_image(data: bytes) -> None:
    for machine in ("x86_64", "aarch64"):
        _read_image(bytes(select_image(data, machine)))


def _cuda_executables() -> tuple[bytes, ...]:
    found: list[bytes] = []
    for path in sorted(ARCHIVES.glob("*cuda*.vmfb")):
        for segment in read_archive(path.read_bytes()).rodata:
            data = bytes(segment.data)
            if len(data) > 8 and is_cuda_executable(data):
                found.append(data)
    return tuple(found)


def _objects() -> tuple[bytes, ...]:
    from fakes.llvm_objects import compile_ir
    from unit.compiler.linker.test_link import CALLEE, CALLER

    return tuple(compile_ir(text) for text in (CALLEE, CALLER))


def _parameters() -> tuple[bytes, ...]:
    array = np.arange(33, dtype=np.float32)
    splat = SplatEntry("s", 64, bytes(range(16)))
    note = parameter_files.gguf_text("general.alignment") + struct.pack("<II", 4, 32)
    return (
        parameter_files.irpa({"a": array, "b": b"xyz", "": b""}, [splat]),
        parameter_files.safetensors({"a": array, "b": array[:5]}, {"a": "F32", "b": "F32"}),
        parameter_files.gguf(
            [("a", (3, 11), 0, array.tobytes()), ("q", (64,), 8, bytes(68))],
            metadata=[note],
        ),
        parameter_files.tvm_params({"a": array, "b": array[:5], "e": array[:0]}),
    )


def _read_parameters(data: bytes) -> None:
    index = read_parameters(data)
    for entry in index.entries.values():
        if isinstance(entry, StoredEntry):
            assert len(index.bytes_of(entry)) == entry.length


def _read_graph(data: bytes) -> None:
    graph = read_graph(data)
    assert read_graph(write_graph(graph)) == graph


def _blobs() -> tuple[bytes, ...]:
    trees = json.loads((LIBRARIES / "tvm_0_27_blobs.json").read_text())
    made = LibraryBlob(
        (SavedModule("a", b"1"), SavedModule("_lib"), SavedModule("b", b"xyz")),
        ((1, 2), (2,), ()),
    )
    return (
        write_blob(made),
        *(base64.b64decode(trees[name]["blob"]) for name in ("plain", "llvm>(exec,exec)")),
    )


def _read_blob(data: bytes) -> None:
    blob = read_blob(data)
    assert len(blob.modules) == len(blob.imports)
    for module in blob.modules:
        bytes(module.data or b"")
    if all(module.data is None or len(module.data) for module in blob.modules):
        assert data.startswith(write_blob(blob))


def _legacy_blobs() -> tuple[bytes, ...]:
    def text(*parts: bytes) -> bytes:
        return b"".join(struct.pack("<Q", len(part)) + part for part in parts)

    tree = struct.pack("<4Q", 3, 0, 1, 1) + struct.pack("<2Q", 1, 1)
    trees = (
        (3, text(b"factory", b"{}", b"_lib", b"_import_tree") + tree),
        (2, text(b"factory", b"abc", b"factory", b"")),
    )
    whole = (struct.pack("<Q", count) + entries for count, entries in trees)
    return tuple(struct.pack("<Q", len(body)) + body for body in whole)


def _read_legacy_blob(data: bytes) -> None:
    read_legacy_blob(data, {"factory": lambda cursor: (cursor.raw_text("text"), None)[1]})


def _relax_executables() -> tuple[bytes, ...]:
    return tuple(one.data for one in stored_executables("0.27").values())


def _read_relax_executable(data: bytes) -> None:
    executable = read_relax_executable(data)
    format_executable(executable)
    list(encode(executable))


def _tars() -> tuple[bytes, ...]:
    made: list[bytes] = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form) as archive:
            for name in ("lib0.o", "sub/devc.o", f"{'d' * 70}/{'n' * 70}.c"):
                entry = tarfile.TarInfo(name)
                entry.size = len(name)
                archive.addfile(entry, io.BytesIO(name.encode()))
        made.append(file.getvalue())
    return (*made, gzip.compress(made[0], mtime=0))


def _read_tar(data: bytes) -> None:
    for member in read_tar(data, limit_bytes=1 << 20):
        place = (Path("/folder") / member.name).resolve()
        assert place.is_relative_to("/folder")
        assert place != Path("/folder")
        bytes(member.data)


def _with_checksums(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Most changes of a tar end at a checksum: of two files, one is read with its checksums mended."""

    def mended(data: bytes) -> object:
        if sum(data[:16]) & 1 or data[:2] == b"\x1f\x8b":
            return read(data)
        changed = bytearray(data)
        for at in range(0, len(changed) - 511, 512):
            head = changed[at : at + 512]
            if bytes(head[257:262]) == b"ustar":
                total = sum(head) - sum(head[148:156]) + 8 * 32
                changed[at + 148 : at + 156] = b"%06o\0 " % total
        return read(bytes(changed))

    return mended


def _libraries() -> tuple[bytes, ...]:
    return (lzma.decompress((LIBRARIES / "tvm_0_27_mlp.so.xz").read_bytes()),)


def _read_library(data: bytes) -> None:
    file = read_shared_library(data)
    for name in file.symbols:
        bytes(file.data_at(name, "symbol"))


_SIGNED_CONTENT = bytes(range(256)) * 8
# Keys whose private halves are 32 bytes of 1 and of 2, and what they signed that content with.
_SIGNED_BY_ONE = base64.b64decode(
    "VElMRVNJR04BAAEAAABAAAAIAAAAAAAAaumcKQX2hdVXp6+dIEzoMK6gyVEphI69rnlPlfJ5Y1CKiOPddAnxlf1S2y08ul1yymcJvx2UEhvzdIgBtA9vXIlTD8G9sN3gqmfKtqMmlu8wG4TKL1cXO+5sY/jWkenfAMBeMEqXrJKOzSt3Gwj/w9pl1ocNmzoCtQejJNwoogw="
)
_SIGNED_BY_TWO = base64.b64decode(
    "VElMRVNJR04BAAEAAABAAAAIAAAAAAAAaumcKQX2hdVXp6+dIEzoMK6gyVEphI69rnlPlfJ5Y1CBOXcOqH0XX1ajVGbDTH7My42KkbTuN6Jd9g9bj8mzlK43i5cf9aWs+syoD3kW349EhI9BBgl7KFAXgnWBrBkxN/rdlEnXGk8WqKe75QOyik+QLXtPFJ9/EzvmPBDfVgQ="
)


def _signed_files() -> tuple[bytes, ...]:
    one, two = _SIGNED_BY_ONE, _SIGNED_BY_TWO
    return _SIGNED_CONTENT + one, _SIGNED_CONTENT + two + one


def _read_signed(data: bytes) -> None:
    """Whatever was changed, no key may be found to have signed anything else than it did."""
    split_signatures(data)
    if importlib.util.find_spec("cryptography") is None:  # of an extra
        return
    TrustedKeys([_SIGNED_BY_ONE[56:88]]).check(data, None, "file")
    content, _ = split_signatures(data)
    if bytes(content) != _SIGNED_CONTENT:
        raise InternalError("a file that was changed has a valid signature")


def _language_models() -> tuple[bytes, ...]:
    plain = language_models.speaking_form(kinds={"weight": "Q4_1"})
    return (plain.data(), language_models.speaking_form(experts=4, inner=64).data())


def _read_language_model(data: bytes) -> None:
    """All that its metadata says: sizes, tokens, merges; not a graph, which takes as long as its layers are many."""
    file = read_gguf(data, "model.gguf")
    read_hyperparameters(file)
    tokenizer = Tokenizer.of(file)
    tokenizer.decode(tokenizer.encode("the and é<|end|>"))


def _portable_artifacts() -> tuple[bytes, ...]:
    folder = ARCHIVES.parent / "stablehlo"
    return tuple(path.read_bytes() for path in sorted(folder.glob("*.mlirbc")))


@functools.cache
def _prompt_cache() -> Cache:
    shape = (1, 2, 16, 4)
    specs = [TensorSpec(f"{kind}_0", dtypes.f32, shape) for kind in ("key", "value")]
    return Cache([*specs, TensorSpec("state", dtypes.f32, (3, 5))], 16, b"digest")


def _prompts() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompt.safetensors"
        cache = _prompt_cache()
        cache.advance([5, 6, 7], 4)
        cache.save(path)
        return (path.read_bytes(),)


def _read_prompt(data: bytes) -> None:
    """As it is, and then, where it can be read, with its checksum mended."""
    cache = _prompt_cache()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompt.safetensors"
        path.write_bytes(data)
        try:
            cache.load(path)
        except TilewrightError:
            arrays = dict(read_arrays(data, "prompt"))
            arrays.pop("checksum", None)
            with path.open("wb") as file:
                write_safetensors(file, {**arrays, "checksum": prompt_checksum(arrays)})
            cache.load(path)
    assert len(cache.tokens) <= cache.room
    cache.keep([5, 6, 9])


FORMATS: Mapping[str, Format] = {
    "languagemodel": Format(_language_models, _read_language_model),
    "mlirbc": Format(_portable_artifacts, lambda data: read_artifact(data, "model.mlirbc")),
    "prompt": Format(_prompts, _read_prompt),
    "signature": Format(_signed_files, _read_signed),
    "library": Format(_libraries, _read_library),
    "tar": Format(_tars, _with_checksums(_read_tar)),
    "blob": Format(_blobs, _read_blob),
    "legacyblob": Format(_legacy_blobs, _read_legacy_blob),
    "graph": Format(graphs.files, _read_graph),
    "vmfb": Format(_archives, _read_archive),
    "elf": Format(_images, _read_image),
    "fatelf": Format(_fat_images, _read_fat_image),
    "object": Format(_objects, parse_object),
    "cmodule": Format(_c_modules, load_c_module),
    "cuda": Format(_cuda_executables, read_cuda_executable),
    "parameters": Format(_parameters, _read_parameters),
    "plan": Format(
        lambda: tuple(map(to_json, (static_plan(), dynamic_plan(), calling_plan()))),
        from_json,
    ),
    "relax": Format(_relax_executables, _read_relax_executable),
}


@functools.cache
def seeds(name: str) -> tuple[bytes, ...]:
    """The files that mutations of a format begin with."""
    found = FORMATS[name].seeds()
    assert found
    return found


# --- mutations ----------------------------------------------------------------------------------


def mutated(name: str, chooser: random.Random) -> bytes:
    """A changed file; headers and tables, which lie in front, are changed more often."""
    data = bytearray(chooser.choice(seeds(name)))
    reach = len(data) if chooser.random() < 0.5 else min(len(data), 512)
    for _ in range(chooser.choice((1, 1, 1, 2, 3, 8))):
        chooser.choice((_flip, _byte, _number, _number, _copy, _cut))(data, chooser, reach)
    if chooser.random() < 0.05:
        del data[chooser.randrange(len(data) + 1) :]
    return bytes(data)


def _flip(data: bytearray, chooser: random.Random, reach: int) -> None:
    data[chooser.randrange(min(reach, len(data)))] ^= 1 << chooser.randrange(8)


def _byte(data: bytearray, chooser: random.Random, reach: int) -> None:
    data[chooser.randrange(min(reach, len(data)))] = chooser.randrange(256)


def _number(data: bytearray, chooser: random.Random, reach: int) -> None:
    """A number that hurts, or one that could be an offset or a count, where one could stand."""
    width = chooser.choice((1, 2, 4, 8))
    place = chooser.randrange(min(reach, len(data))) & -width
    near = chooser.choice((chooser.randrange(64), chooser.randrange(len(data) + 64)))
    value = chooser.choice((chooser.choice(NASTY), near)) & ((1 << 8 * width) - 1)
    data[place : place + width] = value.to_bytes(width, "little")


def _copy(data: bytearray, chooser: random.Random, reach: int) -> None:
    length = chooser.randrange(1, 65)
    source, target = (chooser.randrange(min(reach, len(data))) for _ in range(2))
    data[target : target + length] = data[source : source + length]


def _cut(data: bytearray, chooser: random.Random, reach: int) -> None:
    place = chooser.randrange(min(reach, len(data)))
    del data[place : place + chooser.randrange(1, 17)]
    data.extend(bytes(max(0, 64 - len(data))))


# --- running ------------------------------------------------------------------------------------


def run_one(name: str, seed: str, number: int) -> str:
    """What became of an input.  Raises: FindingError."""
    data = mutated(name, random.Random(f"{name}:{seed}:{number}"))
    try:
        FORMATS[name].read(data)
    except InternalError as error:
        raise FindingError(number, f"internal error: {error}") from error
    except TilewrightError:
        return "refused"
    except Exception as error:
        raise FindingError(number, f"{type(error).__name__}: {error}") from error
    return "read"


def run(name: str, seed: str, first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs of a format."""
    return run_range(functools.partial(run_one, name, seed), first, count)


def main() -> int:
    """Run a range of inputs, print findings and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("format", choices=FORMATS)
    add_options(parser, "formats")
    options = parser.parse_args()
    return report(run(options.format, options.seed, options.first, options.count))


if __name__ == "__main__":
    sys.exit(main())
