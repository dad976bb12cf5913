"""What is wrong with a node whatever its operands are: attributes and numbers of operands that its op does not have.

Needs no types, so it can be said of nodes behind one that is not supported, too.  Not what a row alone knows, such as
values that it refuses.  Called by the importer for every node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from onnx import AttributeProto, NodeProto

from tilewright.base.record import record
from tilewright.base.text import plural
from tilewright.compiler.frontends.onnx.attributes import is_of_type, text_of, words_of
from tilewright.compiler.frontends.onnx.signatures import Signature


@final
@record
class Faults:
    """What is wrong with a node.

    Attributes:
        unknown: attributes that no version of the op has; without them it has a meaning.
        outputs: results that it does not have, in words; the others have a meaning.
        reasons: everything else, in words, with which it has none.
    """

    unknown: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def faults_of(
    node: NodeProto, attributes: Mapping[str, AttributeProto], signature: Signature
) -> Faults:
    """What is wrong with `node`, whose attributes are resolved."""
    types = signature.attributes
    wrong = [
        f"attribute '{name}' is not {' or '.join(map(words_of, codes))}"
        for name, attribute in attributes.items()
        if (codes := types.get(name)) and not any(is_of_type(attribute, c) for c in codes)
    ]
    missing = [
        f"attribute '{name}' is missing"
        for name in signature.required
        if name not in attributes
    ]
    return Faults(
        tuple(name for name in attributes if name not in types),
        tuple(
            unknown_output(place, text_of(name))
            for place, name in enumerate(node.output)
            if name and place >= signature.results
        ),
        (*wrong, *missing, *_of_operands(node, signature)),
    )


def unknown_output(place: int, name: str) -> str:
    """The problem of a result that an op does not have, or has not here."""
    return f"output {place + 1} ('{name}') is not supported"


def _of_operands(node: NodeProto, signature: Signature) -> list[str]:
    """Operands that are missing or that the op does not take; those left out at the end are none."""
    given = list(node.input)
    while given and not given[-1]:
        given.pop()
    if len(given) > signature.most:
        return [f"has {plural(len(given), 'operand')}, expected at most {signature.most}"]
    return [
        f"operand {place + 1} is missing"
        for place in signature.needed
        if place >= len(given) or not given[place]
    ]
