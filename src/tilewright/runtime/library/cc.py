"""Functions that link, under the names that users of TVM know (`tvm.support.cc`).

    lib.export_library("net.so", fcompile=cc.cross_compiler("aarch64-linux-gnu-gcc"))
    lib.export_library("net.so", fcompile=cc.for_target("aarch64-linux"))      # by Zig

Source: TVM `python/tvm/support/cc.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any, final

from tilewright.base.c_compiler.toolchain import (
    Toolchain,
    find_toolchain,
    named_toolchain,
    target_triple,
)
from tilewright.base.target import Target
from tilewright.runtime.library.forms import SHARED


def get_cc() -> str:
    """The words of the default compiler, as for a shell.  Raises: UserError when there is none."""
    return shlex.join(find_toolchain().command)


def create_shared(
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
) -> None:
    """Link a shared library.

    Args:
        output: the library.
        objects: objects, archives and sources of C.
        options: further words for the compiler.
        cc: the compiler; default: as `toolchain.find_toolchain`.
        cwd: the folder that it runs in.

    Raises: UserError with the command and what it said.
    """
    find_toolchain(cc=cc).link_shared(output, _listed(objects), options or (), cwd=cwd)


def create_executable(
    output: str,
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
) -> None:
    """Link a program.  Arguments and errors as `create_shared`."""
    find_toolchain(cc=cc).link_executable(output, _listed(objects), options or (), cwd=cwd)


def create_staticlib(output: str, inputs: str | Sequence[str]) -> None:
    """Make a static library.  Raises: UserError with the command and what it said."""
    find_toolchain().archive(output, _listed(inputs))


def get_target_by_dump_machine(compiler: str) -> Callable[[], str | None]:
    """A function that asks a compiler which machine it makes code for."""
    return lambda: target_triple(named_toolchain(compiler).command) or None


@final
class CrossCompiler:
    """What `export_library` takes as `fcompile`: called with a file and what is linked to it.

    Attributes:
        toolchain: the compiler, where it is one of ours: `export_library` then compiles sources of C
            with it before it links.
        output_format: the suffix of what it makes.
        get_target_triple: says for which machine.
    """

    def __init__(
        self,
        compile_func: Callable[..., Any] | None,
        options: Sequence[str],
        add_files: Sequence[str],
        *,
        toolchain: Toolchain | None = None,
        output_format: str = "so",
        get_target_triple: Callable[[], str | None] | None = None,
    ) -> None:
        self._compile: Callable[..., Any] | None = compile_func
        self._options: tuple[str, ...] = tuple(options)
        self._add_files: tuple[str, ...] = tuple(add_files)
        self.toolchain: Toolchain | None = toolchain
        self.output_format: str = output_format
        self.get_target_triple: Callable[[], str | None] | None = get_target_triple

    def __call__(
        self, output: str, objects: Sequence[str], options: Sequence[str] | None = None
    ) -> Any:
        """Make `output`.  Returns: what the function says that it was made of."""
        files = [*_listed(objects), *self._add_files]
        words = [*self._options, *(options or ())]
        if self._compile is not None:
            return self._compile(output, files, options=words)
        assert self.toolchain is not None, "made with a function or a toolchain"
        return self.toolchain.link_shared(output, files, words)


def _listed(files: str | Sequence[str]) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


def cross_compiler(
    compile_func: str | Callable[..., Any],
    options: Sequence[str] | None = None,
    output_format: str | None = None,
    get_target_triple: Callable[[], str | None] | None = None,
    add_files: Sequence[str] | None = None,
) -> CrossCompiler:
    """A function for `fcompile` from a compiler and options.

    Args:
        compile_func: the name of a compiler, or a function as `create_shared`.
        options: further words for it.
        output_format: the suffix of what it makes; default: the function's, else `so`.
        get_target_triple: says for which machine; default: the function's, else the compiler itself.
        add_files: further objects, sources and libraries.
    """
    if isinstance(compile_func, str):
        return CrossCompiler(
            None,
            options or (),
            add_files or (),
            toolchain=named_toolchain(compile_func),
            output_format=output_format or "so",
            get_target_triple=get_target_triple or get_target_by_dump_machine(compile_func),
        )
    return CrossCompiler(
        compile_func,
        options or (),
        add_files or (),
        output_format=output_format or getattr(compile_func, "output_format", "so"),
        get_target_triple=get_target_triple
        or getattr(compile_func, "get_target_triple", None),
    )


def for_target(target: str | Target, options: Sequence[str] | None = None) -> CrossCompiler:
    """A function for `fcompile` that links for a machine, by Zig where the system has no compiler.

    Raises: TargetError for an unknown machine; UserError when there is no compiler for it.
    """
    machine = target if isinstance(target, Target) else Target.parse(target)
    return CrossCompiler(
        None,
        options or (),
        (),
        toolchain=find_toolchain(machine),
        output_format=SHARED[machine.os][1:],
        get_target_triple=lambda: f"{machine.arch}-{machine.os}",
    )
