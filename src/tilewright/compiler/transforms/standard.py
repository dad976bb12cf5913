"""The graph passes in the order they are worth running, one per line.

The pipeline runs this list; tools and tests may run a prefix.
"""

from __future__ import annotations

from tilewright.compiler.passes import GraphPass, register_pass
from tilewright.compiler.transforms.contract_integers import ContractIntegers
from tilewright.compiler.transforms.convert_layout import ConvertLayout
from tilewright.compiler.transforms.decompose_norms import DecomposeNorms
from tilewright.compiler.transforms.eliminate_common import EliminateCommon
from tilewright.compiler.transforms.eliminate_dead import EliminateDead
from tilewright.compiler.transforms.external_codegen import Codegen
from tilewright.compiler.transforms.fold_constants import FoldConstants
from tilewright.compiler.transforms.fold_scales import FoldScales
from tilewright.compiler.transforms.fuse_kernels import FuseKernels
from tilewright.compiler.transforms.guard_indices import GuardIndices
from tilewright.compiler.transforms.legalize_convolution import (
    ChoosePanel,
    LegalizeConvolution,
)
from tilewright.compiler.transforms.legalize_pooling import LegalizePooling
from tilewright.compiler.transforms.pack_matmul import PackMatmul
from tilewright.compiler.transforms.partition_graph import PartitionGraph
from tilewright.compiler.transforms.recognize_activations import RecognizeActivations
from tilewright.compiler.transforms.recognize_norms import RecognizeNorms
from tilewright.compiler.transforms.simplify import Simplify
from tilewright.compiler.transforms.sink_reshapes import SinkReshapes
from tilewright.compiler.transforms.split_concat import SplitConcat

# What a `PassContext` may name.
for _pass in (
    ContractIntegers,
    ConvertLayout,
    DecomposeNorms,
    EliminateCommon,
    EliminateDead,
    FoldConstants,
    FoldScales,
    FuseKernels,
    GuardIndices,
    LegalizeConvolution,
    LegalizePooling,
    PackMatmul,
    PartitionGraph,
    RecognizeActivations,
    RecognizeNorms,
    Simplify,
    SinkReshapes,
    SplitConcat,
):
    register_pass(_pass)


def standard_passes(
    *,
    choose_panel: ChoosePanel,
    check_indices: bool = True,
    codegens: tuple[Codegen, ...] = (),
) -> tuple[GraphPass, ...]:
    """Every graph pass, in order.

    Each has the lowest level of optimization it belongs to: at 0 values are folded and what nobody
    asked for goes, 1 rewrites the graph for the kernels, 2 puts ops together in kernels.

    Args:
        choose_panel: (rows, columns, depth, dtype) of a contraction to columns per packed panel, or 0.
        check_indices: let calls check the indices in their data.
        codegens: code generators of the user.
    """
    return (
        # What nobody asked for is not worth looking at.
        EliminateDead(),
        # What is computed twice is computed once: constants made of the same are one constant.
        EliminateCommon(),
        # Values that are known are known everywhere.
        FoldConstants(),
        # From here constants stand right and neutral operands are gone.
        Simplify(),
        EliminateCommon(),
        # From here normalizations and activations have one name each.
        RecognizeNorms(),
        RecognizeActivations(),
        # From here what goes to code generators of the user is out of reach of other passes.
        *([PartitionGraph(codegens=codegens)] if codegens else ()),
        # From here every normalization goes over whole rows.
        DecomposeNorms(),
        # From here batch normalizations are part of the weights.
        FoldScales(),
        FoldConstants(),
        Simplify(),
        # From here products of integers that floats hold exactly are products of floats.
        ContractIntegers(),
        # From here images are channels last.
        ConvertLayout(),
        # From here every contraction has a form that kernels are written for.
        LegalizeConvolution(choose_panel=choose_panel),
        LegalizePooling(),
        PackMatmul(choose_panel=choose_panel),
        SinkReshapes(),
        Simplify(),
        # From here no operation has more operands than a kernel can bind.
        SplitConcat(),
        # Weights that several products read are packed once.
        EliminateCommon(),
        # From here weights lie in memory as kernels read them.
        FoldConstants(),
        EliminateCommon(),
        EliminateDead(),
        # From here an index that may be out of range is looked at.
        GuardIndices(run_time=check_indices),
        # From here every top-level node is a constant, a view, one kernel, or runs on the host.
        FuseKernels(),
    )
