from __future__ import annotations

import concurrent.futures
import itertools
import json
import os
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes.language_models import Reference, speaking_form
from fakes.recurrent_models import RecurrentReference, recurrent_forms, speaking
from fakes.small_models import mlp
from tilewright.api.language import language_model
from tilewright.api.language.language_model import LanguageModel
from tilewright.api.language.sampling import GREEDY, Sampling
from tilewright.base import knobs
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import ArchiveError, InputError, ModelError, UserError
from tilewright.compiler.frontends.gguf import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.formats.gguf import BLOCK_TYPES, GgufFile, GgufTensor

pytestmark = pytest.mark.slow  # a model of two programs is compiled
FORM = speaking_form()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    place.write_bytes(FORM.data())
    return place


@pytest.fixture(scope="module")
def model(path: Path) -> LanguageModel:
    with knobs.override(cache_dir=path.parent / "cache", cache="1"):
        return LanguageModel(path)


@pytest.fixture
def kernels(model: LanguageModel, path: Path, tmp_path: Path, monkeypatch: Any) -> Path:
    """A cache that has the kernels of the model, and no programs."""
    assert model.tokenizer, "it is compiled now"
    folder, no_programs = tmp_path / "cache", shutil.ignore_patterns("models*")
    shutil.copytree(path.parent / "cache", folder, ignore=no_programs)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))
    return folder


def test_greedy_text_is_that_of_the_reference(model: LanguageModel) -> None:
    reference = Reference(FORM)
    tokens = model.tokenizer.encode("and then")
    expected: list[int] = []
    while len(expected) < 12:
        token = int(reference.logits(tokens + expected).argmax())
        if token in model.tokenizer.vocabulary.ends:
            break
        expected.append(token)
    text = model.stream("and then", tokens=12, sampling=GREEDY)
    assert str(text) == model.tokenizer.decode(expected)
    assert text.tokens == expected
    assert text.timing.new_tokens == len(expected)


def test_what_was_read_is_not_read_again_and_changes_nothing(model: LanguageModel) -> None:
    tokens = model.tokenizer.encode("once upon a time there was an end")
    fresh = model.scores(tokens)
    model.scores([5])
    assert model.cache.keep(tokens) == 0
    model.scores(tokens[:9])
    text = model.stream(tokens, tokens=1, sampling=GREEDY)
    list(text)
    assert text.timing.reused_tokens == 9
    assert np.abs(model.scores(tokens) - fresh).max() < 1e-5


