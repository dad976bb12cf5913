"""Builds the C core into the wheel: the one part of the packaging that is not declarative.

Not here: metadata (pyproject.toml).  The compiler is `$CC`, else the one Python was built with, else
`ziglang`, which is asked for as a build requirement only where there is no compiler.  If all of that fails
the wheel is built without the core: `tilewright.runtime.native` then uses its Python implementation.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCES = sorted(
    path.as_posix()
    for folder in ("native/src", "native/src/python", "native/src/relax")
    for path in Path(folder).glob("*.c")
)
HEADERS = sorted(
    path.as_posix()
    for folder in ("native/include", "native/src", "native/src/python", "native/src/relax")
    for path in Path(folder).glob("*.h")
)
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


class PackageCore(build_py):
    """Puts the C core beside the package that exports libraries: it travels with every one of them."""

    def run(self) -> None:
        """Copy `native/include` and `native/src`, without what is Python's."""
        super().run()
        if self.editable_mode:
            return  # a checkout has `native/`
        target = Path(self.build_lib, "tilewright/compiler/packaging/library/core")
        for folder in ("include", "src", "src/library"):
            for path in sorted(Path("native", folder).glob("*.[ch]")):
                self.mkpath(str(target / folder))
                self.copy_file(str(path), str(target / folder / path.name))


setup(
    ext_modules=[
        Extension(
            "tilewright.runtime._native",
            sources=SOURCES,
            depends=HEADERS,
            include_dirs=["native/include", "native/src"],
            define_macros=[("Py_LIMITED_API", "0x030B0000"), ("_GNU_SOURCE", "1")],
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
