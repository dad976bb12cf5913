"""Compiles architectures of transformers, and networks in the style of torchvision, and compares them with eager mode.

    python tools/torch_models.py [NAME ...] [--oracles] [--results FILE] [--recorded] [--page FILE]

Configurations are the defaults of transformers with fewer and narrower layers, weights are random.  The page has
for each the relative error to eager mode, or why it is refused.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import nn
from torch.utils import _pytree as pytree
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

import tilewright as tw
from tilewright.base.errors import TilewrightError
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.graph.evaluator import evaluate
from torch_families import FAMILIES, LEFT_OUT
from torch_networks import NETWORKS

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 199, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = SMALL | {"num_key_value_heads": 2}
IMAGES = {k: v for k, v in SMALL.items() if k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")} | {
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
TOLERANCE = 1e-5
NEARER = 10
"""So many tolerances from f32 of eager mode may be what is as near to f64 as that."""


@dataclass(frozen=True)
class Case:
    """One architecture: a class of transformers with what its configuration says, and its inputs."""

    name: str
    kind: str
    settings: Mapping[str, object]
    inputs: str = "text"


def ids(rows: int = 2, length: int = 12) -> torch.Tensor:
    """Tokens of a small vocabulary."""
    return torch.randint(3, 190, (rows, length))


INPUTS: dict[str, Callable[[], dict[str, torch.Tensor]]] = {
    "text": lambda: {
        "input_ids": ids(),
        "attention_mask": torch.ones(2, 12, dtype=torch.int64),
    },
    "tokens": lambda: {"input_ids": ids()},
    "pair": lambda: {"input_ids": ids(), "decoder_input_ids": ids(2, 7)},
    "image": lambda: {"pixel_values": torch.randn(2, 3, 32, 32)},
    "image64": lambda: {"pixel_values": torch.randn(1, 3, 64, 64)},
    "wave": lambda: {"input_values": torch.randn(2, 3200)},
    "spectrum": lambda: {
        "input_features": torch.randn(1, 80, 60),
        "decoder_input_ids": ids(1, 5),
    },
    "spectrogram": lambda: {"input_values": torch.randn(1, 64, 32)},
    "both": lambda: {
        "input_ids": ids(),
        "pixel_values": torch.randn(2, 3, 32, 32),
        "attention_mask": torch.ones(2, 12, dtype=torch.int64),
    },
}
HEADS = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 199, "n_positions": 64}
PAIR = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "vocab_size": 199, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 199,
}
WAVE = {k: v for k, v in SMALL.items() if k != "max_position_embeddings"} | {
    "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
CASES = (
    Case("BertModel", "encoder", SMALL),
    Case("RobertaModel", "encoder", SMALL | {"max_position_embeddings": 66}),
    Case(
        "DistilBertModel",
        "encoder",
        {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96, "vocab_size": 199},
    ),
    Case("ElectraModel", "encoder", SMALL | {"embedding_size": 32}),
    Case("AlbertModel", "encoder", SMALL | {"embedding_size": 32}),
    Case("MPNetModel", "encoder", SMALL),
    Case("DebertaV2Model", "encoder", SMALL),
    Case("ModernBertModel", "encoder", SMALL | {"cls_token_id": 1, "sep_token_id": 2}),
    Case("ConvBertModel", "encoder", SMALL | {"embedding_size": 64}),
    Case("SqueezeBertModel", "encoder", SMALL | {"embedding_size": 64}),
    Case("FNetModel", "encoder", SMALL, "tokens"),
    Case("NystromformerModel", "encoder", SMALL),
    Case("XLMRobertaModel", "encoder", SMALL | {"max_position_embeddings": 66}),
    Case("RoFormerModel", "encoder", SMALL | {"embedding_size": 64}),
    Case("GPT2LMHeadModel", "decoder", HEADS),
    Case("GPTNeoXForCausalLM", "decoder", SMALL),
    Case("OPTForCausalLM", "decoder", SMALL | {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    Case(
        "BloomForCausalLM",
        "decoder",
        {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 199},
    ),
    Case("LlamaForCausalLM", "decoder", GROUPED),
    Case("MistralForCausalLM", "decoder", GROUPED),
    Case("Qwen2ForCausalLM", "decoder", GROUPED),
    Case("Qwen3ForCausalLM", "decoder", GROUPED | {"head_dim": 16}),
    Case("GemmaForCausalLM", "decoder", GROUPED | {"head_dim": 16}),
    Case("Gemma2ForCausalLM", "decoder", GROUPED | {"head_dim": 16}),
    Case("PhiForCausalLM", "decoder", GROUPED),
    Case("Phi3ForCausalLM", "decoder", GROUPED),
    Case("StableLmForCausalLM", "decoder", GROUPED),
    Case("Starcoder2ForCausalLM", "decoder", GROUPED),
    Case("CohereForCausalLM", "decoder", GROUPED),
    Case("OlmoForCausalLM", "decoder", GROUPED),
    Case("GraniteForCausalLM", "decoder", GROUPED),
    Case("FalconForCausalLM", "decoder", SMALL),
    Case("CodeGenForCausalLM", "decoder", HEADS | {"rotary_dim": 8}),
    Case("GPTJForCausalLM", "decoder", HEADS | {"rotary_dim": 8}),
    Case("MixtralForCausalLM", "mixture of experts", GROUPED | {"num_local_experts": 4}),
    Case(
        "Qwen2MoeForCausalLM",
        "mixture of experts",
        GROUPED
        | {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 48,
        },
    ),
    Case(
        "MambaForCausalLM",
        "state space",
        {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 199, "state_size": 8},
        "tokens",
    ),
    Case(
        "Mamba2ForCausalLM",
        "state space",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "vocab_size": 199,
            "state_size": 8,
            "num_heads": 8,
            "head_dim": 16,
            "n_groups": 1,
            "chunk_size": 8,
        },
        "tokens",
    ),
    Case(
        "RwkvForCausalLM",
        "state space",
        {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "vocab_size": 199,
            "attention_hidden_size": 64,
        },
        "tokens",
    ),
    Case("BartModel", "encoder-decoder", PAIR, "pair"),
    Case("T5Model", "encoder-decoder", T5, "pair"),
    Case("MT5Model", "encoder-decoder", T5, "pair"),
    Case("PegasusModel", "encoder-decoder", PAIR, "pair"),
    Case("MarianModel", "encoder-decoder", PAIR, "pair"),
    Case("MBartModel", "encoder-decoder", PAIR, "pair"),
    Case("ViTModel", "vision", IMAGES, "image"),
    Case("DeiTModel", "vision", IMAGES, "image"),
    Case("BeitModel", "vision", IMAGES, "image"),
    Case("Dinov2Model", "vision", IMAGES, "image"),
    Case(
        "ConvNextModel",
        "vision",
        {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]},
        "image64",
    ),
    Case(
        "ConvNextV2Model",
        "vision",
        {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]},
        "image64",
    ),
    Case(
        "ResNetModel",
        "vision",
        {"embedding_size": 16, "hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]},
        "image64",
    ),
    Case(
        "RegNetModel",
        "vision",
        {
            "embedding_size": 16,
            "hidden_sizes": [16, 32, 48, 64],
            "depths": [1, 1, 1, 1],
            "groups_width": 8,
        },
        "image64",
    ),
    Case(
        "SwinModel",
        "vision",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        "image",
    ),
    Case(
        "Swinv2Model",
        "vision",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        "image",
    ),
    Case(
        "SegformerModel",
        "vision",
        {
            "hidden_sizes": [16, 32, 40, 64],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 5, 8],
        },
        "image64",
    ),
    Case("MobileNetV2Model", "vision", {"depth_multiplier": 0.35}, "image64"),
    Case(
        "MobileViTModel",
        "vision",
        {
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 12, 16, 16, 24, 32, 64],
            "image_size": 64,
        },
        "image64",
    ),
    Case(
        "PvtV2Model",
        "vision",
        {
            "hidden_sizes": [16, 32, 40, 64],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 5, 8],
        },
        "image64",
    ),
    Case("Wav2Vec2Model", "audio", WAVE, "wave"),
    Case("HubertModel", "audio", WAVE, "wave"),
    Case(
        "WhisperModel",
        "audio",
        PAIR | {"max_source_positions": 30, "max_target_positions": 20},
        "spectrum",
    ),
    Case(
        "ASTModel",
        "audio",
        SMALL
        | {
            "max_length": 64,
            "num_mel_bins": 32,
            "patch_size": 8,
            "time_stride": 8,
            "frequency_stride": 8,
        },
        "spectrogram",
    ),
    Case(
        "CLIPModel",
        "several inputs",
        {
            "text_config": SMALL | {"eos_token_id": 2},
            "vision_config": IMAGES,
            "projection_dim": 32,
        },
        "both",
    ),
)


def module_of(case: Case) -> nn.Module:
    """The model with random weights."""
    kind = getattr(transformers, case.name)
    config = kind.config_class(**case.settings)
    config.use_cache = False
    if case.kind == "mixture of experts":
        # The other ways to choose experts have sizes that depend on data.
        config._experts_implementation = "batched_mm"
    torch.manual_seed(0)
    return kind(config).eval()


def error_of(found: object, wanted: object) -> float:
    """The largest difference of an output, relative to its largest element."""
    ours, theirs = (
        [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]
        for tree in (found, wanted)
    )
    assert len(ours) == len(theirs), "as many outputs"
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape, (mine.shape, other.shape)
        scale = max(float(other.double().abs().max()), 1e-30)
        if not torch.equal(mine.isnan(), other.isnan()):
            return math.inf
        worst = max(worst, float((mine.double() - other.double()).abs().max()) / scale)
    return worst


def is_nearer(
    found: object,
    wanted: object,
    module: nn.Module,
    args: Sequence[torch.Tensor],
    kwargs: Mapping[str, torch.Tensor],
) -> bool:
    """Whether what was found is as near to what eager mode gives in f64 as its own f32 is, and not far from either."""
    if not error_of(found, wanted) <= NEARER * TOLERANCE:
        return False
    wide = copy.deepcopy(module).double()
    given = pytree.tree_map(
        lambda x: x.double() if x.is_floating_point() else x, (tuple(args), dict(kwargs))
    )
    try:
        exact = wide(*given[0], **given[1])
    except RuntimeError:  # written for f32 alone
        return False
    return error_of(found, exact) <= error_of(wanted, exact)


def by_oracles(
    module: nn.Module, args: Sequence[torch.Tensor], kwargs: Mapping[str, torch.Tensor]
) -> Callable[..., object]:
    """The imported model, computed by the oracles of the graph's ops."""
    imported = load(Captured(module, args, kwargs))
    assert imported.calling is not None, "models of torch have one"
    calling = imported.calling

    def call(*arguments: object, **named: object) -> object:
        return calling(lambda arrays: evaluate(imported.graph, arrays), arguments, named)

    return call


