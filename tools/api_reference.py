"""The page of the Python interface: signatures and docstrings of what `tilewright` exports, as Markdown.

What it is: from objects to text; sections of docstrings (Args, Raises, …) become lists.
What it is not: a place for words; what reads badly on the page is mended in the docstring.
Who calls it: `tools/gendocs.py`, which writes and checks the page.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from types import FunctionType
from typing import Final, cast

import tilewright

# Every name of `tilewright.__all__` stands in one of these, a test says; of a module its main names.
GROUPS: Final = {
    "Compile, look inside, save": (
        "compile",
        "build",
        "tune",
        "Tuning",
        "quantize",
        "Model",
        "coverage",
    ),
    "Functions of JAX": ("from_jax", "JaxFunction"),
    "Language models": ("LanguageModel", "generate", "Sampling"),
    "Load and call": ("load", "Session", "Limits"),
    "Sign": ("sign", "generate_key"),
    "Passes": ("transform.PassContext", "transform.PassInstrument"),
    "Code generators of your own": (
        "byoc.register_codegen",
        "byoc.is_op",
        "byoc.is_const",
        "byoc.wildcard",
        "byoc.Pattern",
        "byoc.Match",
        "byoc.Module",
        "byoc.register_module_kind",
        "byoc.array_function",
        "byoc.packed_function",
        "byoc.CSourceModule",
    ),
    "Operators of ONNX of your own": (
        "onnx_operators.register_function",
        "onnx_operators.register_operator",
        "onnx_operators.Call",
        "onnx_operators.unregister",
    ),
    "Under ONNX's names": (
        "onnx_backend.prepare",
        "onnx_backend.PreparedModel",
        "onnx_backend.TilewrightBackend",
        "onnx_backend.run",
        "onnx_backend.run_model",
        "onnx_backend.run_node",
        "onnx_backend.supports_device",
        "onnx_backend.is_compatible",
    ),
    "Under TVM's names": (
        "graph_executor.create",
        "graph_executor.GraphModule",
        "debug_executor.create",
        "debug_executor.GraphModuleDebug",
        "debug_executor.first_divergence",
        "VirtualMachine",
        "cpu",
        "device",
        "get_global_func",
        "register_global_func",
        "remove_global_func",
    ),
    "Modules": (
        "runtime.load_module",
        "runtime.Module",
        "runtime.ModuleProperties",
        "runtime.FunctionTable",
        "runtime.InstrumentResult",
        "runtime.packed_function",
        "runtime.tensor_of",
        "runtime.array_of",
        "runtime.register_module_kind",
        "runtime.remove_module_kind",
        "runtime.load_static_library",
    ),
    "Compare": ("compare", "Comparison"),
    "Report": ("report", "Report", "explain", "Explanation"),
    "Targets": ("Target",),
    "Under onnxruntime's names": (
        "InferenceSession",
        "SessionOptions",
        "RunOptions",
        "IOBinding",
        "OrtValue",
        "NodeArg",
        "ModelMetadata",
        "GraphOptimizationLevel",
        "ExecutionMode",
        "get_available_providers",
        "get_all_providers",
        "get_device",
        "get_version_string",
        "set_default_logger_severity",
        "set_default_logger_verbosity",
        "enable_telemetry_events",
        "disable_telemetry_events",
    ),
    "Errors": (
        "TilewrightError",
        "UserError",
        "ModelError",
        "TargetError",
        "ArchiveError",
        "ScheduleError",
        "InputError",
        "DeviceError",
        "LimitError",
        "InternalError",
    ),
}
# What those give back and users hold; made by none of them.
RETURNED: Final = {
    "TensorSpec": "tilewright.formats.tensor_spec",
    "KernelView": "tilewright.api.kernel_view",
    "Factory": "tilewright.api.factory",
    "PendingCall": "tilewright.runtime.hal.pending_call",
    "CoverageReport": "tilewright.compiler.frontends.kit.coverage",
    "MemoryNeeds": "tilewright.compiler.program.memory",
    "Difference": "tilewright.base.difference",
    "Finding": "tilewright.api.compare.search",
}
_WIDTH: Final = 88
_LONG: Final = 40  # defaults that tell nothing, sets in an order of their own
_LISTS: Final = ("Args", "Attributes")
_SECTION: Final = re.compile(r"^([A-Z][\w-]+): ?(.*)$")
_INLINE: Final = re.compile(r"^(.+[.:])  (?=(?:Raises|Returns): )")  # two on one line
_NOT_SHOWN: Final = frozenset({"self", "cls", "_cls"})
_LAST_WORD: Final = re.compile(r"[A-Z]+[a-z]*")
_WORDS: Final = (
    "Args", "Attributes", "Returns", "Raises", "Yields", "Shapes", "Units", "Source",
    "Ownership", "Thread-safety",
)  # fmt: skip


def page(note: str) -> str:
    """The whole page."""
    parts = [_group(title, names) for title, names in GROUPS.items()]
    returned = "\n\n".join(
        _entry(name, getattr(importlib.import_module(home), name))
        for name, home in RETURNED.items()
    )
    contents = "\n".join(
        f"- {title}: {', '.join(f'[`{name}`](#{_anchor(name)})' for name in names)}"
        for title, names in {**GROUPS, "What these return": tuple(RETURNED)}.items()
    )
    body = "\n\n".join(parts)
    return f"""{note}
