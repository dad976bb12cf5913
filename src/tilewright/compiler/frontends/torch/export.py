"""From a module of torch to an exported program without side effects, in operators that have rows.

Operators with a row stay whole; all others are taken apart by torch's own decompositions, as far as it has
some.  Called by `load`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
import tilewright.compiler.frontends.torch.decompositions as own
import tilewright.compiler.frontends.torch.table as table
from tilewright.base.errors import ModelError, UserError
from tilewright.compiler.frontends.torch.associative_scans import open_scans
from tilewright.compiler.frontends.torch.cache_types import register_caches
from tilewright.compiler.frontends.torch.causal_masks import masks_as_given
from tilewright.compiler.frontends.torch.changed_attributes import watched_attributes
from tilewright.compiler.frontends.torch.checked_distributions import (
    checked_distributions,
)
from tilewright.compiler.frontends.torch.contiguous_copies import (
    contiguous_copies,
    writes_in_place,
)
from tilewright.compiler.frontends.torch.differentiated import differentiated
from tilewright.compiler.frontends.torch.dispatched import own_kernels, typed_reflectors
from tilewright.compiler.frontends.torch.failed_exports import (
    NO_TRANSFORM,
    ended_transforms,
    hint,
    reason,
    unlogged,
)
from tilewright.compiler.frontends.torch.functions_of_sizes import functions_of_sizes
from tilewright.compiler.frontends.torch.hoist import all_graphs, hoisted
from tilewright.compiler.frontends.torch.kept_attributes import kept_attributes
from tilewright.compiler.frontends.torch.known_numbers import KnownNumbers, known_numbers
from tilewright.compiler.frontends.torch.moved_modules import moves_that_change
from tilewright.compiler.frontends.torch.open_sizes import fixed_sizes, noted
from tilewright.compiler.frontends.torch.packed_sequences import packed_sequences
from tilewright.compiler.frontends.torch.recurrent import whole_recurrences
from tilewright.compiler.frontends.torch.sizes import environment_of
from tilewright.compiler.frontends.torch.traceable import traceable_functions
from tilewright.compiler.frontends.torch.vision import sizes_from_none


@final
@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A module of torch and the arguments that it is exported with.

    Attributes:
        model: an `nn.Module`, or a `torch.export.ExportedProgram`, which needs no arguments.
        args, kwargs: what the module is called with once, by torch.
        dynamic_shapes: as for `torch.export.export`.
        computes_functions: whether calls compute functions of `math` of open sizes; else Python does once.
        leaves_open: whether dynamo is asked for what leaves more open, where the module makes numbers of sizes.
    """

    model: Any
    args: Sequence[object] | None = None
    kwargs: Mapping[str, object] | None = None
    dynamic_shapes: object = None
    computes_functions: bool = True
    leaves_open: bool = True

    @property
    def positional(self) -> tuple[object, ...]:
        """The arguments without names; a lone tensor may stand for itself."""
        args = (
            self.args or () if not border.is_instance(self.args, "Tensor") else (self.args,)
        )
        return tuple(args)


def is_program(model: object) -> bool:
    """Whether it is an exported program."""
    return border.is_instance(model, "export.ExportedProgram")


def export(captured: Captured) -> Any:
    """The exported program of a module, for inference.

    Raises: UserError for arguments that are missing or too many; ModelError for what torch cannot export.
    """
    model = captured.model
    if is_program(model):
        if captured.args or captured.kwargs or captured.dynamic_shapes:
            raise UserError("an exported program brings its arguments along: give none")
        return model
    name = type(model).__name__
    if captured.args is None and captured.kwargs is None:
        raise UserError(
            "the arguments that it is exported with are missing",
            location=name,
            hint="compile(module, (x,)), as for torch.export.export",
        )
    if model.training and _asks_mode(model):
        raise UserError(
            "the module is in training mode",
            location=name,
            hint="call module.eval() first, or export it yourself and compile the program",
        )
    buffers = frozenset(name for name, _ in model.named_buffers())
    try:
        _refuse_packed(model, has_open_sizes=captured.dynamic_shapes is not None)
        if _is_scripted(model) and captured.dynamic_shapes is None:
            with unlogged():
                return _converted(captured)
        register_caches(model)
        with kept_attributes(model), watched_attributes(model) as changes, unlogged():
            exported = _with_numbers(captured)
            _refuse_late(model, buffers)
            # Objects of the module hold tensors that are buffers, too (a cache of transformers): only dynamo sees
            # that a write to one is a write to the other.
            if _is_split(exported):
                exported = _traced(captured, strict=True)
        changes.settle(exported, name)
    except ModelError as error:
        raise ModelError(error.message, location=name, hint=error.hint) from error
    except Exception as error:
        message = f"torch cannot export it: {reason(error)}"
        has_open_sizes = captured.dynamic_shapes is not None
        remedy = hint(error, has_open_sizes=has_open_sizes)
        raise ModelError(message, location=name, hint=remedy) from error
    return exported


