"""Options that say what is run and how it is loaded, the same for every verb that runs something.

`--module` is IREE's: given several times, modules are loaded in order and the last one is run.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

import click

from tilewright.base.budget import Limits
from tilewright.base.errors import InputError, UserError
from tilewright.base.file_kinds import is_artifact_name
from tilewright.base.input_file import why_no_file
from tilewright.base.knobs import parse_size
from tilewright.cli.codegen_options import NO_CODEGENS, CodegenOptions, codegen_options
from tilewright.cli.library_model import (
    LibraryModel,
    MachineFunction,
    is_library,
    library_model,
)
from tilewright.cli.option_groups import FILE, NUMBER, OptionGroup, option
from tilewright.cli.options import THREADS

if TYPE_CHECKING:
    from tilewright.formats.output_checks import Check
    from tilewright.runtime.session import Session
    from tilewright.runtime.session_options import LoadOptions


@final
class _Size(click.ParamType[int]):
    """A size in bytes: `512M`."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return value if isinstance(value, int) else parse_size(str(value))
        except ValueError as error:
            return self.fail(f"got '{value}', expected {error}", param, ctx)


Sources = Callable[[], Mapping[str, str]]
MODEL_SUFFIXES: Final = (".onnx", ".mlir", ".mlirbc", ".stablehlo", ".gguf")
"""What front ends read, named here so that looking at an artifact imports none of them."""
_OF_LIBRARIES: Final = (
    "model", "modules", "codegens", "threads", "trusted_keys", "function",
)  # fmt: skip
_SPELLED: Final = {"plugins": "executable_plugin"}