def run(
    make: Callable[[], nn.Module],
    inputs: Mapping[str, torch.Tensor],
    positional: Sequence[torch.Tensor] = (),
    *,
    oracles: bool = False,
) -> tuple[str, float, float]:
    """What became of one model: a word, its error, and how long it took to compile."""
    try:
        module = make()
        start = time.perf_counter()
        if oracles:
            model = by_oracles(module, tuple(positional), dict(inputs))
        else:
            model = tw.compile(module, args=tuple(positional), kwargs=dict(inputs))
        seconds = time.perf_counter() - start
        with torch.no_grad():
            wanted = module(*positional, **inputs)
            found = model(*positional, **inputs)
            error = error_of(found, wanted)
            if error > TOLERANCE and is_nearer(found, wanted, module, positional, inputs):
                return "nearer", error, seconds
    except TilewrightError as failure:
        lines = [line for line in str(failure).splitlines() if line.strip()]
        return f"refused: {' / '.join(lines[:4])[:300]}", 0.0, 0.0
    except Exception as failure:
        return f"failed: {type(failure).__name__}: {str(failure)[:200]}", 0.0, 0.0
    return ("right" if error <= TOLERANCE else "off"), error, seconds


def main() -> None:
    """Run what the command line names; all without names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--results", type=Path, help="JSON, read first and written after every model"
    )
    parser.add_argument("--page", type=Path)
    parser.add_argument(
        "--oracles",
        action="store_true",
        help="compute by the oracles of ops, which compiles nothing",
    )
    parser.add_argument(
        "--recorded", action="store_true", help="run no model: the page is of --results"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows: dict[str, list[object]] = {}
    if options.results is not None and options.results.exists():
        rows = json.loads(options.results.read_text())
    for name, kind, make, inputs, positional in attempts() if not options.recorded else ():
        if options.names and name not in options.names:
            continue
        word, error, seconds = run(make, inputs, positional, oracles=options.oracles)
        rows[name] = [kind, word, error]
        print(f"{name:<26} {word} {error:.1e} {seconds:.1f} s", flush=True)
        if options.results is not None:
            options.results.write_text(json.dumps(rows, indent=1))
    if options.page is not None:
        options.page.write_text(page(rows, options.oracles), encoding="utf-8")


Attempt = tuple[
    str, str, Callable[[], nn.Module], Mapping[str, torch.Tensor], Sequence[torch.Tensor]
]


def attempts() -> Iterator[Attempt]:
    """Everything there is to try: name, kind, model, named and other arguments."""
    for case in CASES:
        torch.manual_seed(0)
        make = functools.partial(module_of, case)
        yield case.name, case.kind, make, INPUTS[case.inputs](), ()
    for family in FAMILIES:
        torch.manual_seed(0)
        yield family.name, family.kind, family.model, family.inputs(), ()
    for name, (network, shape) in NETWORKS.items():
        torch.manual_seed(0)
        make = functools.partial(evaluated, network)
        yield name, "network of images", make, {}, (torch.randn(shape),)


def evaluated(network: Callable[[], nn.Module]) -> nn.Module:
    """A network with random weights, for inference."""
    torch.manual_seed(0)
    return network().eval()


def page(rows: Mapping[str, Sequence[object]], oracles: bool) -> str:
    """The table of results as Markdown, in the order in which models are tried."""
    order = [name for name, *_ in attempts() if name in rows]
    counts = [name in NETWORKS for name in order]
    head = HEAD.format(
        right=sum(rows[name][1] == "right" for name in order),
        nearer=sum(rows[name][1] == "nearer" for name in order),
        count=len(order),
        networks=sum(counts),
        families=len(order) - sum(counts),
        types=round(len(MODEL_MAPPING_NAMES), -1),
        how="computed by the oracles of the graph's ops, not by compiled code," if oracles else "compiled",
        tolerance=f"{TOLERANCE:g}",
        nearest=f"{NEARER * TOLERANCE:g}",
        transformers=transformers.__version__,
        torch=torch.__version__.partition("+")[0],
        option=" --oracles" if oracles else "",
    )  # fmt: skip
    tried = "".join(line_of(name, *rows[name]) for name in order)
    left = "".join(f"| {name} | {reason} |\n" for name, reason in LEFT_OUT.items())
    return f"{head}{tried}{LEFT_OUT_HEAD.format(tolerance=f'{TOLERANCE:g}')}{left}"


HEAD = """<!-- Written by tools/torch_models.py --page; run it again instead of changing this. -->