def _refuse_late(model: Any, before: frozenset[str]) -> None:
    """Raise ModelError for buffers that the trace registered: torch lets what they become overwrite an argument."""
    late = sorted(name for name, _ in model.named_buffers() if name not in before)
    if late:
        raise ModelError(
            f"the module registers the buffer '{late[0]}' while it runs",
            hint="call the module once before it is compiled, or register the buffer in __init__",
        )


def _is_scripted(model: Any) -> bool:
    return border.is_instance(model, "jit.ScriptModule")


def _converted(captured: Captured) -> Any:
    """The program of a module of TorchScript, for arguments of these sizes."""
    converter = border.load("torch._export.converter").TS2EPConverter
    with border.load().no_grad():
        return converter(
            captured.model, captured.positional, dict(captured.kwargs or {})
        ).convert()


def _refuse_packed(model: Any, *, has_open_sizes: bool) -> None:
    """Raise ModelError for what torch has compiled or packed already, which no export reads, and for what learns to quantize."""
    if _is_scripted(model) and not has_open_sizes:
        return
    observers = _observers(model)
    for path, part in model.named_modules():
        place = f"the part '{path}' of it" if path else "it"
        if _is_scripted(part):
            raise ModelError(
                f"{place} is a module of TorchScript, which torch reads only whole and with the sizes of its arguments",
                hint="compile the module that it was scripted or traced from",
            )
        if _is_packed(part):
            raise ModelError(
                f"{place} is {type(part).__name__} of torch.ao.quantization, whose weights are packed "
                "for torch's own kernels",
                hint="compile the module before it is quantized, or quantize it with torchao or pt2e",
            )
        if _observes(part) or part in observers:
            raise ModelError(
                f"{place} observes the ranges of what it quantizes, which changes what the next call gives",
                hint="call module.apply(torch.ao.quantization.disable_observer) first, or compile the module that was prepared",
            )


def _asks_mode(model: Any) -> bool:
    """Whether a part in training may do something else when it is not.

    What holds a graph of operators cannot leave training, for torch lets no such graph: only its other parts can.
    """
    graphs = [part for part in model.modules() if _is_traced(part)]
    within = {inner for graph in graphs for inner in graph.modules()}
    return any(
        part.training and within.isdisjoint(part.modules()) for part in model.modules()
    )


def _is_traced(model: Any) -> bool:
    """Whether it is a graph of operators and what holds its tensors, as of an exported program: none asks its mode, nor can change it."""
    graphs, holders = ("torch.fx.", "torch.export."), "torch.nn.modules.module"
    houses = [type(part).__module__ for part in model.modules()]
    # A holder at the head has a forward of somebody's.
    is_graph = houses[0].startswith(graphs)
    return is_graph and all(house.startswith((*graphs, holders)) for house in houses)


def _observers(model: Any) -> set[Any]:
    """The parts that do nothing but observe: those of parts that quantize in training have a switch there."""
    parts = list(model.modules())
    switched = {
        inner
        for part in parts
        if border.is_instance(part, "ao.quantization.FakeQuantizeBase")
        for inner in part.modules()
    }
    return {
        part
        for part in parts
        if border.is_instance(part, "ao.quantization.ObserverBase") and part not in switched
    }


def _observes(part: Any) -> bool:
    is_switched = border.is_instance(part, "ao.quantization.FakeQuantizeBase")
    return is_switched and bool(part.observer_enabled[0])


def _is_packed(part: Any) -> bool:
    """Whether a module holds weights as torch's own kernels want them."""
    room = "torch.ao.nn.quantized."
    name = f"{type(part).__module__}."
    held = ("modules.functional_modules.", "reference.")
    return name.startswith(room) and not name.removeprefix(room).startswith(held)


