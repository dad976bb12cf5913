"""Pretty forms that are more than operands, attributes and a type.

One function per form; `FORMS` says whose it is, `POSITIONAL` what attributes without a name are
called.  Called by the parser of operations.

Source: the assembly formats of StableHLO's and MLIR's func operations, as their files print them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.compiler.frontends.stablehlo.operation_parser import (
    Form,
    OperationParser,
    Parts,
)
from tilewright.compiler.frontends.stablehlo.scope import Scope
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Block,
    Dense,
    Fields,
    Keyword,
    Number,
    Operation,
    Region,
    Type,
    Value,
)


def _constant(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.constant {attributes} dense<1> : tensor<i32>`."""
    cursor = parser.cursor
    if cursor.accept("("):
        # As if generic: () <{value = dense<…>}> : () -> type; so are those with quantized elements printed.
        cursor.expect(")")
        parts.attributes |= parser.properties()
    if cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
    if cursor.at(":"):
        parser.signature(parts)
        return
    value = parser.attributes.attribute()
    if not isinstance(value, Dense):
        raise cursor.error("the value of a constant is no literal of elements", parts.place)
    parts.attributes["value"] = value
    parts.types = (value.type,)
    if cursor.accept("->"):
        parts.types = parser.types.results()


def _terminator(parser: OperationParser, parts: Parts) -> None:
    """`return %a, %b : type, type`, which gives nothing to its own region."""
    parser.items(parts)
    if parts.operands or parser.cursor.at(":"):
        parser.cursor.expect(":")
        _check_types(parser, parts, parser.types.several())
    parts.types = ()


def _check_types(parser: OperationParser, parts: Parts, types: Sequence[Type]) -> None:
    given = [value.type for value in parts.operands]
    if given != list(types):
        listed, stated = (", ".join(map(str, each)) for each in (given, types))
        text = f"'{parts.name}' has operands ({listed}), its type says ({stated})"
        raise parser.cursor.error(text, parts.place)


def _all_types(parser: OperationParser, parts: Parts) -> None:
    """Operands, and as many results of the types that are listed."""
    parser.items(parts)
    parser.cursor.expect(":")
    if parser.cursor.at("("):
        parts.types = parser.types.function().results
        return
    parts.types = parser.types.several()


def _check(parser: OperationParser, parts: Parts) -> None:
    """`check.expect_eq %a, %b : type`, without a result; a literal brings its type along."""
    parser.items(parts)
    cursor = parser.cursor
    if cursor.accept(":"):
        _check_types(parser, parts, _repeated(parser.types.several(), parts))
    if cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
    parts.types = ()


def _repeated(types: tuple[Type, ...], parts: Parts) -> tuple[Type, ...]:
    """One type for all operands where only one is listed."""
    return types * len(parts.operands) if len(types) == 1 else types


def _call(parser: OperationParser, parts: Parts) -> None:
    """`call @f(%a) : (type) -> type`."""
    parts.positional.append(parser.attributes.symbol())
    parts.operands = parser.values()
    if parser.cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
    parser.signature(parts)