# Models of PyTorch

Of {count} architectures that we chose, exported, imported and {how} {right} give what eager mode gives (`right`),
to {tolerance} relative to the largest element of an output; {nearer} more are up to {nearest} from its f32, and as near to its f64 as that is (`nearer`). The list is no sample of anything: {families} classes of transformers {transformers}, which has
about {types} model types, and {networks} networks of images. What was tried and left out is [below](#tried-and-left-out); of a model in
neither list the numbers say nothing. Those of transformers have small configurations and random weights, networks of images are
written by hand in the style of torchvision's (torch {torch}, f32).
Mixtures of experts compute all experts of a token as one product (`batched_mm`), those `by groups` as transformers does by itself.

    python tools/torch_models.py{option} --page docs/torch-models.md

| model | kind | outcome | relative error |
| --- | --- | --- | --- |
"""
LEFT_OUT_HEAD = """
## Tried and left out

Of transformers, in small configurations as above; the bar was {tolerance} from f32 of eager mode alone, not that of `nearer`.

| model | why |
| --- | --- |
"""


def line_of(name: str, kind: object, word: object, error: object) -> str:
    """One line of the table."""
    said = re.sub(r"[|`<>\\[\\]]", " ", str(word))[:160]
    number = f"{error:.1e}" if word in ("right", "nearer", "off") else ""
    return f"| {name} | {kind} | {said} | {number} |\n"


if __name__ == "__main__":
    sys.exit(main())
