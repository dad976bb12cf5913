"""Objects of C are taken from the cache only where a compiler would make the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tilewright.base.c_compiler.toolchain import Toolchain, find_toolchain
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import UserError

SOURCE = '#include "number.h"\nint answer(void) { return NUMBER; }\n'


class Bench:
    """A compiler that writes down what it makes objects of, and a cache."""

    def __init__(self, root: Path) -> None:
        self.cache = CompilationCache(folder=root / "cache", limit_bytes=1 << 20)
        self.root = root
        self.log = root / "log"
        self.driver = root / "driver"
        found = find_toolchain()
        self.real = shutil.which(found.command[0])
        if found.is_zig or self.real is None:
            pytest.skip("no compiler of the system")
        self.write_driver()
        self.toolchain = Toolchain(
            command=(str(self.driver),), arch=found.arch, os=found.os
        )
        self.count = 0

    def write_driver(self, flag: str = "") -> None:
        lines = [
            "#!/bin/sh",
            f'case " $* " in *" -c "*) echo compiled >> "{self.log}";; esac',
            f'exec "{self.real}" {flag} "$@"',
        ]
        self.driver.unlink(missing_ok=True)
        self.driver.write_text("\n".join(lines) + "\n")
        self.driver.chmod(0o755)

    def compile(
        self, source: str = SOURCE, number: str = "42", options: tuple[str, ...] = ()
    ) -> bytes:
        """The object, made in a folder of its own."""
        self.count += 1
        folder = self.root / f"work{self.count}"
        folder.mkdir()
        (folder / "answer.c").write_text(source)
        (folder / "number.h").write_text(f"#define NUMBER {number}\n")
        (folder / "data.s").write_text(f".data\n.byte {number}\n.text\n")
        made = self.toolchain.compile(
            ["answer.c"], folder, ["-I.", *options], cache=self.cache
        )
        return made[0].read_bytes()

    @property
    def compilations(self) -> int:
        return len(self.log.read_text().split()) if self.log.exists() else 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_same_source_is_compiled_once(bench: Bench) -> None:
    assert bench.compile() == bench.compile()
    assert bench.compilations == 1


def test_a_header_or_an_option_that_changed_is_a_miss(bench: Bench) -> None:
    first = bench.compile()
    assert bench.compile(number="43") != first
    assert bench.compile(options=("-O0",)) != first
    assert bench.compilations == 3
    assert bench.compile() == first
    assert bench.compilations == 3


@pytest.mark.slow
def test_a_compiler_that_changed_is_a_miss(bench: Bench) -> None:
    first = bench.compile()
    bench.write_driver("-fno-omit-frame-pointer -O0")
    os.utime(bench.driver, ns=(1, 1))
    second = bench.compile(options=())
    assert bench.compilations == 2
    bench.write_driver()
    os.utime(bench.driver, ns=(1, 1))  # of another content, with the old size or time
    assert bench.compile() == first
    assert bench.compilations == 3
    assert len(second) > 0


def test_a_damaged_entry_is_compiled_again(bench: Bench) -> None:
    first = bench.compile()
    entry = next(path for path in bench.cache.folder.glob("??/*") if path.is_file())
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    assert bench.compile() == first
    assert bench.compilations == 2
    assert bench.compile() == first
    assert bench.compilations == 2


@pytest.mark.parametrize("word", ["incbin", "include"])
def test_what_reads_files_by_itself_is_compiled_each_time(bench: Bench, word: str) -> None:
    source = f'__asm__(".{word} \\"data.s\\"");\n'
    assert bench.compile(source) != bench.compile(source, number="43")
    assert bench.compilations == 2


def test_a_driver_that_answers_no_question_compiles(bench: Bench) -> None:
    bench.driver.write_text(
        f'#!/bin/sh\ncase " $* " in *" -v "*) exit 1;; esac\nexec "{bench.real}" "$@"\n'
    )
    assert bench.compile() == bench.compile()
    assert not bench.cache.folder.exists()


def test_an_error_is_that_of_the_compilation(bench: Bench) -> None:
    with pytest.raises(UserError, match="number") as caught:
        bench.compile('#error "no number"\n')
    assert " -c " in str(caught.value)