# Python API

What `import tilewright` gives, from its docstrings. A name that is not here may change without a word in the
[changelog](../CHANGELOG.md). Arrays are numpy arrays, or anything with DLPack or the buffer protocol on the CPU; `Array` in a signature
is `numpy.ndarray`. Sizes are in bytes and times in seconds where the name does not say otherwise. Every error on purpose is a
`TilewrightError`; [errors](errors.md) says what each one means and what to do.

{contents}

{body}

## What these return

{returned}
"""


def _anchor(name: str) -> str:
    return name.lower().replace(".", "")


@functools.cache
def _names_of_classes() -> dict[type, str]:
    """What the page calls a class: the first of its names."""
    found = {
        attrgetter(name)(tilewright): name for names in GROUPS.values() for name in names
    }
    found |= {
        getattr(importlib.import_module(home), name): name
        for name, home in RETURNED.items()
    }
    return {value: name for value, name in found.items() if isinstance(value, type)}


def _group(title: str, names: Iterable[str]) -> str:
    entries = (_entry(name, attrgetter(name)(tilewright)) for name in names)
    return f"## {title}\n\n" + "\n\n".join(entries)


def _entry(name: str, value: object) -> str:
    """A function, or a class with its public members."""
    if not isinstance(value, type):
        return f"### {name}\n\n{_code(name, signature_of(value))}\n\n{_text(value)}"
    shown = _is_made_by_users(value)
    parts = [f"### {name}"]
    parts.append(_code(f"class {name}", signature_of(value) if shown else None))
    named = _names_of_classes()
    bases = [named[b] for b in value.__bases__ if b in named]
    if bases:
        parts.append(f"A kind of {', '.join(f'[`{b}`](#{_anchor(b)})' for b in bases)}.")
    parts.append(_text(value))
    if issubclass(value, enum.Enum):
        parts.append(", ".join(f"`{item.name}` = {item.value}" for item in value))
    parts += [_member(name, *found) for found in members(value)]
    return "\n\n".join(parts)


def _is_made_by_users(owner: type) -> bool:
    """Whether to say how: not for values that others return, nor for errors like their base."""
    if issubclass(owner, enum.Enum):
        return False
    if issubclass(owner, Exception):
        return "__init__" in vars(owner)
    return _is_record(owner) or owner.__name__ not in {*RETURNED, "Model"}


def _is_record(owner: type) -> bool:
    return dataclasses.is_dataclass(owner) or issubclass(owner, tuple)


def members(owner: type) -> Iterator[tuple[str, object]]:
    """What is public in a class, in the order of its source.

    Enumeration values are not, nor is what does as the base's docstring says.
    """
    for name, value in vars(owner).items():
        if name != "__call__" and name.startswith("_"):
            continue
        if not value.__doc__ and any(hasattr(base, name) for base in owner.__bases__):
            continue
        if isinstance(value, property | staticmethod | classmethod | FunctionType):
            yield name, value


def _member(owner: str, name: str, value: object) -> str:
    if isinstance(value, property):
        kind = signature_of(value.fget).return_annotation
        return _item(f"`{name}: {_name(kind)}`", _text(value))
    instance = _LAST_WORD.findall(owner)[-1].lower()  # InferenceSession: session
    title = f"{instance}.{name}"
    if isinstance(value, staticmethod | classmethod):
        value = cast("object", value.__func__)
        title = f"{owner}.{name}"
    elif name == "__call__":
        title = instance
    waits = "await " if inspect.iscoroutinefunction(value) else ""
    return _item(f"`{waits}{_line(title, signature_of(value))}`", _text(value))


def _item(head: str, text: str) -> str:
    return f"- {head}\n\n{textwrap.indent(text, '  ')}" if text else f"- {head}"


# --- signatures ------------------------------------------------------------------------------


def signature_of(value: object) -> inspect.Signature:
    """How it is called, without `self`; the fields of a record, which takes whatever it is given."""
    if isinstance(value, type) and dataclasses.is_dataclass(value):
        return _record_signature(value)
    if isinstance(value, type) and issubclass(value, tuple):  # made by `NamedTuple`
        value = value.__new__
    found = inspect.signature(cast("Callable[..., object]", value))
    kept = [p for p in found.parameters.values() if p.name not in _NOT_SHOWN]
    ending = found.empty if isinstance(value, type) else found.return_annotation
    return found.replace(parameters=kept, return_annotation=ending)


def _record_signature(owner: type) -> inspect.Signature:
    rows: list[inspect.Parameter] = []
    for row in dataclasses.fields(owner):
        kind = (
            inspect.Parameter.KEYWORD_ONLY
            if row.kw_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        default: object = inspect.Parameter.empty
        if row.default is not dataclasses.MISSING:
            default = row.default
        elif row.default_factory is not dataclasses.MISSING:
            default = row.default_factory()
        rows.append(inspect.Parameter(row.name, kind, default=default, annotation=row.type))
    return inspect.Signature(rows)


def _code(head: str, signature: inspect.Signature | None) -> str:
    """The signature as a block of code, one parameter per line where it is long."""
    text = head
    if signature is not None:
        text = _line(head, signature)
        if len(text) > _WIDTH:
            rows = "".join(f"    {row},\n" for row in _spell(signature))
            text = f"{head}(\n{rows}){_ending(signature)}"
    return f"```text\n{text}\n```"


def _line(head: str, signature: inspect.Signature) -> str:
    return f"{head}({', '.join(_spell(signature))}){_ending(signature)}"


def _ending(signature: inspect.Signature) -> str:
    empty = signature.return_annotation is signature.empty
    return "" if empty else f" -> {_name(signature.return_annotation)}"


def _spell(signature: inspect.Signature) -> list[str]:
    """Each parameter as in the source, with the star before those that go by name only."""
    rows: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            rows.append("*")
        starred = starred or parameter.kind in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        )
        rows.append(_parameter(parameter))
    return rows


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_name(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    is_long = len(default) > _LONG or default.startswith("<")
    return f"{text} = {'…' if is_long else default}"


def _name(annotation: object) -> str:
    return (
        annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    )


# --- docstrings ------------------------------------------------------------------------------


def _text(value: object) -> str:
    """A docstring as Markdown."""
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    lines = _INLINE.sub(r"\1\n\n", text).splitlines()
    parts: list[str] = []
    paragraph: list[str] = []
    index = 0
    while index < len(lines):
        title, first = _title(lines[index])
        if not title:
            paragraph.append(lines[index])
            index += 1
            continue
        end = index + 1
        while end < len(lines) and lines[end].strip() and not _title(lines[end])[0]:
            end += 1
        parts += [*_paragraphs(paragraph), _section(title, first, lines[index + 1 : end])]
        paragraph = []
        index = end
    return "\n\n".join(parts + _paragraphs(paragraph)).replace(".  ", ". ")


def _title(line: str) -> tuple[str, str]:
    """The section that begins here and what follows on the line; empty if none does."""
    found = _SECTION.match(line)
    return (found[1], found[2]) if found and found[1] in _WORDS else ("", "")


def _paragraphs(lines: list[str]) -> list[str]:
    """Text between sections; what is indented is shown as it stands."""
    found: list[str] = []
    for block in "\n".join(lines).strip("\n").split("\n\n"):
        if not block.strip():
            continue
        if all(line.startswith("    ") for line in block.splitlines()):
            found.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            found.append(block)
    return found


def _section(title: str, first: str, lines: list[str]) -> str:
    if title not in _LISTS:
        text = " ".join([first, *(line.strip() for line in lines)]).strip()
        return f"**{title}:** {text}"
    rows: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if rows and line[:1].isspace():
            rows[-1] += f" {line.strip()}"
        else:
            names, _, rest = line.partition(": ")
            rows.append(f"- {', '.join(f'`{n}`' for n in names.split(', '))}: {rest}")
    return "\n".join(rows)
