from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.language_models import Form, byte_tokens
from tilewright.api.language.byte_pairs import BytePairs
from tilewright.api.language.tokenizer import Tokenizer
from tilewright.base.errors import InputError, ModelError, UserError
from tilewright.formats.gguf import read_gguf

CORPUS = (
    "The quick brown fox doesn't jump over 12345 lazy dogs; they'll jump, we've seen it.\n"
    "Ünïcödé tèxt, Ωμέγα, 日本語のテキスト, 한국어, עברית, emoji 🙂👍🏽 and numbers ٣٤ ½ Ⅷ.\n\n"
    "def f(x):\n    return {'a': x[0] ** 2, \"b\": [1, 2.5e-3]}  # comment\n\tTabs\r\nlines   spaces\n"
) * 3
STRINGS = [
    "", " ", "  ", "\n", "\n\n \n", "Hello world", " leading", "trailing ", "a  b   c", "I'm YOU'RE they'LL'd",
    "12 345 6789", "x=1;y=22;z=333;w=4444", "naïve café e\u0301", "日本語 한국어", "🙂👩‍👩‍👧", "\u00a0\u2003\u3000x",
    "tab\there\r\nnew", "'s 't ''", "foo_bar(baz)", "\ufeffbom", "…—“”", "٣٤½Ⅷ²", "x" * 300, "ab " * 50, "\x1f\x85\u2028",
]  # fmt: skip


def _strings() -> list[str]:
    source = random.Random(5)
    alphabet = [*CORPUS, " ", " ", "\n", "'", "9", "\u3000"]
    made = ["".join(source.choices(alphabet, k=source.randint(1, 30))) for _ in range(300)]
    return [*STRINGS, *made]


def _of(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.of(read_gguf(Form(layers=1, metadata=metadata).data()))


def _metadata(kind: str, tokens: Sequence[str], **more: Any) -> dict[str, Any]:
    keys = {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return {"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": list(tokens), **keys}


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _pre_tokenizer(rule: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    level = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=rule in ("gpt-2", "smollm")
    )
    if rule == "gpt-2":
        return level
    if rule == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), level]
        )
    expression = LLAMA3 if rule == "llama-bpe" else LLAMA3.replace("{1,3}", "")
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    return pre_tokenizers.Sequence([split, level])


