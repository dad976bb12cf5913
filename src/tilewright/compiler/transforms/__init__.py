"""Graph passes, one file each; their order is written in `compiler.pipeline` and, where it is a back end's, in its form.

Each states in its docstring what it requires and what holds after it.
"""

from tilewright.compiler.passes import GraphPass, known_passes, register_pass
from tilewright.compiler.transforms.clamp_indices import ClampIndices
from tilewright.compiler.transforms.contract_integers import ContractIntegers
from tilewright.compiler.transforms.convert_layout import ConvertLayout
from tilewright.compiler.transforms.decompose_norms import DecomposeNorms
from tilewright.compiler.transforms.decompose_quantization import DecomposeQuantization
from tilewright.compiler.transforms.eliminate_common import EliminateCommon
from tilewright.compiler.transforms.eliminate_dead import EliminateDead
from tilewright.compiler.transforms.fold_constants import FoldConstants
from tilewright.compiler.transforms.fold_rows import FoldRows
from tilewright.compiler.transforms.fold_scales import FoldScales
from tilewright.compiler.transforms.fuse_kernels import FuseKernels
from tilewright.compiler.transforms.fusion_bands import ChooseBand
from tilewright.compiler.transforms.grow_late import GrowLate
from tilewright.compiler.transforms.guard_indices import GuardIndices
from tilewright.compiler.transforms.hoist_invariants import HoistInvariants
from tilewright.compiler.transforms.keep_weights import KeepWeights
from tilewright.compiler.transforms.legalize_convolution import (
    ChoosePanel,
    LegalizeConvolution,
)
from tilewright.compiler.transforms.legalize_pooling import LegalizePooling
from tilewright.compiler.transforms.legalize_resampling import LegalizeResampling
from tilewright.compiler.transforms.pack_matmul import PackMatmul
from tilewright.compiler.transforms.partition_graph import PartitionGraph
from tilewright.compiler.transforms.pick_rows import PickRows
from tilewright.compiler.transforms.quantize_contractions import QuantizeContractions
from tilewright.compiler.transforms.recognize_activations import RecognizeActivations
from tilewright.compiler.transforms.recognize_attention import RecognizeAttention
from tilewright.compiler.transforms.recognize_norms import RecognizeNorms
from tilewright.compiler.transforms.round_contractions import (
    RoundContractions,
    rounding_passes,
)
from tilewright.compiler.transforms.short_weights import ALL_WIDE, ShortWeights
from tilewright.compiler.transforms.simplify import Simplify
from tilewright.compiler.transforms.sink_reshapes import SinkReshapes
from tilewright.compiler.transforms.split_concat import SplitConcat
from tilewright.compiler.transforms.split_reductions import ChooseParts, SplitReductions
from tilewright.compiler.transforms.spread_images import ChooseGap
from tilewright.compiler.transforms.tabulate_bytes import TabulateBytes
from tilewright.compiler.transforms.update_in_place import UpdateInPlace
from tilewright.compiler.transforms.winograd_convolution import (
    ChooseTile,
    WinogradConvolution,
)

__all__ = [
    "ALL_WIDE",
    "ChooseBand",
    "ChooseGap",
    "ChoosePanel",
    "ChooseParts",
    "ChooseTile",
    "ClampIndices",
    "ContractIntegers",
    "ConvertLayout",
    "DecomposeNorms",
    "DecomposeQuantization",
    "EliminateCommon",
    "EliminateDead",
    "FoldConstants",
    "FoldRows",
    "FoldScales",
    "FuseKernels",
    "GrowLate",
    "GuardIndices",
    "HoistInvariants",
    "KeepWeights",
    "LegalizeConvolution",
    "LegalizePooling",
    "LegalizeResampling",
    "PackMatmul",
    "PartitionGraph",
    "PickRows",
    "QuantizeContractions",
    "RecognizeActivations",
    "RecognizeAttention",
    "RecognizeNorms",
    "RoundContractions",
    "ShortWeights",
    "Simplify",
    "SinkReshapes",
    "SplitConcat",
    "SplitReductions",
    "TabulateBytes",
    "UpdateInPlace",
    "WinogradConvolution",
    "known_passes",
    "rounding_passes",
]

# What a `PassContext` may name: every pass above.
for _name in __all__:
    _value = globals()[_name]
    if isinstance(_value, type) and issubclass(_value, GraphPass):
        register_pass(_value)