def test_a_prompt_may_be_longer_than_one_reading(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = model.tokenizer.encode("a story about the and in one long line")
    model.cache.keep([0])
    expected = model.scores(tokens)
    model.cache.keep([0])
    _read_in_pieces_of(4, model, monkeypatch)
    assert np.abs(model.scores(tokens) - expected).max() < 1e-5


def _read_in_pieces_of(
    count: int, model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_piece", count)


def test_others_have_a_word_between_the_pieces_of_a_prompt(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    _read_in_pieces_of(4, model, monkeypatch)
    tokens = model.tokenizer.encode("a story about the end of it, and more")
    expected = model.generate(tokens, tokens=3, sampling=GREEDY)
    model.cache.keep([0, 0])
    text = model.stream(tokens, tokens=3, sampling=GREEDY)
    parts = iter(text)
    assert next(parts) == ""
    assert model.cache.tokens == tokens[:4]  # whoever stops here has paid for no more
    assert (text.timing.reused_tokens, text.timing.read_tokens) == (0, 4)
    assert str(text.timing).startswith("4 tokens read, ")
    assert "".join(parts) == expected
    assert text.timing.read_tokens == len(tokens)


def test_two_long_prompts_in_turn_come_to_an_end(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    _read_in_pieces_of(2, model, monkeypatch)
    prompts = ("one and the other and all", "another one that is as long as that")
    expected = [model.generate(p, tokens=4, sampling=GREEDY) for p in prompts]
    texts = [iter(model.stream(p, tokens=4, sampling=GREEDY)) for p in prompts]
    found = ["", ""]
    for parts in itertools.islice(itertools.zip_longest(*texts, fillvalue=""), 40):
        found = [text + part for text, part in zip(found, parts, strict=True)]
    assert found == expected


@pytest.mark.parametrize(
    ("weights", "piece"),
    [(0, 512), (1, 512), (135 * 10**6, 128), (600 * 10**6, 32), (10**12, 32)],
)
def test_a_large_model_reads_less_at_once(weights: int, piece: int) -> None:
    tensors = {"w": GgufTensor("w", (weights,), BLOCK_TYPES[0], 0, 0)}
    file = GgufFile(3, {}, tensors, memoryview(b""), "m")
    assert language_model._piece_of(file) == piece


def test_each_token_comes_with_how_likely_it_was(model: LanguageModel) -> None:
    text = model.stream("the end", tokens=6, sampling=GREEDY, likely=3)
    said = str(text)
    assert [each.token for each in text.scores] == text.tokens
    held = model.tokenizer.encode("the end")
    for each in text.scores:
        scores = model.scores(held).astype(np.float64)
        exact = scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()
        assert each.logprob == pytest.approx(exact[each.token], abs=1e-4)
        assert each.likely[0] == (each.token, each.logprob)
        assert len(each.likely) == 3
        held.append(each.token)
    assert text.scores[0].start == 0
    assert all(each.start <= len(said) for each in text.scores)
    assert not model.stream("the end", tokens=2).scores


def test_what_a_stop_cuts_off_has_no_scores(model: LanguageModel) -> None:
    whole = model.stream("in the", tokens=20, sampling=GREEDY, likely=0)
    said = str(whole)
    stop = said[4:6]
    text = model.stream("in the", tokens=20, sampling=GREEDY, stop=(stop,), likely=0)
    cut = str(text)
    assert len(text.scores) == sum(each.start < len(cut) for each in whole.scores)


def test_penalties_change_what_is_said(model: LanguageModel) -> None:
    plain = model.stream("the end", tokens=12, sampling=GREEDY)
    str(plain)
    assert len(set(plain.tokens)) < len(plain.tokens), "the model repeats itself"
    hard = Sampling(temperature=0, presence_penalty=1000)
    text = model.stream("the end", tokens=12, sampling=hard)
    str(text)
    assert len(set(text.tokens)) == len(text.tokens)
    with pytest.raises(InputError, match="out of range"):
        model.stream("the", sampling=Sampling(logit_bias={99999: 1}))


def test_a_text_ends_before_what_stops_it(model: LanguageModel) -> None:
    whole = model.generate("in the", tokens=20, sampling=GREEDY)
    assert len(whole) > 4
    stop = whole[2:4]
    text = model.stream("in the", tokens=20, sampling=GREEDY, stop=(stop,))
    assert str(text) == whole[: whole.index(stop)]
    assert text.timing.reason == "stop"
    other = model.stream("in the", tokens=20, sampling=GREEDY, stop=("\x00never",))
    assert str(other) == whole


def test_a_saved_prompt_is_taken_up_by_another_run(
    model: LanguageModel, path: Path, tmp_path: Path
) -> None:
    tokens = model.tokenizer.encode("the end and the")
    expected = model.scores(tokens)
    place = tmp_path / "prompt.safetensors"
    model.cache.save(place)
    other = LanguageModel(path, context=32, cache=False)
    other.cache.load(place)
    assert other.cache.tokens == tokens
    assert np.abs(other.scores([*tokens]) - expected).max() < 1e-5
    small = LanguageModel(path, context=3, cache=False)
    with pytest.raises(UserError, match="there is room for 3"):
        small.cache.load(place)
    place.write_bytes(place.read_bytes()[:-100])
    with pytest.raises(ArchiveError):
        other.cache.load(place)
    with pytest.raises(UserError, match="no such file"):
        other.cache.load(tmp_path / "none")


def test_prompts_of_other_models_are_refused(model: LanguageModel, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(speaking_form(seed=1).data())
    place = tmp_path / "prompt.safetensors"
    model.scores([3, 4])
    model.cache.save(place)
    with pytest.raises(UserError, match="for another model"):
        LanguageModel(path, cache=False).cache.load(place)


@pytest.mark.slow
def test_prompts_of_another_precision_are_refused(
    model: LanguageModel, path: Path, tmp_path: Path
) -> None:
    """Their keys and values are others, and what is said must not depend on which were saved."""
    place = tmp_path / "prompt.safetensors"
    model.scores([3, 4])
    model.cache.save(place)
    rounded = LanguageModel(path, precision="i8", cache=False)
    with pytest.raises(UserError, match="precision of this one"):
        rounded.cache.load(place)
    rounded.scores([3, 4])
    rounded.cache.save(place)
    rounded.cache.load(place)
    with pytest.raises(UserError, match="precision of this one"):
        model.cache.load(place)


def test_texts_may_be_made_side_by_side(model: LanguageModel) -> None:
    prompts = ("the end and", "once upon a time", "the end of it")
    expected = [model.generate(p, tokens=6, sampling=GREEDY) for p in prompts]
    texts = [model.stream(p, tokens=6, sampling=GREEDY) for p in prompts]
    found = ["", "", ""]
    for parts in itertools.zip_longest(*texts, fillvalue=""):
        found = [text + part for text, part in zip(found, parts, strict=True)]
    assert found == expected
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        made = pool.map(lambda p: model.generate(p, tokens=6, sampling=GREEDY), prompts)
        assert list(made) == expected


def test_a_conversation_is_what_the_template_says(model: LanguageModel) -> None:
    pytest.importorskip("jinja2")
    text = model.chat([{"role": "user", "content": "hi"}], tokens=3, sampling=GREEDY)
    str(text)
    prompt = model.tokenizer.encode("<|user|>hi<|end|><|assistant|>")
    assert model.cache.tokens[: len(prompt)] == prompt


def test_what_there_is_no_room_for_is_an_error(model: LanguageModel) -> None:
    with pytest.raises(UserError, match="has 64 tokens, there is room for 63"):
        model.stream([5] * 64)
    text = model.stream([5] * 62, tokens=100, sampling=GREEDY)
    str(text)
    assert text.timing.new_tokens <= 2
    with pytest.raises(UserError, match="the prompt is empty"):
        model.stream("")
    with pytest.raises(InputError, match="got 0 tokens"):
        model.scores([])
    with pytest.raises(InputError, match="out of range"):
        model.scores([9999])
    # and it goes on
    assert model.generate("the", tokens=2, sampling=GREEDY) is not None


def test_compiled_programs_are_found_again(
    path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = LanguageModel(path).generate("the", tokens=5, sampling=GREEDY)
    (folder,) = [f for store in kernels.glob("models*") for f in store.iterdir()]
    # Both programs read the same weights: packed once, little is said twice.
    assert (folder / "weights.irpa").stat().st_size < 2 * path.stat().st_size
    assert sorted(f.name for f in folder.iterdir()) == [
        "next.vmfb",
        "read.vmfb",
        "stamps.txt",
        "weights.irpa",
    ]
    monkeypatch.setattr(
        "tilewright.api.model.compile",
        lambda *a, **k: pytest.fail("compiled again"),
    )
    assert tw.generate(path, "the", tokens=5, sampling=GREEDY) == first


def test_a_disk_that_takes_no_programs_does_not_keep_a_model_from_speaking(
    model: LanguageModel, path: Path, kernels: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.warns(TilewrightWarning, match="the cache cannot be written") as said:
            unkept = LanguageModel(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert any("/models" in str(each.message) for each in said)
    options: Any = {"tokens": 5, "sampling": GREEDY}
    assert unkept.generate("the", **options) == model.generate("the", **options)
    assert not [f for store in kernels.glob("models*") for f in store.iterdir()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", ["file", "link to nowhere", "pipe", "cut", "foreign"])
def test_what_is_no_program_in_the_cache_is_replaced(
    path: Path, kernels: Path, damage: str
) -> None:
    first = LanguageModel(path).generate("the", tokens=3, sampling=GREEDY)
    (folder,) = [f for store in kernels.glob("models*") for f in store.iterdir()]
    if damage == "cut":
        (folder / "next.vmfb").write_bytes((folder / "next.vmfb").read_bytes()[:-100])
    elif damage == "foreign":
        for name in ("read.vmfb", "next.vmfb"):
            tw.compile(mlp()).save(folder / name)
    else:
        shutil.rmtree(folder)
    if damage == "file":
        folder.write_text("in the way")
    elif damage == "pipe":
        os.mkfifo(folder)
    elif damage == "link to nowhere":
        folder.symlink_to("nowhere")
    left = folder.with_name(".new-killed")
    left.mkdir()
    (left / "weights.irpa").write_bytes(b"")
    for place in (left / "weights.irpa", left):
        os.utime(place, (0, 0))
    fresh = folder.with_name(".new-running")
    fresh.mkdir()
    assert LanguageModel(path).generate("the", tokens=3, sampling=GREEDY) == first
    assert (folder / "next.vmfb").is_file()
    assert not left.exists()
    assert fresh.exists()


def test_a_token_without_numbers_is_an_error_of_the_model(tmp_path: Path) -> None:
    place = tmp_path / "more.gguf"
    form = speaking_form()
    tokens = form.metadata["tokenizer.ggml.tokens"]
    more = {
        "tokenizer.ggml.tokens": [*tokens, "the"],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [4],
    }
    place.write_bytes(replace(form, metadata={**form.metadata, **more}).data())
    with pytest.raises(ModelError, match=r"token_embd.weight' has 272 rows for 273 tokens"):
        LanguageModel(place, cache=False)


def test_rows_without_a_token_are_never_drawn(tmp_path: Path) -> None:
    place = tmp_path / "fewer.gguf"
    form = speaking_form()
    fewer = {
        "tokenizer.ggml.tokens": form.metadata["tokenizer.ggml.tokens"][:140],
        "tokenizer.ggml.token_type": [3] * 3 + [1] * 137,
        "tokenizer.ggml.merges": ["t h"],
    }
    place.write_bytes(replace(form, metadata={**form.metadata, **fewer}).data())
    model = LanguageModel(place, cache=False)
    hot = Sampling(temperature=100, top_k=0, min_p=0, top_p=1, seed=0)
    text = model.stream([5, 6], tokens=50, sampling=hot, likely=20)
    str(text)
    assert max(text.tokens) < 140
    assert max(t for each in text.scores for t, _ in each.likely) < 140


@pytest.mark.slow
def test_positions_with_rows_of_numbers_are_all_the_room_there_is(tmp_path: Path) -> None:
    path = tmp_path / "gpt2.gguf"
    rows = np.random.default_rng(0).standard_normal((32, 64)) * 0.1
    form = speaking_form(
        architecture="gpt2", layers=1, shared=4, fused=True, gated=False,
        norm_biases=True, dense_biases=True, more={"position_embd.weight": rows},
    )  # fmt: skip
    path.write_bytes(form.data())
    with pytest.raises(UserError, match="context is 33, the model has 32 positions"):
        LanguageModel(path, context=33)
    model = LanguageModel(path, cache=False)
    assert model.context == 32
    text = model.stream("the and", tokens=100, sampling=GREEDY)
    assert "".join(text)
    assert text.timing.reason == "length"
    assert text.timing.prompt_tokens + text.timing.new_tokens == 32


@pytest.mark.slow
def test_what_was_read_with_near_divisors_is_not_taken_for_far_ones(tmp_path: Path) -> None:
    path, saved = tmp_path / "phi3.gguf", tmp_path / "prompt"
    divisors = {"short": np.linspace(1, 1.5, 8), "long": np.linspace(2, 40, 8)}
    form = speaking_form(
        architecture="phi3", layers=1, fused=True, tied=False,
        more={f"rope_factors_{kind}.weight": array for kind, array in divisors.items()},
    )  # fmt: skip
    form = replace(
        form, metadata={**form.metadata, "phi3.rope.scaling.original_context_length": 16}
    )
    path.write_bytes(form.data())
    near, same, far = (LanguageModel(path, context=room) for room in (12, 16, 17))
    near.generate("the and", tokens=1)
    near.cache.save(saved)
    same.cache.load(saved)
    assert same.cache.tokens
    with pytest.raises(UserError, match="or for another context or precision of this one"):
        far.cache.load(saved)


RANDOM = np.random.default_rng(3)
CONVOLVED = {
    "layers": 2, "without": ("attn_q", "attn_k", "attn_v", "attn_output", "output_norm"),
    "more": {
        "token_embd_norm.weight": np.linspace(0.5, 1.5, 64),
        **{f"blk.{layer}.{name}.weight": RANDOM.standard_normal(shape) * 0.2
           for layer, names in enumerate((
               {"shortconv.in_proj": (192, 64), "shortconv.conv": (64, 3), "shortconv.out_proj": (64, 64)},
               {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64)},
           )) for name, shape in names.items()},
    },
    "metadata": {"lfm2.attention.head_count_kv": [0, 2], "lfm2.shortconv.l_cache": 3},
}  # fmt: skip
LATENT = {
    "layers": 1, "without": ("attn_q", "attn_k", "attn_v"),
    "extra": {"attn_q.weight": (96, 64), "attn_kv_a_mqa.weight": (28, 64), "attn_kv_a_norm.weight": (20,),
              "attn_k_b.weight": (4, 20, 16), "attn_v_b.weight": (4, 12, 20), "attn_output.weight": (64, 48)},
    "metadata": {
        f"deepseek2.{key}": value for key, value in {
            "attention.head_count_kv": 1, "attention.kv_lora_rank": 20, "attention.key_length_mla": 24,
            "attention.value_length_mla": 12, "rope.dimension_count": 8}.items()},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "more", "caches"),
    [
        ("lfm2", CONVOLVED, {"row_0": (1, 64), "key_1": (2, 16), "value_1": (2, 16)}),
        ("deepseek2", LATENT, {"key_0": (1, 28)}),
    ],
)
def test_what_is_kept_instead_of_keys_and_values_is_kept_by_place(
    architecture: str, more: dict[str, Any], caches: dict[str, Any], tmp_path: Path
) -> None:
    """Rows of convolutions, and those that keys and values are made of: a text goes on from any place of another."""
    form = speaking_form(kinds={})
    form = replace(
        form,
        architecture=architecture,
        **{**more, "metadata": {**form.metadata, **more["metadata"]}},
    )
    path = tmp_path / "tiny.gguf"
    path.write_bytes(form.data())
    model = LanguageModel(path, context=32, cache=False)
    held = model.cache.arrays
    assert {n: (a.shape[1], a.shape[3]) for n, a in held.items()} == caches
    tokens = [5, 9, 9, 80, 3, 41, 7, 60, 2, 11]
    for prompt in (
        [5, 9, 44, 1, 1, 1, 8],
        tokens,
        tokens[:4],
        tokens[:5],
        tokens[:6],
        tokens,
    ):
        graph = load(path).graph
        given = {
            "tokens": np.array([prompt]),
            "position": np.zeros(1, np.int64),
            "span": np.zeros(len(prompt), np.bool_),
            **{name: np.zeros_like(array) for name, array in held.items()},
        }
        expected = evaluate(graph, given)[0][0]
        found = model.scores(prompt)
        assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max(), prompt


@pytest.fixture(scope="module", params=["granitehybrid of experts", "mamba"])
def recurrent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LanguageModel, RecurrentReference]:
    form = speaking(recurrent_forms()[request.param])
    place = tmp_path_factory.mktemp("recurrent") / "tiny.gguf"
    place.write_bytes(form.data())
    return LanguageModel(place, cache=False), RecurrentReference(form)


Recurrent = tuple[LanguageModel, RecurrentReference]


def _check_scores(recurrent: Recurrent, prompt: list[int]) -> None:
    model, reference = recurrent
    expected = reference.logits(prompt)
    assert np.abs(model.scores(prompt) - expected).max() < 3e-5 * np.abs(expected).max()


def test_states_are_those_of_the_text_wherever_it_goes_on_from(
    recurrent: Recurrent, monkeypatch: pytest.MonkeyPatch
) -> None:
    _read_in_pieces_of(6, recurrent[0], monkeypatch)
    shared = [5, 9, 9, 80, 3, 41, 7, 60, 2, 11]
    for prompt in (
        [*shared, 4, 4],
        [*shared, 4, 4, 7],
        [*shared, 4, 4],
        [*shared, 8, 1, 2],
        shared[:3],
        [*shared, 4, 4, 9, 9, 9],
        [7, *shared],
        [7],
    ):
        _check_scores(recurrent, prompt)


def test_greedy_text_of_states_is_that_of_the_reference(recurrent: Recurrent) -> None:
    model, reference = recurrent
    tokens = model.tokenizer.encode("and then")
    expected: list[int] = []
    while len(expected) < 12:
        token = int(reference.logits(tokens + expected).argmax())
        if token in model.tokenizer.vocabulary.ends:
            break
        expected.append(token)
    text = model.stream("and then", tokens=12, sampling=GREEDY)
    said = str(text)
    assert said == model.tokenizer.decode(expected)
    again = model.stream("and then", tokens=12, sampling=GREEDY)
    assert str(again) == said
    assert again.timing.reused_tokens == len(tokens) - 1
    assert again.timing.read_tokens == 1


def test_texts_of_states_may_be_made_side_by_side(recurrent: Recurrent) -> None:
    model, _ = recurrent
    prompts = ("the end and", "once upon a time", "the end of it")
    expected = [model.generate(p, tokens=6, sampling=GREEDY) for p in prompts]
    texts = [model.stream(p, tokens=6, sampling=GREEDY) for p in prompts]
    found = ["", "", ""]
    for parts in itertools.zip_longest(*texts, fillvalue=""):
        found = [text + part for text, part in zip(found, parts, strict=True)]
    assert found == expected


def test_a_text_of_states_that_was_interrupted_is_gone_on_with(
    recurrent: Recurrent, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = recurrent
    prompt = model.tokenizer.encode("a story about the end")
    _check_scores(recurrent, prompt[:4])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model.cache, "advance", interrupt)  # the step itself has run
        with pytest.raises(KeyboardInterrupt):
            model.scores(prompt)
    _check_scores(recurrent, prompt)


def test_a_saved_prompt_of_states_is_taken_up(recurrent: Recurrent, tmp_path: Path) -> None:
    model, _ = recurrent
    prompt, place = [9, 8, 7, 6, 5, 44, 3], tmp_path / "prompt"
    str(model.stream(prompt, tokens=4, sampling=GREEDY))
    model.cache.save(place)
    _check_scores(recurrent, [1, 2, 3])
    model.cache.load(place)
    text = model.stream(prompt, tokens=4, sampling=GREEDY)
    said = str(text)
    assert text.timing.reused_tokens == 6
    model.scores([1])
    assert model.generate(prompt, tokens=4, sampling=GREEDY) == said
    _check_scores(recurrent, prompt)


def test_a_text_has_the_form_of_a_schema(model: LanguageModel) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
        "required": ["a", "b"],
    }  # fmt: skip
    for seed in range(3):
        text = model.stream(
            "the end", tokens=60, sampling=Sampling(seed=seed, temperature=3), schema=schema
        )
        found = json.loads(str(text))
        assert found["a"] in ("x", "y")
        assert all(type(each) is int for each in found["b"])
        assert text.timing.reason == "stop"
    text = model.stream("the end", tokens=3, sampling=GREEDY, schema=schema)
    assert str(text).lstrip().startswith("{")
    assert text.timing.reason == "length"
    with pytest.raises(UserError, match="'pattern' at #"):
        model.stream("the end", schema={"pattern": "a"})
