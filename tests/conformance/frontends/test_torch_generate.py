"""Decoders of transformers that write text with a cache: the tokens of eager `generate()`.

A static cache is buffers that a call writes, and so state of the compiled model. A dynamic one goes in and comes
out, longer by what was read: its length is a named size.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tilewright as tw
from fakes.dynamo_backend import entry

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
executorch = pytest.importorskip("transformers.integrations.executorch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own
]
COUNT, ROOM = 10, 24
PROMPT = [5, 17, 3, 42]


def decoder(family: str) -> Any:
    """A small one of random weights, large enough that tokens differ."""
    torch.manual_seed(3)
    if family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64,
            bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def eager(model: Any) -> list[int]:
    with torch.no_grad():
        found = model.generate(
            torch.tensor([PROMPT]), max_new_tokens=COUNT, do_sample=False, pad_token_id=0,
            eos_token_id=None,
        )  # fmt: skip
    return found[0].tolist()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_static_cache_is_state(family: str) -> None:
    model = decoder(family)
    wanted = eager(model)
    model.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=ROOM,
        cache_config={"batch_size": 1, "max_cache_len": ROOM},
    )  # fmt: skip
    module = executorch.TorchExportableModuleWithStaticCache(
        model, batch_size=1, max_cache_len=ROOM
    ).eval()

    def given(token: int, place: int) -> dict[str, Any]:
        return {
            "input_ids": torch.tensor([[token]]),
            "cache_position": torch.tensor([place]),
        }

    compiled = tw.compile(module, kwargs=given(0, 0), opt_level=2)
    tokens = list(PROMPT)
    for place in range(len(PROMPT) + COUNT - 1):
        scores = compiled(**given(tokens[place], place))
        if place >= len(PROMPT) - 1:
            tokens.append(int(scores[0, -1].argmax()))
    assert tokens == wanted
    assert len(set(tokens[len(PROMPT) :])) > 2


class Step(torch.nn.Module):
    """What is new, and what was read before as keys and values of each layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Any, past: list[Any]) -> tuple[Any, list[Any]]:
        cache = transformers.DynamicCache()
        for layer, (keys, values) in enumerate(zip(past[::2], past[1::2], strict=True)):
            cache.update(keys, values, layer)
        found = self.model(tokens, past_key_values=cache, use_cache=True)
        held = found.past_key_values.layers
        return found.logits[:, -1], [part for x in held for part in (x.keys, x.values)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_dynamic_cache_grows_by_what_is_read(family: str) -> None:
    model = decoder(family)
    wanted = eager(model)
    module = Step(model).eval()
    with torch.no_grad():
        scores, past = module(torch.tensor([PROMPT]), [])
    length = torch.export.Dim("past", min=1, max=64)
    compiled = tw.compile(
        module,
        args=(torch.tensor([[0]]), past),
        dynamic_shapes=(None, [{2: length}] * len(past)),
        opt_level=2,
    )
    tokens = [*PROMPT, int(scores.argmax())]
    for _ in range(COUNT - 1):
        scores, past = compiled(torch.tensor([[tokens[-1]]]), past)
        tokens.append(int(scores.argmax()))
    assert tokens == wanted
    assert past[0].shape[2] == len(tokens) - 1
    assert len(set(tokens[len(PROMPT) :])) > 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_returns_its_cache_by_default(family: str) -> None:
    """`use_cache` is on in every configuration: the result is the model's own, with a cache that eager code can go on with."""
    model = decoder(family)
    tokens = torch.tensor([PROMPT])
    with torch.no_grad():
        wanted = model(tokens)
    found = tw.compile(model, args=(tokens,))(tokens)
    assert type(found) is type(wanted)
    torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)
    for ours, eagers in zip(
        found.past_key_values.layers, wanted.past_key_values.layers, strict=True
    ):
        torch.testing.assert_close(ours.keys, eagers.keys, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours.values, eagers.values, rtol=1e-4, atol=1e-5)
    following = found.logits[:, -1:].argmax(-1)
    with torch.no_grad():
        ours = model(following, past_key_values=found.past_key_values).logits
        eagers = model(following, past_key_values=wanted.past_key_values).logits
    torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("family", "cache"), [("gpt2", None), ("llama", "static")])
def test_transformers_own_generate_runs_on_a_compiled_forward(
    family: str, cache: str | None
) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = decoder(family)
    wanted = eager(model)
    options = {"cache_implementation": cache} if cache else {}
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        model.forward = torch.compile(model.forward, backend=entry())
        found = model.generate(
            torch.tensor([PROMPT]), max_new_tokens=COUNT, do_sample=False, pad_token_id=0,
            eos_token_id=None, **options,
        )  # fmt: skip
    assert found[0].tolist() == wanted
    assert not [w for w in caught if "eager mode" in str(w.message)]
    # The prompt, a token with sizes that are known, and one for every length.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 8
