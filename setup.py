"""Builds the C core into the wheel: the one part of the packaging that is not declarative.

Not here: metadata (pyproject.toml).  The compiler is `$CC`, else the one Python was built with, else
`ziglang`, which is asked for as a build requirement only where there is no compiler.  If all of that fails
the wheel is built without the core: `tilewright.runtime.native` then uses its Python implementation.
"""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# Of the one file that both sides know; the package itself cannot be imported before it is built.
CORE = runpy.run_path("src/tilewright/runtime/native/core_sources.py")
FILES = [path.as_posix() for path in CORE["files_of_core"](Path("native"))]
SOURCES = [name for name in FILES if name.endswith(".c")]
HEADERS = [name for name in FILES if name.endswith(".h")]
MARK = CORE["mark_of"](Path("native"))
ZIG = [sys.executable, "-m", "ziglang", "cc"]


def has_system_compiler() -> bool:
    """Whether `$CC` or the compiler Python was built with can be started."""
    words = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return bool(words) and shutil.which(words[0]) is not None


class BuildCore(build_ext):
    """Compiles with the system's compiler or ziglang."""

    def build_extensions(self) -> None:
        """Point the compiler object at ziglang where there is nothing else, then build."""
        if self.compiler.compiler_type == "unix" and not has_system_compiler():
            self.compiler.set_executables(
                compiler=[*ZIG, "-fPIC"],
                compiler_so=[*ZIG, "-fPIC"],
                linker_so=[*ZIG, "-shared"],
            )
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Build it again, too, where what is there was made of other files, though of none that is newer."""
        built = Path(self.get_ext_fullpath(ext.name))
        if built.is_file() and MARK.encode() not in built.read_bytes():
            self.force = True
        super().build_extension(ext)


class PackageCore(build_py):
    """Puts the C core beside the package that exports libraries, and its mark beside the package that loads it."""

    def run(self) -> None:
        """Copy `native/include` and `native/src`, without what is Python's; write the mark."""
        super().run()
        if self.editable_mode:
            return  # a checkout has `native/`
        target = Path(self.build_lib, "tilewright/compiler/packaging/library/core")
        place = Path(self.build_lib, "tilewright/runtime/native")
        self.mkpath(str(place))
        (place / CORE["MARK_FILE"]).write_text(MARK)
        for folder in ("include", "src", "src/program", "src/library"):
            for path in sorted(Path("native", folder).glob("*.[ch]")):
                self.mkpath(str(target / folder))
                self.copy_file(str(path), str(target / folder / path.name))


setup(
    ext_modules=[
        Extension(
            "tilewright.runtime._native",
            sources=SOURCES,
            depends=HEADERS,
            include_dirs=["native/include", "native/src", "native/src/program"],
            define_macros=[
                ("Py_LIMITED_API", "0x030B0000"),
                ("_GNU_SOURCE", "1"),
                ("TW_SOURCES", f'"{MARK}"'),
            ],
            extra_compile_args=[
                "-std=c11",
                "-O2",
                "-g0",
                "-Wall",
                "-Wextra",
                "-fvisibility=hidden",
            ],
            extra_link_args=["-pthread"],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildCore, "build_py": PackageCore},
    options={
        "bdist_wheel": {"py_limited_api": "cp311"}
    },  # one wheel for every Python from 3.11 on
    setup_requires=[] if has_system_compiler() else ["ziglang>=0.13"],
)
