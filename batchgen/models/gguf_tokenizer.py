"""The tokenizer that a GGUF file describes, built with the ``tokenizers`` library.

Two families: ``gpt2``, byte-level BPE whose pre-tokenizer is named by ``tokenizer.ggml.pre``, and ``llama``,
SentencePiece BPE whose merges follow from the scores of the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from batchgen.models.chat import ChatTemplate
from batchgen.models.errors import ModelLoadError
from batchgen.models.tokenizer import SubwordTokenizer

__all__ = ["build_tokenizer"]

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4


def build_tokenizer(metadata: Mapping[str, Any], path: Path, name: str) -> SubwordTokenizer:
    """ModelLoadError when the file has no vocabulary or one of a kind that is not known here."""
    kind = metadata.get("tokenizer.ggml.model")
    tokens: list[str] | None = metadata.get("tokenizer.ggml.tokens")
    if kind not in _FAMILIES or not tokens:
        raise ModelLoadError(
            f"{path}: tokenizer model {kind!r} is not supported (gpt2 and llama with a vocabulary are)"
        )
    backend = _FAMILIES[kind](metadata, tokens, path)
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    special = [token for token, type_ in zip(tokens, types, strict=True) if type_ in (_UNKNOWN, _CONTROL)]
    named = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _USER_DEFINED]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    backend.add_tokens([AddedToken(token, normalized=False) for token in named])
    ids = {token: number for number, token in enumerate(tokens)}
    bos, eos = (metadata.get(f"tokenizer.ggml.{which}_token_id") for which in ("bos", "eos"))
    stops = (eos, metadata.get("tokenizer.ggml.eot_token_id"))
    texts = {"bos_token": bos, "eos_token": eos}
    return SubwordTokenizer(
        backend,
        bos_token_id=bos,
        eos_token_ids=tuple(dict.fromkeys(stop for stop in stops if stop is not None)),
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", kind == "llama")),
        special_tokens={token: ids[token] for token in special},
        chat=ChatTemplate(
            metadata.get("tokenizer.chat_template"),
            name,
            {key: tokens[i] for key, i in texts.items() if i is not None},
        ),
    )


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], path: Path) -> tokenizers.Tokenizer:
    name = metadata.get("tokenizer.ggml.pre", "default")
    if name not in _PRE_TOKENIZERS:
        raise ModelLoadError(
            f"{path}: pre-tokenizer {name!r} is not supported; known: {', '.join(sorted(_PRE_TOKENIZERS))}"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", ())]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    # Llama 3 looks a whole word up before it merges; with the others a word is what its merges give.
    whole_words = name == "llama-bpe"
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole_words))
    backend.pre_tokenizer = _PRE_TOKENIZERS[name]()
    backend.decoder = decoders.ByteLevel()
    return backend


def _by_regex(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
    "llama-bpe": lambda: _by_regex(_WORDS + r"\p{N}{1,3}" + _REST),
    "qwen2": lambda: _by_regex(_WORDS + r"\p{N}" + _REST),
}


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], path: Path) -> tokenizers.Tokenizer:
    scores = metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        raise ModelLoadError(f"{path}: its SentencePiece vocabulary has no score for each piece")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges_by_score(vocabulary, scores),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = [normalizers.Replace(" ", "▁")]
    strip = [decoders.Strip(" ", 1, 0)]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))  # type: ignore[arg-type]
    else:
        strip = []
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def _merges_by_score(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every split of a piece into two pieces, the best scored piece first."""
    merges: list[tuple[float, int, int, str, str]] = []
    for piece, number in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-scores[number], vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


_FAMILIES: dict[str, Callable[[Mapping[str, Any], list[str], Path], tokenizers.Tokenizer]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
}