@pytest.mark.slow  # with transformers comes tokenizers
@pytest.mark.parametrize("rule", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_tokens_of_bytes_are_those_of_the_package_tokenizers(rule: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, pre_tokenizers, trainers

    ignores = rule == "llama-bpe"
    oracle = tokenizers.Tokenizer(models.BPE(ignore_merges=ignores))
    oracle.pre_tokenizer = _pre_tokenizer(rule)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    oracle.train_from_iterator([CORPUS], trainer)
    ids = oracle.get_vocab()
    state = json.loads(oracle.to_str())
    merges = [" ".join(pair) for pair in state["model"]["merges"]]
    tokens = sorted(ids, key=lambda text: ids[text])
    mine = _of(_metadata("gpt2", tokens, pre=rule, merges=merges))
    for text in _strings():
        expected = oracle.encode(text, add_special_tokens=False).ids
        assert mine.encode(text, bos=False) == expected, repr(text)
        assert mine.decode(expected) == text


@pytest.mark.slow  # with transformers comes tokenizers
def test_pieces_are_those_of_the_package_tokenizers() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, normalizers

    words = {
        word
        for word in CORPUS.replace(" ", " \u2581").split(" ")
        if word.isalpha() or "\u2581" in word
    }
    parts = {
        word[:n] for word in words if "日" not in word for n in range(2, len(word) + 1)
    }
    letters = sorted(set("".join(words)) - {"日"})
    longer = sorted(parts, key=lambda text: (len(text), text))
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *longer]
    ids = {text: token for token, text in enumerate(tokens)}
    merges = [
        (text[:at], text[at:])
        for text in longer
        for at in range(1, len(text))
        if text[:at] in ids and text[at:] in ids
    ]
    oracle = tokenizers.Tokenizer(
        models.BPE(ids, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    oracle.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    first = len(tokens) - len(longer)
    scores = [0.0] * first + [-float(rank) for rank in range(len(longer))]
    types = [2] + [6] * 256 + [1] * (len(tokens) - 257)
    mine = _of(
        _metadata("llama", tokens, scores=scores, token_type=types, unknown_token_id=0)
    )
    for text in _strings():
        if text:
            expected = oracle.encode(text, add_special_tokens=False).ids
            assert mine.encode(text, bos=False) == expected, repr(text)
            assert mine.decode(expected) == text


def test_special_tokens_stand_in_text_as_themselves_on_request() -> None:
    tokenizer = _of(byte_tokens())
    tokens = tokenizer.encode("<|user|>the<|end|>")
    assert tokens[0] == 1
    assert tokens[-1] == 0
    assert tokenizer.decode(tokens) == "the"
    assert tokenizer.decode(tokens, special=True) == "<|user|>the<|end|>"
    plain = tokenizer.encode("<|user|>", special=False)
    assert 1 not in plain
    assert tokenizer.decode(plain) == "<|user|>"


def test_a_character_appears_with_the_last_of_its_bytes() -> None:
    tokenizer = _of(byte_tokens())
    stream = tokenizer.stream()
    parts = [stream.add(token) for token in tokenizer.encode("é🙂")]
    assert parts == ["", "é", "", "", "", "🙂"]
    stream.add(tokenizer.encode("é")[0])
    assert stream.finish() == "\ufffd"


@settings(max_examples=25, deadline=None)
@given(st.text())
def test_any_text_survives(text: str) -> None:
    tokenizer = TOKENIZER
    clean = text.encode("utf-8", "replace").decode()
    assert tokenizer.decode(tokenizer.encode(clean, special=False)) == clean


TOKENIZER = _of(byte_tokens())


def test_texts_begin_as_the_model_wants() -> None:
    with_bos = _of(
        {
            **byte_tokens(),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.add_bos_token": True,
        }
    )
    assert with_bos.encode("a")[0] == 1
    assert with_bos.encode("a", bos=False)[0] != 1
    assert TOKENIZER.encode("a", bos=True) == TOKENIZER.encode("a")


WRONG = {
    "none": ({}, "has no tokenizer"),
    "kind": (_metadata("t5", ["a"]), "tokenizer 't5' is not supported"),
    "rule": (_metadata("gpt2", ["a"], pre="superbpe"), "a rule 'superbpe'"),
    "types": (
        _metadata("gpt2", ["a", "b"], token_type=[1]),
        "'tokenizer.ggml.token_type' is not a list of 2",
    ),
    "types of no kind": (
        _metadata("gpt2", ["a", "b"], token_type=[math.nan, math.inf]),
        "'tokenizer.ggml.token_type' is not a list of 2 whole numbers",
    ),
    "tokens": (
        _metadata("gpt2", ["a"]) | {"tokenizer.ggml.tokens": 3},
        "is not a list of texts",
    ),
    "flag": (_metadata("gpt2", ["a"], add_bos_token=1), "is not true or false"),
    "token": (_metadata("gpt2", ["a"], eos_token_id="x"), "is not a token"),
}


@pytest.mark.parametrize("case", WRONG)
def test_senseless_vocabularies_are_errors(case: str) -> None:
    metadata, message = WRONG[case]
    with pytest.raises(ModelError, match=message):
        _of(metadata)


@pytest.mark.parametrize(
    ("rule", "begins", "takes_words"),
    [
        ("llama-bpe", True, True),
        ("tekken", True, True),
        ("glm4", False, True),
        ("llama4", False, False),
    ],
)
def test_rules_say_how_texts_begin_and_whether_words_are_taken_whole(
    rule: str, begins: bool, takes_words: bool
) -> None:
    """The vocabulary has a word that no merge makes."""
    keys = {**byte_tokens(), "tokenizer.ggml.pre": rule, "tokenizer.ggml.bos_token_id": 1}
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], "qux"]
    keys["tokenizer.ggml.token_type"] = [*keys["tokenizer.ggml.token_type"], 1]
    tokenizer = _of(keys)
    assert (tokenizer.encode("qux")[0] == 1) == begins
    assert (tokenizer.encode("qux", bos=False) == [272]) == takes_words


def test_tokens_out_of_range_are_errors() -> None:
    with pytest.raises(InputError, match="token 272 is out of range"):
        TOKENIZER.decode([272])


def test_the_end_that_a_file_names_is_one_of_those_there_are() -> None:
    keys = {
        **byte_tokens(),
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 1,
    }
    found = _of(keys).vocabulary
    assert (found.eos, found.ends) == (2, {0, 1, 2})


def test_tokens_that_files_name_but_do_not_have_are_none() -> None:
    tokenizer = _of({**byte_tokens(), "tokenizer.ggml.eos_token_id": 99999})
    assert tokenizer.vocabulary.ends == {0}  # by its text


def _with_more(*texts: tuple[str, int], **more: Any) -> dict[str, Any]:
    """The vocabulary of bytes, and these tokens of these kinds behind its own 272."""
    keys = byte_tokens()
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], *(t for t, _ in texts)]
    kinds = [*keys["tokenizer.ggml.token_type"], *(kind for _, kind in texts)]
    return {**keys, "tokenizer.ggml.token_type": kinds, **more}