def _with_numbers(captured: Captured) -> Any:
    """With the numbers that modules keep as buffers known, unless that does not go or the module writes to them.

    Raises: what the first way that was tried raises, which knows more, where no way goes.
    """
    known: KnownNumbers | None = None
    reason: Exception | None = None
    try:
        with known_numbers(captured.model) as known:
            if not known.is_empty:
                exported = _in_some_way(captured)
                if not known.were_written():
                    return exported
    except Exception as error:
        if known is not None:
            if _is_alike_without(known, captured):
                raise
            reason = error
    try:
        return _in_some_way(captured)
    except Exception:
        if reason is None:
            raise
    raise reason


def _is_alike_without(known: KnownNumbers, captured: Captured) -> bool:
    """Whether an export would do the same were the numbers not known: none was read, nor was dynamo asked, which reads by itself."""
    return captured.dynamic_shapes is None and not known.were_read()


def _in_some_way(captured: Captured) -> Any:
    """The program by the first way that goes.

    Without dynamo; with it where sizes that calls decide meet guards that it need not make; then without asking the
    example's sizes, and with guards that calls check, and with dynamo; else as a function of its tensors.
    """
    is_open = captured.dynamic_shapes is not None
    try:
        found = _without_transforms(captured, strict=False)
        return _more_open(captured, found) if is_open else found
    except Exception:  # of torch, which raises anything
        with contextlib.suppress(Exception):
            if not is_open:
                return _traced(_as_function(captured), strict=False)
            return _without_transforms(captured, strict=True)
        if not is_open:  # no sizes to ask or to check
            raise
        for oblivious, checks in ((True, False), (True, True), (False, True)):
            with contextlib.suppress(Exception):
                found = _without_transforms(
                    captured, strict=False, checks=checks, oblivious=oblivious
                )
                return _more_open(captured, found, oblivious=oblivious)
        with contextlib.suppress(Exception):
            return _without_transforms(captured, strict=True, oblivious=True)
        for oblivious in (True, False):
            with contextlib.suppress(Exception):
                function = _as_function(captured)
                exported = _traced(function, strict=False, checks=True, oblivious=oblivious)
                if not _fixes_sizes(exported):
                    return exported
        raise


def _more_open(captured: Captured, found: Any, *, oblivious: bool = False) -> Any:
    """By dynamo where this leaves more open: of Python's own `len(x)` and `int(n / 2)` it makes no numbers."""
    met = noted()
    if met is None or not (met.numbers and captured.leaves_open):
        return found
    first = met.of_last_trace()
    with contextlib.suppress(Exception):  # of dynamo, which does not know all of Python
        again = _without_transforms(captured, strict=True, oblivious=oblivious)
        if met.is_more_open_than(first):
            met.is_left_open = True
            return again
    met.take(first)
    return found


def _fixes_sizes(exported: Any) -> bool:
    """Whether sizes that calls were to decide have one number alone: torch's core makes numbers of them and asks nobody."""
    bounds = exported.range_constraints.values()
    return any(bound.lower == bound.upper for bound in bounds)


def _without_transforms(
    captured: Captured, *, strict: bool, checks: bool = False, oblivious: bool = False
) -> Any:
    """The program, as `_traced` has it.

    Raises: ModelError where it holds tensors of a transform, which mean nothing outside of it.
    """
    exported = _traced(captured, strict=strict, checks=checks, oblivious=oblivious)
    if _differentiates(exported):
        raise ModelError(
            "a transform of torch.func was traced as one of its tensors",
            hint=NO_TRANSFORM if captured.dynamic_shapes is not None else None,
        )
    return exported


def _differentiates(exported: Any) -> bool:
    """Whether tensors in it are those of a transform, which have no elements outside of it.

    Derivatives along a direction are, too: torch loses them where it traces the program again.
    """
    if any("_make_dual" in str(node.target) for node in exported.graph.nodes):
        return True
    for tensor in exported.constants.values():
        if _is_strided(tensor):
            try:
                tensor.data_ptr()
            except RuntimeError:
                return True
    return False


def _is_strided(tensor: Any) -> bool:
    """Whether it is a tensor whose elements have places in memory."""
    return border.is_instance(tensor, "Tensor") and str(tensor.layout) == "torch.strided"