@final
@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A loaded model.

    Attributes:
        session: runs it.
        sources: gives the printed levels of its kernels.
        checks: what its outputs must be to each other, where it checks itself.
    """

    session: Session
    sources: Sources
    checks: tuple[Check, ...] = ()


def is_model(path: str | Path) -> bool:
    """Whether a file is called as models are that are to be compiled."""
    return Path(path).suffix.lower() in MODEL_SUFFIXES


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the options of `model_options` say."""

    model: str | None = None
    modules: tuple[str, ...] = ()
    function: str | None = None
    device: str = "local-task"
    engine: Literal["plan", "vm"] | None = None
    bytecode: Literal["translate", "interpret"] | None = None
    parameters: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    untrusted: bool = False
    max_steps: int | None = None
    max_bytes: int | None = None
    timeout: float | None = None
    copy: bool = False
    trusted_keys: tuple[str, ...] = ()
    threads: int | None = None
    codegens: CodegenOptions = NO_CODEGENS

    @property
    def path(self) -> str:
        """The model that is run.  Raises: UserError when there is none."""
        path = self.model or next(reversed(self.modules), None)
        if path is None:
            raise UserError("no model given", hint=_example())
        return path

    @property
    def libraries(self) -> tuple[str, ...]:
        """The modules that are loaded before it."""
        return self.modules if self.model else self.modules[:-1]

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is read, which must stay as it is."""
        from tilewright.formats.parameters import scope_and_path

        weights = tuple(scope_and_path(word)[1] for word in self.parameters)
        return (*self.libraries, self.path, *weights, *self.plugins)

    def open(self) -> Session:
        """Load an artifact, or compile a model and load that.

        Raises: InputError if there is no such file; errors of compilation and loading.
        """
        return self.opened().session

    def open_library(self) -> LibraryModel | MachineFunction:
        """Load the model of a library.

        Raises: InputError for options that a library does not take; as `library_model`.
        """
        given = [
            f"--{_SPELLED.get(field.name, field.name).replace('_', '-')}"
            for field in fields(self)
            if field.name not in _OF_LIBRARIES
            and getattr(self, field.name) != field.default
        ]
        given += ["--module"] if self.libraries else []
        if given:
            raise InputError(f"{given[0]} is not for libraries", location=self.path)
        self._refuse_codegens("a library")
        self.codegens.import_modules()
        return library_model(
            self.path,
            function=self.function,
            threads=self.threads,
            trusted_keys=self.trusted_keys,
        )

    def _refuse_codegens(self, problem: str) -> None:
        """Raise UserError where generators are chosen for something that was compiled before."""
        if self.codegens.byoc or self.codegens.byoc_option:
            raise InputError(
                f"is {problem}, code generators take part when a model is compiled",
                location=self.path,
                hint="loaders of its modules are registered by --byoc-module",
            )

    def open_with_sources(self) -> tuple[Session, Sources]:
        """The session, and what gives the printed levels of its kernels.  Raises: as `open`."""
        found = self.opened()
        return found.session, found.sources

    def opened(self) -> OpenedModel:
        """The session, and what there is to know about the model.  Raises: as `open`."""
        for path in (*self.libraries, self.path):
            problem = why_no_file(path)
            if problem is not None:
                raise InputError(problem, location=path)
        if is_library(self.path):
            raise InputError(
                "is a library, expected a model or a .vmfb of it",
                location=self.path,
                hint="tilewright run calls libraries, tilewright inspect lists their functions",
            )
        for plugin in self.plugins:
            _register_plugin(plugin, self.trusted_keys)
        if not is_artifact_name(self.path):
            return self._compile()
        self._refuse_codegens("an artifact")
        self.codegens.import_modules()
        from tilewright.runtime.session import Session

        session = Session.from_file(self.path, copy=self.copy, **self._load_options())
        artifact = session.artifact
        return OpenedModel(
            session,
            lambda: {} if artifact is None else artifact.sources,
            () if artifact is None else artifact.checks,
        )

    def _load_options(self) -> LoadOptions:
        from tilewright.api.load import run_reference

        return {
            "host_function": run_reference,
            "threads": self.threads,
            "device": self.device,
            "engine": self.engine,
            "bytecode": self.bytecode,
            "libraries": self.libraries,
            "function": self.function,
            "parameters": self.parameters,
            "untrusted": self.untrusted,
            "limits": self._limits(),
            "trusted_keys": self.trusted_keys or None,
        }

    def _limits(self) -> Limits | None:
        """Those of the options, the others as they are by default; None without any."""
        given = {
            "max_steps": self.max_steps,
            "max_bytes": self.max_bytes,
            "timeout_s": self.timeout,
        }
        said = {name: value for name, value in given.items() if value is not None}
        return replace(Limits(), **said) if said else None

    def _compile(self) -> OpenedModel:
        if self.trusted_keys:
            raise InputError(
                "is a model that is compiled here, only artifacts are checked for signatures",
                location=self.path,
                hint="compile and sign it first: tilewright compile, tilewright sign",
            )
        if self.parameters:
            raise InputError(
                "parameters belong to a .vmfb that was made without them",
                location=self.path,
                hint=f"tilewright compile {self.path} --weights=w.irpa -o model.vmfb",
            )
        from tilewright.api import model
        from tilewright.cli.display import phase_bar
        from tilewright.runtime.session import Session

        with phase_bar() as progress:
            compiled = model.compile(
                self.path,
                threads=self.threads,
                byoc=self.codegens.chosen(),
                progress=progress,
            )
        options = self._load_options()
        sources = functools.partial(compiled.sources, assembly=True)
        checks = compiled.compiled.checks
        if options == ModelOptions(threads=self.threads)._load_options():
            return OpenedModel(compiled.session, sources, checks)
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "model.vmfb")
            compiled.save(archive, sources=False)
            data = archive.read_bytes()
        session = Session.from_bytes(data, location=self.path, **options)
        return OpenedModel(session, sources, checks)


def _example() -> str:
    """How the verb that is run is called with a model."""
    context = click.get_current_context(silent=True)
    verb = "run" if context is None else context.info_name
    return f"tilewright {verb} model.vmfb" + (" --input=@x.npy" if verb == "run" else "")


def _register_plugin(path: str, trusted_keys: tuple[str, ...]) -> None:
    """Offer a plugin's functions to everything that this process loads.

    Raises: InputError; ArchiveError where keys are given of which none has signed it.
    """
    from tilewright.runtime.loaders.imports import Plugin, register_import_provider

    if trusted_keys:
        from tilewright.runtime.loaders.trusted_keys import TrustedKeys

        TrustedKeys(trusted_keys).check_file(path)
    register_import_provider(Plugin(path))


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """MODEL, --module, --function, --device, …: the command gets them as one, `options`."""
    names = [field.name for field in fields(ModelOptions)]

    @codegen_options
    @functools.wraps(command)
    def call(**given: Any) -> None:
        options = ModelOptions(**{name: given.pop(name) for name in names})
        command(options=options, **given)

    for decorate in reversed(_OPTIONS):
        call = decorate(call)
    return call


_OPTIONS: Final = (
    click.argument("model", required=False, type=FILE),
    option(
        "--module",
        "modules",
        multiple=True,
        type=FILE,
        metavar="FILE",
        help="Modules in the order they are loaded; the last one is MODEL where that is left out.",
        group=OptionGroup.MODULES,
    ),
    option(
        "--function",
        help="Which one, of MODEL or as module.function; default: the only one.",
        group=OptionGroup.MODULES,
    ),
    option(
        "--device",
        default="local-task",
        show_default=True,
        help="URI of a device.",
        group=OptionGroup.WHERE,
    ),
    option(
        "--engine",
        type=click.Choice(["plan", "vm"]),
        help="Replay the plan or run the bytecode; default: the plan where there is one.",
        group=OptionGroup.WHERE,
    ),
    option(
        "--bytecode",
        type=click.Choice(["translate", "interpret"]),
        help="How bytecode runs: as Python functions (default), or instruction by instruction.",
        group=OptionGroup.WHERE,
    ),
    option(
        "--parameters",
        multiple=True,
        type=FILE,
        metavar="[SCOPE=]FILE",
        help="Weights outside of the module: .irpa, .safetensors, .gguf or .params (TVM).",
        group=OptionGroup.MODULES,
    ),
    option(
        "--executable-plugin",
        "plugins",
        multiple=True,
        type=FILE,
        metavar="FILE",
        help="A shared library with functions that kernels import.",
        group=OptionGroup.MODULES,
    ),
    option(
        "--untrusted",
        is_flag=True,
        help="Run no machine code of the module, only kernels in bytecode (VMVX), within limits.",
        group=OptionGroup.LIMITS,
    ),
    option(
        "--max-steps",
        type=click.IntRange(0),
        help=f"Of each call of a module; {Limits().max_steps} where --untrusted is given.",
        metavar="N",
        group=OptionGroup.LIMITS,
    ),
    option(
        "--max-bytes",
        type=_Size(),
        metavar="SIZE",
        help="Memory held for a module, as 512M; 1G where --untrusted is given.",
        group=OptionGroup.LIMITS,
    ),
    option(
        "--timeout",
        type=NUMBER,
        metavar="SECONDS",
        help=f"Of loading and of each call; {Limits().timeout_s:g} where --untrusted is given.",
        group=OptionGroup.LIMITS,
    ),
    option(
        "--trusted-key",
        "trusted_keys",
        multiple=True,
        type=FILE,
        metavar="FILE",
        help="A public key (PEM) that must have signed the module, its libraries, weights and plugins.",
        group=OptionGroup.MODULES,
    ),
    option(
        "--copy",
        is_flag=True,
        help="Read a .vmfb into memory and verify it, instead of mapping the file.",
        group=OptionGroup.MODULES,
    ),
    THREADS,
)
