"""Modules for tests of exports: one that is linked, one that is saved as bytes, and what they become."""

from __future__ import annotations

from pathlib import Path

from tilewright.base.target import Target
from tilewright.runtime.library.link_files import LinkFiles, LinkOptions
from tilewright.runtime.packed.module import Module, ModuleProperties

# A function that any process may call, and one of tvm-ffi's convention that returns 42.
SOURCE = """
#include <stdint.h>
#include "answer.h"
#include "part.h"
int {name}_answer(void) {{ return PART; }}
"""
ENTRY = """
#include <stdint.h>
#include <string.h>
#include "answer.h"
int __tvm_ffi_main(void* self, const void* args, int32_t count, void* result) {{
  int32_t integer = 1;
  int64_t answer = {name}_answer();
  memcpy(result, &integer, 4);
  memcpy((char*)result + 8, &answer, 8);
  return (void)self, (void)args, (void)count, 0;
}}
"""


class LinkedModule(Module):
    """A module that is linked, as compiled models are."""

    kind = "fake_graph"
    properties = ModuleProperties.COMPILATION_EXPORTABLE

    def __init__(self, target: Target | None = None) -> None:
        super().__init__()
        self.target: Target = target or Target.host()
        self.asked: list[LinkOptions] = []

    def link_files(self, options: LinkOptions) -> LinkFiles:
        name = options.name
        self.asked.append(options)
        return LinkFiles(
            name=name,
            arch=self.target.arch,
            os=self.target.os,
            files={
                "answer.c": SOURCE.format(name=name).encode(),
                "entry.c": ENTRY.format(name=name).encode(),
                "answer.h": f"int {name}_answer(void);\n".encode(),
                "part.h": b"#define PART 42\n",
            },
            units=("answer.c",),
            entry_units=("entry.c",),
            public=("answer.h",),
            has_model=True,
            exports=("__tvm_ffi_main",),
            functions={"main": "__tvm_ffi_main"},
            flags=("-std=c11", "-Wall", "-Werror"),
        )

    def goes_along(self, module: object) -> bool:
        del module
        return False


class SavedModule(Module):
    """A module that goes into a library as bytes."""

    properties = ModuleProperties.BINARY_SERIALIZABLE | ModuleProperties.RUNNABLE

    def __init__(self, data: bytes = b"data", kind: str = "fake_saved") -> None:
        super().__init__()
        self.kind: str = kind
        self._data: bytes = data

    def save_to_bytes(self) -> bytes:
        return self._data


class SourceModule(Module):
    """A module of a user that writes one file of C."""

    kind = "c"
    properties = ModuleProperties.COMPILATION_EXPORTABLE

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text: str = text

    def get_write_formats(self) -> tuple[str, ...]:
        return ("c",)

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        Path(file_name).write_text(self._text)
