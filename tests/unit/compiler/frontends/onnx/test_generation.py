"""Text that a decoder writes, beside onnxruntime's CPU kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.decoders import END, WORDS, decoder, generating
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

NEVER = 99
PROMPT = [[3, 4, 5], [7, 2, 9]]


def whole(*numbers: object) -> np.ndarray:
    return np.array(numbers, np.int32)


def theirs(model: onnx.ModelProto, prompt: np.ndarray) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    data = model.SerializeToString()
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x0": prompt})


def greedy(
    *operands: np.ndarray | None,
    seed: int = 0,
    prompt: object = PROMPT,
    most: int = 12,
    **options: object,
) -> np.ndarray:
    """The texts of both, which agree."""
    ids = np.array(prompt, np.int32)
    options = {
        "decoder": decoder(seed),
        "eos_token_id": NEVER,
        "pad_token_id": 0,
        **options,
    }
    model = generating("GreedySearch", [ids, whole(most), *operands], **options)
    (found,) = evaluate(load(model), [ids])
    (expected,) = theirs(model, ids)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tolist() == expected.tolist()
    return found


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(3))
def test_the_most_likely_token_follows(seed: int) -> None:
    greedy(seed=seed)


@pytest.mark.parametrize(
    ("prompt", "most"), [([[3]], 2), ([[3]], 9), ([[1, 2, 3, 4, 5, 6, 7]], 8)]
)
def test_prompts_are_of_any_length(prompt: object, most: int) -> None:
    greedy(prompt=prompt, most=most)


def test_a_text_that_ended_is_padded_while_others_go_on() -> None:
    ended = greedy(decoder=decoder(0, 2.0), eos_token_id=8, pad_token_id=-1)
    assert min((ended == -1).sum(1).tolist()) == 0
    assert (ended == -1).any()


@pytest.mark.slow
def test_padding_in_front_is_not_read_and_has_no_place() -> None:
    found = greedy(prompt=[[0, 0, 4, 5], [7, 2, 9, 3]])
    alone = greedy(prompt=[[4, 5]], most=10)
    assert found[0, 2:].tolist() == alone[0].tolist()


def test_a_mask_of_the_caller_says_what_is_read() -> None:
    greedy(
        None, None, None, None, whole([1, 1, 1], [0, 1, 1]), prompt=[[0, 4, 5], [7, 2, 9]]
    )


def test_the_first_step_may_have_a_graph_of_its_own() -> None:
    assert greedy(init_decoder=decoder(1)).tolist() != greedy().tolist()


@pytest.mark.slow
def test_tokens_that_stand_there_are_less_likely() -> None:
    found = greedy(None, np.array([5.0], np.float32))
    assert found.tolist() != greedy().tolist()
    greedy(None, np.array([0.5], np.float32))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_runs_of_tokens_do_not_come_again(size: int) -> None:
    greedy(no_repeat_ngram_size=size)
    greedy(no_repeat_ngram_size=size, prompt=[[6]], most=8)


def test_words_may_be_forbidden_at_first_or_always() -> None:
    allowed = np.ones(WORDS, np.int32)
    allowed[[4, 9]] = 0
    first = np.ones((2, WORDS), np.int32)
    first[0, :5] = 0
    found = greedy(None, None, allowed, first)
    assert not np.isin(found[:, 3:], [4, 9]).any()
    assert found[0, 3] >= 5


@pytest.mark.slow
def test_columns_behind_the_vocabulary_are_never_chosen() -> None:
    """As where the decoder had no such columns."""
    found = greedy(decoder=decoder(0, words=7))
    ids, words = whole(*PROMPT), np.ones(7, np.int32)
    options = {"decoder": decoder(0), "eos_token_id": NEVER, "pad_token_id": 0}
    # Two tokens of the prompt are behind it, which nothing is done to.
    nothing = np.array([1.0], np.float32)
    for operands in ([], [None, nothing, words]):
        model = generating(
            "GreedySearch", [ids, whole(12), *operands], vocab_size=7, **options
        )
        assert evaluate(load(model), [ids])[0].tolist() == found.tolist()
    assert found.tolist() != greedy().tolist()
    assert greedy(vocab_size=WORDS).tolist() == greedy(vocab_size=-1).tolist()
    model = generating("GreedySearch", [ids, whole(12)], vocab_size=12, **options)
    with pytest.raises(ModelError, match="'vocab_size' is 12, the decoder has 11 scores"):
        load(model)


def test_a_text_has_a_least_length() -> None:
    options = {"decoder": decoder(0, 50.0), "eos_token_id": END, "pad_token_id": -1}
    ids = whole(*PROMPT)
    model = generating("GreedySearch", [ids, whole(12), whole(7)], **options)
    (found,) = evaluate(load(model), [ids])
    assert (found[:, :7] >= 0).all()
    # All texts ended: onnxruntime leaves the rest as it was in memory.
    assert (found[:, 7:] == -1).all()
    assert found[:, :8].tolist() == theirs(model, ids)[0][:, :8].tolist()


@pytest.mark.slow
def test_a_compiled_search_takes_prompts_of_any_size() -> None:
    options = {"decoder": decoder(0), "eos_token_id": NEVER, "pad_token_id": 0}
    model = generating("GreedySearch", [whole([1]), whole(9)], sizes=("b", "s"), **options)
    compiled = tw.compile(model)
    for prompt in (whole([3, 4]), whole(*PROMPT), whole([1, 2, 3, 4, 5, 6, 7, 8])):
        (found,) = compiled.run({"x0": prompt}).values()
        assert found.tolist() == theirs(model, prompt)[0].tolist()
    with pytest.raises(InputError, match="expected at least 1"):
        compiled.run({"x0": np.ones((1, 9), np.int32)})


# --- drawn tokens


def drawn(count: int = 2000, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """How often each word follows one prompt, here and in onnxruntime."""
    ids = np.tile(np.array([[7, 2, 9]], np.int32), (count, 1))
    options = {
        "decoder": decoder(0),
        "eos_token_id": NEVER,
        "pad_token_id": 0,
        "temperature": 3.0,
        **options,
    }
    operands = [ids, whole(4), None, None, None, None, None, None, whole(5)]
    model = generating("Sampling", operands, **options)
    texts = evaluate(load(model), [ids])[0], theirs(model, ids)[0]
    ours, other = (np.bincount(each[:, 3], minlength=WORDS) / count for each in texts)
    return ours, other


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "options",
    [
        {"top_p": 1.0}, {"top_p": 0.9}, {"top_p": 0.5}, {}, {"top_p": 0.01, "min_tokens_to_keep": 3},
        {"top_p": 0.6, "filter_value": -1.0},
    ],
)  # fmt: skip
def test_tokens_are_drawn_as_often_as_they_are_likely(options: dict[str, object]) -> None:
    ours, other = drawn(**options)
    # Five standard deviations of the difference of two shares.
    assert np.abs(ours - other).max() < 5 * np.sqrt(0.5 / 2000)
    if "filter_value" not in options and options.get("top_p") != 1.0:
        assert ((ours > 0) == (other > 0)).all()


@pytest.mark.slow
def test_a_draw_from_one_token_is_the_most_likely_one() -> None:
    ids = whole(*PROMPT)
    options = {"decoder": decoder(0), "eos_token_id": NEVER, "pad_token_id": 0}
    (found,) = evaluate(
        load(generating("Sampling", [ids, whole(12)], top_p=1e-6, **options)), [ids]
    )
    assert found.tolist() == greedy().tolist()


@pytest.mark.slow
def test_steps_and_seeds_draw_other_numbers() -> None:
    ids = np.tile(np.array([[7]], np.int32), (64, 1))
    options = {
        "eos_token_id": NEVER,
        "pad_token_id": 0,
        "top_p": 1.0,
        "temperature": 1000.0,
    }
    texts: list[np.ndarray] = []
    for seed in (1, 1, 2):
        operands = [ids, whole(6), None, None, None, None, None, None, whole(seed)]
        model = load(generating("Sampling", operands, decoder=decoder(0), **options))
        texts += evaluate(model, [ids])
    assert (texts[0] == texts[1]).all()
    assert not (texts[0] == texts[2]).all()
    columns = {tuple(column) for column in texts[0][:, 1:].T.tolist()}
    assert len(columns) == 5


def test_draws_that_are_not_understood_are_errors() -> None:
    options = {"decoder": decoder(), "eos_token_id": 1, "pad_token_id": 0, "top_p": 0.5}
    operands = [whole([1, 2]), whole(9)]
    for more, message in (
        ({"custom": 1}, "'custom'"),
        ({"temperature": 0.0}, "'temperature' is 0"),
    ):
        with pytest.raises(ModelError, match=message):
            load(generating("Sampling", operands, **options, **more))


def test_a_penalty_of_tokens_that_are_present_is_refused() -> None:
    ids, mask = whole(*PROMPT), np.ones((2, WORDS), np.int32)
    options = {"decoder": decoder(), "eos_token_id": NEVER, "pad_token_id": 0, "top_p": 0.5}
    operands = [ids, whole(6), None, None, None, None, None, mask]
    load(generating("Sampling", operands, **options))
    load(generating("Sampling", operands[:2], presence_penalty=1.5, **options))
    with pytest.raises(ModelError, match=r"operand 8 \('presence_mask'\)"):
        load(generating("Sampling", operands, presence_penalty=1.5, **options))


def test_what_is_no_decoder_is_an_error() -> None:
    options = {"eos_token_id": 1, "pad_token_id": 0}
    operands = [whole([1, 2]), whole(9)]
    with pytest.raises(ModelError, match="an encoder and a decoder is not supported"):
        load(
            generating("GreedySearch", operands, decoder=decoder(), model_type=1, **options)
        )
    other = decoder()
    other.input[1].name = "places"
    with pytest.raises(ModelError, match="the inputs input_ids places"):
        load(generating("GreedySearch", operands, decoder=other, **options))
    with pytest.raises(ModelError, match="max_length is 2, the prompt has 2 tokens"):
        load(
            generating(
                "GreedySearch", [operands[0], whole(2)], decoder=decoder(), **options
            )
        )
