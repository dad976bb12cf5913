"""By which rule a vocabulary wants text split, by the name that its file has for the rule.

A rule is a few regular expressions over Unicode's categories, each of which splits what those before it left.  They are
written with names for classes of characters (`CLASSES`), for the standard library has none for categories.

    {L} letters  {N} numbers  {M} marks  {P} punctuation  {Y} symbols  {S} spaces  {X} no spaces
    {O} none of spaces, letters, numbers  {Q} none of line ends, letters, numbers
    {A} letters and marks  {R} none of spaces, letters, marks, numbers  {T} none of line ends, letters, punctuation, symbols
    {U} letters that are no small ones, and marks  {W} letters that are no capitals, and marks
    {Z} punctuation and symbols  {C} letters that are capitals, small ones or titles

Source: the expressions as the models' tokenizers publish them; which name means which rule, which vocabularies take words
that they have whole, and which texts begin with a token of their own: llama.cpp, `llama-vocab.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "L": ("", "L*"), "N": ("", "N*"), "M": ("", "M*"), "P": ("", "P*"), "Y": ("", "S*"),
    "S": ("", " "), "X": ("^", " "), "O": ("^", " L*N*"), "Q": ("^", "\r\nL*N*"), "A": ("", "L*M*"),
    "R": ("^", " L*M*N*"), "T": ("^", "\r\nL*P*S*"), "U": ("", "LuLtLmLoM*"),
    "W": ("", "LlLmLoM*"), "Z": ("", "P*S*"), "C": ("", "LuLlLt"),
}  # fmt: skip
"""What each name stands for: all but these or just these, spaces, line ends, and categories by two letters."""

_ENDINGS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES: Final = r"{S}*[\r\n]+|{S}+(?!{X})|{S}+"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?{L}+| ?{N}+| ?{O}+|{S}+(?!{X})|{S}+"
_LLAMA3: Final = _ENDINGS + r"|{Q}?{L}+|{N}{{1,3}}| ?{O}+[\r\n]*|" + _LINES
_QWEN2: Final = _LLAMA3.replace("{{1,3}}", "")
_ASCII_PUNCTUATION: Final = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{{|}}~]"
_CHINESE_OR_KANA: Final = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_WORDS_AFTER_ASCII: Final = (
    _ASCII_PUNCTUATION + r"[A-Za-z]+|{T}?{A}+| ?{Z}+[\r\n]*|" + _LINES
)
_CASED: Final = r"{Q}?{U}*{W}+|{Q}?{U}+{W}*|{N}| ?{O}+[\r\n/]*|" + _LINES
_GPT4O: Final = (
    rf"{{Q}}?{{U}}*{{W}}+{_ENDINGS}?|{{Q}}?{{U}}+{{W}}*{_ENDINGS}?|"
    r"{N}{{1,3}}| ?{O}+[\r\n/]*|" + _LINES
)
_CASED_LATER: Final = (
    "[\u0560-\u0588\u10c7\u10cd\u10d0-\u10fa\u10fd-\u10ff\u1c80-\u1c88\u2d00-\u2d25\u2d27\u2d2d\ua790-\ua7ca"
    "\ua7d0-\ua7d9\ua7f5-\ua7fa\uab30-\uab5a\uab60-\uab68\U00010570-\U000105bc\U00016e40-\U00016e7f"
    "\U0001d400-\U0001d7cb\U0001df00-\U0001df1e]"
)
"""Letters with case that the list of a rule, which names every one by itself, does not have."""
_CASED_WORD: Final = rf"{{S}}?(?:(?!{_CASED_LATER}){{C}})+"
_STOPS: Final = " ?[^({spaces}|.,!?…。，、।۔،)]+"


@final
class TextSplit(NamedTuple):
    """How the text of a vocabulary is split.

    Attributes:
        expressions: each splits what those before it left.
        takes_words: a part that the vocabulary has is a token as it is, before any merge.
        begins: texts begin with a token of their own where a file does not say otherwise.
    """

    expressions: tuple[str, ...]
    takes_words: bool = False
    begins: bool = False


_PLAIN: Final = TextSplit((_GPT2,))
_DIGITS: Final = TextSplit(("{N}", _GPT2))
_THREES: Final = TextSplit((_LLAMA3,))
_ALONE: Final = TextSplit((_QWEN2,))
_DEEPSEEK: Final = TextSplit(("{N}{{1,3}}", _CHINESE_OR_KANA, _WORDS_AFTER_ASCII))

_NAMES: Final[Mapping[str, TextSplit]] = {
    " default": TextSplit(
        (r"[{p}$+<=>^~|]+", _GPT2, "{N}+", "[0-9][0-9][0-9]"),
    ),
    "gpt-2 phi-2 mpt olmo jais jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert "
    "exaone4 trillion granite-docling": _PLAIN,
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": _DIGITS,
    "dbrx smaug-bpe chatglm-bpe": _THREES,
    "llama-bpe llama-v3 llama3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": TextSplit((_LLAMA3,), True, True),
    "glm4 glm5": TextSplit((_LLAMA3,), True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": _ALONE,
    "qwen35": TextSplit((_QWEN2.replace("{L}", "{A}").replace("{O}", "{R}"),)),
    "ufakzeka": TextSplit((_QWEN2.removeprefix(f"{_ENDINGS}|"),)),
    "laguna": TextSplit(("[^\n]+|\n+", _QWEN2)),
    "minicpm5": TextSplit(("{N}{{1,3}}", _LLAMA3.replace("{{1,3}}", "+")), True),
    "seed-coder": TextSplit((_QWEN2.replace(r" ?{O}+[\r\n]*", r" ?[^{spaces}{l}{n}]+"),)),
    "bailingmoe bailingmoe2 llada-moe": TextSplit(
        (r"'(?i:[sdmt]|ll|ve|re)|{Q}?{L}+|{N}| ?{O}+[\r\n]*|{S}*[\r\n]|{S}+(?!{X})|{S}+",)
    ),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": _DEEPSEEK,
    "deepseek-llm": TextSplit(
        (r"[\r\n]", _CASED_WORD, "{S}?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
         r"(?<!{S}){S}+\Z", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "{N}+")
    ),
    "deepseek-coder": TextSplit(
        (r"[\r\n]", "{S}?{L}+", "{S}?{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "{N}")
    ),
    "falcon": TextSplit((r"[{p}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "poro-chat bloom gpt3-finnish": TextSplit((_STOPS,)),
    "viking": TextSplit((_STOPS, "{N}")),
    "tekken": TextSplit((_CASED,), True, True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": TextSplit((_GPT4O,)),
    "granite-embed-multi-97m": TextSplit((_GPT4O,), True),
}  # fmt: skip
"""By the names that files have for it, one or more; a file may say none."""

RULES: Final[Mapping[str, TextSplit]] = {
    name: rule for names, rule in _NAMES.items() for name in names.split(" ")
}