def _as_function(captured: Captured) -> Captured:
    """Of tensors of their own: sizes of what views are of, and where in it they begin, have no names where torch makes sure of them."""
    torch, tree = border.load(), border.load("torch.utils._pytree")
    args, kwargs = tree.tree_map_only(
        torch.Tensor,
        lambda x: x.detach().clone().requires_grad_(x.requires_grad),
        (captured.positional, captured.kwargs or {}),
    )
    model = differentiated(captured.model)
    return replace(captured, model=model, args=args, kwargs=kwargs)


def _traced(
    captured: Captured, *, strict: bool, checks: bool = False, oblivious: bool = False
) -> Any:
    """As `torch.export.export` gives it, with copies where sizes would decide whether there are, if nobody can tell.

    Args:
        captured: the module.
        strict: by dynamo, which does not look into functions of ours.
        checks: what torch decides by the example's sizes becomes a check of every call.
        oblivious: where torch can do without the example's sizes, it does not ask them.

    Raises: what torch raises; ModelError for a program that must ask them.
    """
    trace = functools.partial(
        _as_torch_traces, captured, strict=strict, checks=checks, oblivious=oblivious
    )
    if strict or captured.dynamic_shapes is None:
        return trace()
    with contiguous_copies() as copies:
        found = trace()
    if not (copies.were_made and writes_in_place(found)):
        return found
    if oblivious:
        raise ModelError("sizes decide whether it writes into a copy, which nobody asked")
    return trace()


def _as_torch_traces(
    captured: Captured, *, strict: bool, checks: bool, oblivious: bool
) -> Any:
    torch = border.load()
    # Dynamo looks into functions by itself.
    functions = () if strict else (traceable_functions(), checked_distributions())
    untouched = (
        ended_transforms(), whole_recurrences(), packed_sequences(), moves_that_change(), masks_as_given(), typed_reflectors(),
        open_scans(), sizes_from_none(), fixed_sizes(_names_of_leaves(captured)),
    )  # fmt: skip
    computed = (functions_of_sizes(),) if captured.computes_functions else ()
    with contextlib.ExitStack() as kept, torch.no_grad():
        for context in (*functions, *untouched, *computed):
            kept.enter_context(context)
        if oblivious:
            kept.enter_context(_obliviously())
        return torch.export.export(
            captured.model,
            captured.positional,
            dict(captured.kwargs or {}),
            dynamic_shapes=captured.dynamic_shapes,
            strict=strict,
            prefer_deferred_runtime_asserts_over_guards=checks,
        )


def _names_of_leaves(captured: Captured) -> list[str]:
    """What Python calls each tensor or number that the module is given, in torch's order."""
    try:
        taken = inspect.signature(captured.model.forward)
        given = taken.bind(*captured.positional, **(captured.kwargs or {})).arguments
    except (TypeError, ValueError):  # torch says what is wrong with them
        return []
    pytree = border.load("torch.utils._pytree")
    return [
        f"{name}{pytree.keystr(path)}"
        for name, value in given.items()
        for path, _ in pytree.tree_leaves_with_path(value)
    ]


def _obliviously() -> AbstractContextManager[None]:
    """Torch does not ask sizes of the example where it can do without."""
    settings = border.load("torch.fx.experimental._config")
    return settings.patch(backed_size_oblivious=True)


def _as_traced(graph: Any) -> AbstractContextManager[None]:
    """As the program was traced: where it may check sizes, another trace adds no checks that only the example's need."""
    environment = environment_of(graph.nodes)
    checks = getattr(environment, "prefer_deferred_runtime_asserts_over_guards", False)
    return _obliviously() if checks else contextlib.nullcontext()


def _is_split(exported: Any) -> bool:
    """Whether a constant of the program lies in the memory of a buffer of the module."""
    places: dict[str, set[int]] = {"CONSTANT_TENSOR": set(), "BUFFER": set()}
    for spec in exported.graph_signature.input_specs:
        tensor = exported.state_dict.get(spec.target)
        if tensor is None:
            tensor = exported.constants.get(spec.target)
        if spec.kind.name in places and _is_strided(tensor) and tensor.numel():
            places[spec.kind.name].add(tensor.data_ptr())
    return not places["CONSTANT_TENSOR"].isdisjoint(places["BUFFER"])


