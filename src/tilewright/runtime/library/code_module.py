"""The kernels of a model as a module: kind `llvm`.

Each is a packed function of its tensors, operands before results, and can be recorded into the list of
whoever calls it again and again.  The code is the best that this machine can run.  A library of the module
alone has the same functions.  What whoever compiled them knows (objects for a linker, LLVM IR, assembly,
loops) is handed in as functions, because the runtime knows no compiler.  Made by `api.factory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

from tilewright.base.c_compiler.toolchain import find_toolchain, working_folder
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.base.lazy import lazy
from tilewright.base.output_file import write_text_output
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean
from tilewright.formats.artifact import Variant
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.plan import Plan, Step, to_json
from tilewright.formats.plan.kernel_plan import kernel_plans
from tilewright.formats.variant_choice import choose_variant
from tilewright.runtime.library.kernel_call import KernelCall
from tilewright.runtime.library.link_files import LinkFiles, LinkOptions
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.loaders.library_image import load_library
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.kernel_function import KernelFunction
from tilewright.runtime.packed.module import Module, ModuleProperties

_OBJECT: Final = "o"
_WRITTEN: Final = ("c", "ll", "s")
_SPELLINGS: Final = {"": "ll", "asm": "s"}


@final
@record(kw_only=True)
class KernelSources:
    """What a compiler knows of a model's kernels.

    Attributes:
        target: the machine; of several levels the first.
        objects: relocatable objects by file name, for the linker of the target's system.
        link: what they bring to a linker to become packed functions (see `Linkable`).
        text: all kernels in one of `text_formats`.
        text_formats: `c` C, `ll` LLVM IR, `s` assembly, `kernel` loops.
    """

    target: Target
    objects: Callable[[], Mapping[str, Buffer]]
    link: Callable[[LinkOptions], LinkFiles]
    text: Callable[[str], str]
    text_formats: tuple[str, ...] = ("c", "ll", "s", "kernel")


@final
class CodeModule(Module):
    """The kernels of a model.

    Args:
        variants: their code and the plans that run them.
        code: what their compiler knows of them; None for code that was loaded.
        name: how errors call the model.
    """

    kind = "llvm"
    properties = ModuleProperties.RUNNABLE | ModuleProperties.COMPILATION_EXPORTABLE

    def __init__(
        self, variants: Sequence[Variant], code: KernelSources | None, name: str
    ) -> None:
        super().__init__()
        self._variants: Sequence[Variant] = variants
        self._code: KernelSources | None = code
        self._name: str = name

    # --- running

    @lazy
    def _variant(self) -> Variant:
        return choose_variant(self._variants, Target.host(), self._name)

    @lazy
    def _executable(self) -> LoadedExecutable:
        image = view_bytes(self._variant.image)
        return load_library(self._variant.format, image, self._name)

    @lazy
    def _plans(self) -> Mapping[str, Plan]:
        """Of each kernel that can be called, the plan of it alone."""
        return kernel_plans(self._variants[0].plan)

    def load_executable(self) -> LoadedExecutable:
        """The kernels, ready to be called.  Raises: TargetError for code of another machine."""
        return self._executable

    def plan_of(self, plan: Plan) -> Plan:
        """The plan by which the code of this machine runs the model of `plan`.

        Levels differ in their grids, and in what a kernel reads in its place: a plan of one ends the
        process with the code of another.

        Raises: ArchiveError for a plan of another model.
        """
        own = self._variant.plan
        text = to_json(plan)
        if any(to_json(variant.plan) == text for variant in self._variants):
            return own
        known = {_call_of(own, step) for step in own.steps}
        for step in plan.steps:
            if step.kind == "dispatch" and _call_of(plan, step) not in known:
                raise ArchiveError(
                    f"the graph is of another model or level: no kernel here is called as '{step.target}' is there",
                    location=f"{self._name}: step '{step.name}'",
                    hint="take graph and kernels of one build, with one level if the graph is changed",
                )
        return plan

    def function_names(self) -> Sequence[str]:
        """The kernels whose tensors tell their sizes: others run in the model only."""
        return tuple(self._plans)

    def find_kernel(self, name: str) -> KernelFunction | None:
        if name not in self._plans:
            return None
        plan = kernel_plans(self._variant.plan)[name]
        (step,) = plan.steps
        export = self._executable.exports[name]
        return KernelFunction(
            name=name,
            address=export.function,
            parameters=tuple((entry.dtype, entry.shape) for entry in plan.entries),
            grid=step.grid,
            constants=step.dims,
            environment=self._executable.environment.address,
            local_memory_bytes=export.local_memory_bytes,
            owner=self._executable,
        )

    def find_function(self, name: str) -> PackedFunction | None:
        kernel = self.find_kernel(name)
        if kernel is None:
            return None
        return packed_function(KernelCall(kernel, len(self._plans[name].outputs)))

    # --- looking at it, and linking

    def get_write_formats(self) -> Sequence[str]:
        if self._code is None:
            return ()
        return (_OBJECT, *(fmt for fmt in self._code.text_formats if fmt in _WRITTEN))

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Write one relocatable object, C, LLVM IR or assembly.

        Raises: InputError for another format; UserError when there is no linker to join objects.
        """
        known = self.get_write_formats()
        chosen = fmt or Path(file_name).suffix[1:] or _OBJECT
        if chosen not in known:
            raise InputError(
                f"kernels are not written as '{chosen}'",
                location=str(file_name),
                hint=did_you_mean(chosen, known) or f"formats: {' '.join(known) or 'none'}",
            )
        if chosen == _OBJECT:
            self._write_object(file_name)
        else:
            write_text_output(file_name, self.inspect_source(chosen))

    def _write_object(self, file_name: str | Path) -> None:
        assert self._code is not None, "only such code has formats"
        with working_folder() as folder:
            files: list[Path] = []
            for name, data in self._code.objects().items():
                files.append(folder / name)
                files[-1].write_bytes(view_bytes(data))
            find_toolchain(self._code.target).merge(file_name, files)

    def inspect_source(self, fmt: str = "") -> str:
        """All kernels as `c` (C), `ll` (LLVM IR), `s` or `asm` (assembly), or `kernel` (loops).

        Raises: InputError for another format, or for kernels that were loaded.
        """
        chosen = _SPELLINGS.get(fmt, fmt)
        known = () if self._code is None else self._code.text_formats
        if self._code is None or chosen not in known:
            raise InputError(
                f"kernels have no text '{chosen}'",
                hint=did_you_mean(chosen, known) or f"texts: {' '.join(known) or 'none'}",
            )
        return self._code.text(chosen)

    def link_files(self, options: LinkOptions) -> LinkFiles:
        """See `Linkable`: the kernels as packed functions.

        Raises: UserError for kernels that were loaded, and for weights, which kernels do not have.
        """
        if self._code is None:
            raise UserError(
                "a loaded archive has linked code, which no linker takes again",
                location=self._name,
                hint="compile the model again and export that",
            )
        if options.weights is not None:
            raise UserError(
                "kernels alone have no weights to put into a file",
                location=options.weights,
                hint="export the factory that has them",
            )
        return self._code.link(options)

    def goes_along(self, module: object) -> bool:
        """Whether a module is linked with this one: none is."""
        del module
        return False


def _call_of(plan: Plan, step: Step) -> tuple[str, ...]:
    """What must be alike where a step calls a kernel: its name, grid, constants and tensors."""
    entries = (plan.entries[argument] for argument in step.arguments)
    tensors = (f"{entry.dtype}{entry.shape}" for entry in entries)
    return (step.target, str(step.grid), str(step.dims), *tensors)