def _slice(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.slice %a [0:2, 1:4:2] : (type) -> type`."""
    parts.operands.append(parser.value())
    spans = parser.attributes.spans()
    for name, part in (
        ("start_indices", [s.start for s in spans]),
        ("limit_indices", [s.limit for s in spans]),
        ("strides", [s.stride for s in spans]),
    ):
        parts.attributes[name] = tuple(map(Number, part))
    if parser.cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
    parser.signature(parts)


def _reduce(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.reduce(%a init: %b), (%c init: %d) across dimensions = [0] : type reducer(…) {…}`."""
    cursor = parser.cursor
    starts = _inputs_with_starts(parser, parts)
    applied = ""
    if cursor.accept("applies"):
        applied = cursor.take("word", "an operation such as stablehlo.add")
    cursor.expect("across")
    cursor.expect("dimensions")
    cursor.expect("=")
    parts.attributes["dimensions"] = parser.attributes.attribute()
    if cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
    count = len(parts.operands)
    parts.operands += starts
    parser.signature(parts)
    if applied:
        parts.regions.append(_applied(applied, parts, count))
        return
    cursor.expect("reducer")
    pairs = [_pair(parser) for _ in range(count)]
    parts.regions.append(parser.region([p[i] for i in (0, 1) for p in pairs]))


def _inputs_with_starts(parser: OperationParser, parts: Parts) -> list[Value]:
    cursor = parser.cursor
    starts: list[Value] = []
    while True:
        cursor.expect("(")
        parts.operands.append(parser.value())
        cursor.expect("init")
        cursor.expect(":")
        starts.append(parser.value())
        cursor.expect(")")
        if not cursor.accept(","):
            return starts


def _pair(parser: OperationParser) -> tuple[Value, Value]:
    """`(%a: type, %b: type)`: what was gathered so far, and the next element."""
    cursor = parser.cursor
    cursor.expect("(")
    found: list[Value] = []
    for closing in (",", ")"):
        name = cursor.take("value", "a name such as %arg0")
        cursor.expect(":")
        found.append(Value(name, parser.types.type()))
        parser.location()
        cursor.expect(closing)
    first, second = found
    return first, second


def _applied(name: str, parts: Parts, count: int) -> Region:
    """The region that `applies name` is short for."""
    starts = parts.operands[count:]
    arguments = tuple(
        Value(f"%{side}{i}", value.type)
        for side in ("lhs", "rhs")
        for i, value in enumerate(starts)
    )
    results = tuple(Value(f"%{i}", value.type) for i, value in enumerate(starts))
    combine = Operation(name, arguments, results, {}, (), parts.place)
    leave = Operation("stablehlo.return", results, (), {}, (), parts.place)
    return Region((Block(arguments, (combine, leave)),))


def _while(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.while(%i = %0, %x = %1) : type, type cond {…} do {…}`."""
    cursor = parser.cursor
    cursor.expect("(")
    names: list[str] = []
    while not cursor.accept(")"):
        names.append(cursor.take("value", "a name such as %iterArg"))
        cursor.expect("=")
        parts.operands.append(parser.value())
        if not cursor.at(")"):
            cursor.expect(",")
    parts.types = ()
    if cursor.accept(":"):
        parts.types = parser.types.several()
        _check_types(parser, parts, parts.types)
    if cursor.accept("attributes"):
        parts.attributes |= parser.attributes.dictionary()
    for word in ("cond", "do"):
        cursor.expect(word)
        arguments = [Value(n, v.type) for n, v in zip(names, parts.operands, strict=True)]
        parts.regions.append(parser.region(arguments))


def _convolution(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.convolution(%a, %b) dim_numbers = […]x[…]->[…], window = {…} {…} : type`."""
    parts.operands = parser.values()
    parser.items(parts)
    window = parts.attributes.pop("window", {})
    if not isinstance(window, Mapping) or not window.keys() <= _WINDOW.keys():
        raise parser.cursor.error("the window is malformed", parts.place)
    parts.attributes |= {_WINDOW[name]: part for name, part in window.items()}
    parser.signature(parts)


def _dot_general(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : type`."""
    parser.items(parts)
    named: dict[str, Attribute] = {}
    for pretty, name in _DOT.items():
        pair = parts.attributes.pop(pretty, ((), ()))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise parser.cursor.error(f"'{pretty}' are no two lists", parts.place)
        named[f"lhs_{name}"], named[f"rhs_{name}"] = pair
    parts.attributes["dot_dimension_numbers"] = Fields("stablehlo.dot", (), named)
    precision = parts.attributes.pop("precision", None)
    if precision is not None:
        parts.attributes["precision_config"] = precision
    parser.signature(parts)


_DOT: Final = {
    "batching_dims": "batching_dimensions",
    "contracting_dims": "contracting_dimensions",
}
_WINDOW: Final = {
    "lhs_dilate": "lhs_dilation",
    "pad": "padding",
    "reverse": "window_reversal",
    "rhs_dilate": "rhs_dilation",
    "stride": "window_strides",
}


_FORMAT: Final = re.compile(r"e(\d{1,3})m(\d{1,3})\Z")


def _reduce_precision(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.reduce_precision %a, format = e5m10 : type`."""
    parser.items(parts)
    stated = parts.attributes.pop("format", None)
    found = _FORMAT.match(stated.word) if isinstance(stated, Keyword) else None
    if found is None:
        raise parser.cursor.error("'format' is none such as e5m10", parts.place)
    for name, digits in zip(
        ("exponent_bits", "mantissa_bits"), found.groups(), strict=True
    ):
        parts.attributes[name] = Number(int(digits))
    parser.signature(parts)


def _element(parser: OperationParser, parts: Parts) -> None:
    """`stablehlo.get_tuple_element %a[0] : (type) -> type`."""
    cursor = parser.cursor
    parts.operands.append(parser.value())
    cursor.expect("[")
    parts.positional.append(parser.attributes.attribute())
    cursor.expect("]")
    if cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
    parser.signature(parts)


def _sharded(parser: OperationParser, parts: Parts) -> None:
    """`sdy.sharding_constraint %a <@mesh, [{"x"}, {}]> : type`: where a value shall lie."""
    parts.operands.append(parser.value())
    parser.cursor.skip_balanced()
    if parser.cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
    parser.signature(parts)


def _noted(parser: OperationParser, parts: Parts) -> None:
    """`sdy.propagation_barrier %a allowed_direction=NONE : type`."""
    parts.operands.append(parser.value())
    parser.items(parts)
    parser.signature(parts)


def _group(parser: OperationParser, parts: Parts) -> None:
    """`sdy.sharding_group %a group_id=1 : type`, without a result."""
    _noted(parser, parts)
    parts.types = ()


def _on_parts(parser: OperationParser, parts: Parts) -> None:
    """`sdy.manual_computation(%a) in_shardings=[…] … manual_axes={…} (%b: type) {…} : (type) -> type`."""
    cursor = parser.cursor
    parts.operands = parser.values()
    while cursor.kind == "word":
        cursor.advance()
        cursor.expect("=")
        cursor.skip_balanced()
    scope = parser.scope
    parser.scope = Scope(scope)
    arguments = parser.arguments()
    parts.regions.append(parser.region(arguments))
    parser.scope = scope
    parser.signature(parts)


_CHECKS: Final = (
    "expect_eq", "expect_eq_const", "expect_almost_eq", "expect_almost_eq_const",
    "expect_close", "expect_serialized_eq",
)  # fmt: skip

FORMS: Final[Mapping[str, Form]] = {
    **dict.fromkeys((f"check.{name}" for name in _CHECKS), _check),
    "call": _call,
    "chlo.constant": _constant,
    "func.call": _call,
    "func.return": _terminator,
    "interpreter.print": _check,
    "return": _terminator,
    "sdy.manual_computation": _on_parts,
    "sdy.propagation_barrier": _noted,
    "sdy.reshard": _sharded,
    "sdy.return": _terminator,
    "sdy.sharding_constraint": _sharded,
    "sdy.sharding_group": _group,
    "stablehlo.constant": _constant,
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_conv": _convolution,
    "stablehlo.get_tuple_element": _element,
    "stablehlo.optimization_barrier": _all_types,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.return": _terminator,
    "stablehlo.slice": _slice,
    "stablehlo.while": _while,
}
POSITIONAL: Final[Mapping[str, Sequence[str]]] = {
    "call": ("callee",),
    "check.expect_almost_eq_const": ("value",),
    "check.expect_eq_const": ("value",),
    "chlo.compare": ("comparison_direction", "compare_type"),
    "func.call": ("callee",),
    "stablehlo.compare": ("comparison_direction", "compare_type"),
    "stablehlo.composite": ("name",),
    "stablehlo.custom_call": ("call_target_name",),
    "stablehlo.get_tuple_element": ("index",),
}
NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "stablehlo.broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.concatenate": {"dim": "dimension"},
    "stablehlo.convolution": {"dim_numbers": "dimension_numbers"},
    "stablehlo.dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.dynamic_conv": {"dim_numbers": "dimension_numbers"},
    "stablehlo.dynamic_iota": {"dim": "iota_dimension"},
    "stablehlo.dynamic_slice": {"sizes": "slice_sizes"},
    "stablehlo.fft": {"type": "fft_type", "length": "fft_length"},
    "stablehlo.get_dimension_size": {"dim": "dimension"},
    "stablehlo.iota": {"dim": "iota_dimension"},
    "stablehlo.pad": {
        "high": "edge_padding_high",
        "interior": "interior_padding",
        "low": "edge_padding_low",
    },
    "stablehlo.reverse": {"dims": "dimensions"},
    "stablehlo.rng": {"distribution": "rng_distribution"},
    "stablehlo.rng_bit_generator": {"algorithm": "rng_algorithm"},
    "stablehlo.set_dimension_size": {"dim": "dimension"},
    "stablehlo.transpose": {"dims": "permutation"},
}
"""What pretty forms call attributes, and the names of the specification."""