def resolve(exported: Any) -> Any:
    """The program without side effects, taken apart where it has operators without a row.

    Raises: ModelError for what torch cannot take apart.
    """
    if _differentiates(exported):
        raise ModelError(
            "torch exported its tensors of a transform of torch.func, which are without elements elsewhere",
            hint="compile the module: tilewright.compile(module, args)",
        )
    if all(_stands(node) for node in exported.graph.nodes):
        return exported
    try:
        # Else parameters that ask for gradients make torch trace what a training step needs.
        with (
            ended_transforms(),
            border.load().no_grad(),
            own_kernels(),
            _as_traced(exported.graph),
        ):
            ways = decompositions(keep_batch_norm=keeps_batch_norm(exported.graph))
            found = hoisted(exported).run_decompositions(
                _of_other_libraries(exported.graph_module, ways) | ways
            )
    except Exception as error:
        raise ModelError(f"torch cannot take it apart: {reason(error)}") from error
    # What buffers become stands before what a user gets, and only where writes to them are resolved.
    pairs = zip(reversed(_sizes(exported)), reversed(_sizes(found)), strict=False)
    fixed = [before for before, after in pairs if before and not after]
    if fixed:
        raise ModelError(
            "torch cannot take it apart: the sizes of a result are those of the example",
            hint="leave this size out of dynamic_shapes",
        )
    return found


def _sizes(exported: Any) -> list[int]:
    """Of each output how many sizes are open."""
    (last,) = (node for node in exported.graph.nodes if node.op == "output")
    values = [getattr(node, "meta", {}).get("val") for node in last.args[0]]
    shapes = [getattr(value, "shape", ()) for value in values]
    return [sum(_is_open(size) for size in shape) for shape in shapes]


def _is_open(size: Any) -> bool:
    """Whether no number stands for it: the module may have asked for one after the tensor was made."""
    return not isinstance(size, int) and size.node.maybe_as_int() is None


def keeps_batch_norm(graph: Any) -> bool:
    """Whether no normalization in it learns, which changes what it is given."""
    return not any(_learns(node) for node in graph.nodes)


def _learns(node: Any) -> bool:
    """Whether an operator updates running statistics, which its schema is silent about."""
    if str(node.target) not in _LEARNERS or len(node.args) < 6:
        return False
    return bool(node.args[5]) and node.args[3] is not None


_ARITHMETIC: Final = ("_operator", "math", "builtins", "torch")
"""Modules of functions that graphs call beside operators: they compute sizes, or take lists apart."""
_LEARNERS: Final = ("aten.batch_norm.default", "aten.instance_norm.default")


def _stands(node: Any) -> bool:
    if node.op != "call_function":
        return True
    if not border.is_instance(node.target, "_ops.OpOverload"):
        return getattr(node.target, "__module__", "") in _ARITHMETIC
    if _learns(node) or node.target._schema.is_mutable:
        return False
    return str(node.target) in table.names()


def decompositions(*, keep_batch_norm: bool = True) -> dict[Any, Callable[..., Any]]:
    """How torch takes apart what has no row here."""
    return dict(_decompositions(keep_batch_norm)) | own.of_quantization()


def _of_other_libraries(graph_module: Any, known: Mapping[Any, Any]) -> dict[Any, Any]:
    """How operators are taken apart that somebody defined as a composition of others, at whatever time."""
    torch, utils = border.load(), border.load("torch._export.utils")
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    nodes = (node for each in all_graphs(graph_module) for node in each.graph.nodes)
    targets = {node.target for node in nodes if node.op == "call_function"}
    return {
        target: utils._get_decomp_for_cia(target)
        for target in targets
        if border.is_instance(target, "_ops.OpOverload")
        and target not in known
        and str(target) not in table.names()
        and torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), composite)
    }


@functools.cache
def _decompositions(keep_batch_norm: bool) -> dict[Any, Callable[..., Any]]:
    torch = border.load()
    found = dict(torch.export.default_decompositions())
    for operator, build in border.load("torch._decomp").decomposition_table.items():
        if border.is_instance(operator, "_ops.OpOverload"):
            found.setdefault(operator, build)
    found |= own.own()
    kept = table.names() if keep_batch_norm else table.names() - set(_LEARNERS)
    return {
        operator: build for operator, build in found.items() if str(operator) not in kept
    }