def test_tokens_of_users_are_words_whatever_is_taken_for_special() -> None:
    """Vocabularies of GPT-NeoX have runs of spaces so (llama.cpp's cases for MPT)."""
    tokenizer = _of(_with_more(("   ", 4), ("<pad>", 3)))
    assert tokenizer.encode("   <pad>", bos=False) == [272, 273]
    plain = tokenizer.encode("   <pad>", bos=False, special=False)
    assert plain[0] == 272
    assert 273 not in plain
    assert tokenizer.decode(plain) == "   <pad>"


def test_the_unknown_token_stands_in_text_as_itself() -> None:
    tokenizer = _of(_with_more(("<unk>", 2)))
    assert tokenizer.encode("<unk>", bos=False) == [272]
    assert 272 not in tokenizer.encode("<unk>", bos=False, special=False)


@pytest.mark.parametrize(("name", "strips"), [("Phi-3 mini", True), ("Llama", False)])
def test_special_tokens_of_some_models_take_the_spaces_behind_them(
    name: str, strips: bool
) -> None:
    more = (("<|assistant|>", 3), ("<|endoftext|>", 3))
    tokenizer = _of(_with_more(*more, **{"general.name": name}))
    behind = tokenizer.encode("<|assistant|>\n \ta", bos=False)
    assert (behind == [272, *tokenizer.encode("a", bos=False)]) == strips
    kept = tokenizer.encode("<|endoftext|>\na", bos=False)
    assert kept == [273, *tokenizer.encode("\na", bos=False)]
    assert tokenizer.encode("<|assistant|> \n", bos=False)[1:] == (
        [] if strips else tokenizer.encode(" \n", bos=False)
    )


def test_files_that_belong_together_end_where_another_begins() -> None:
    tokens = (("<|file_sep|>", 3), ("<reponame>", 3), ("<EOT>", 4), ("[EOT]", 1))
    assert _of(_with_more(*tokens)).vocabulary.ends >= {272, 273, 274}
    assert 275 not in _of(_with_more(*tokens)).vocabulary.ends  # a word like any other


def test_what_stands_between_parts_of_an_answer_does_not_end_it() -> None:
    own = _of(byte_tokens()).vocabulary
    assert own.ends == {0}  # <|end|>
    harmony = _of(_with_more(("<|return|>", 3), ("<|call|>", 3))).vocabulary
    assert harmony.ends == {272, 273}


def test_pieces_begin_with_the_token_that_their_format_has_for_it() -> None:
    tokens = ["<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a"]
    keys = {"scores": [0.0] * 6, "token_type": [2, 3, 3, 1, 1, 1]}
    assert _of(_metadata("llama", tokens, **keys)).encode("a") == [1, 5]
    assert _of(_metadata("llama", tokens[:1], scores=[0.0])).vocabulary.bos is None


def test_what_is_kept_of_texts_is_bounded() -> None:
    """Words of a megabyte that each request has another of would be kept for ever."""
    tokenizer = _of(byte_tokens())
    for at in range(20):
        assert len(tokenizer.encode(f"the {chr(ord('a') + at)}" + "x" * 1000)) > 1000
    kind = tokenizer._kind
    assert isinstance(kind, BytePairs)
    assert set(kind._cache) == {"the"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("caf\udce9", "the byte 0xe9 behind 3 characters is no text"),
        ("\ud800 a", "U+D800 behind 0 characters is no text"),
    ],
)
def test_half_a_character_is_refused(text: str, told: str) -> None:
    """What undecodable bytes of a command line, and escapes of JSON, become."""
    with pytest.raises(UserError) as caught:
        TOKENIZER.encode(text)
    assert str(caught.value).startswith(told)
