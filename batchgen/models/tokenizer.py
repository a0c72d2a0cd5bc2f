"""The tokenizer protocol, the byte tokenizer of the test models, and one over ``tokenizers``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from batchgen.models.chat import ChatTemplate

__all__ = ["BYTE_SPECIAL_TOKENS", "ByteTokenizer", "SubwordTokenizer", "Tokenizer"]

BYTE_SPECIAL_TOKENS = {
    "<|bos|>": 256,
    "<|eos|>": 257,
    "<think>": 258,
    "</think>": 259,
    "```": 260,
    "<tool_call>": 261,
    "</tool_call>": 262,
    "<tool_response>": 263,
}

_BYTE_CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% if enable_thinking %}<think>{% endif %}{% endif %}"
)


class Tokenizer(Protocol):
    """Text to ids and back.

    ``encode`` adds the tokens that the model expects around a plain prompt (BOS, where it has one);
    ``encode_chat`` adds none, as the template writes them. ``variables`` are what a request gives the template beside
    its messages: ``tools``, ``enable_thinking``.
    """

    vocab_size: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    special_tokens: dict[str, int]

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str: ...

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]: ...


class ByteTokenizer:
    """One token a UTF-8 byte, and eight special tokens.

    BOS, EOS, the five that the decode step knows (thinking begins and ends, code fence, tool call begins
    and ends) and the tool response.
    """

    vocab_size = 256 + len(BYTE_SPECIAL_TOKENS)
    bos_token_id: int | None = BYTE_SPECIAL_TOKENS["<|bos|>"]
    eos_token_ids: tuple[int, ...] = (BYTE_SPECIAL_TOKENS["<|eos|>"],)

    def __init__(self) -> None:
        self.special_tokens = dict(BYTE_SPECIAL_TOKENS)
        self._texts = {token: text.encode() for text, token in BYTE_SPECIAL_TOKENS.items()}
        self._split = re.compile("(" + "|".join(map(re.escape, BYTE_SPECIAL_TOKENS)) + ")")
        self._chat = ChatTemplate(_BYTE_CHAT, "byte tokenizer", {})

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in self._split.split(text):
            ids += [self.special_tokens[part]] if part in self.special_tokens else part.encode()
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        special = b"" if skip_special else None
        pieces = (bytes([i]) if i < 256 else self._texts[i] if special is None else special for i in ids)
        return b"".join(pieces).decode(errors="replace")

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        return self._chat.render(messages, variables)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
        return self.encode(self.apply_chat_template(messages, **variables))


class SubwordTokenizer:
    """A ``tokenizers.Tokenizer`` with the ids and the chat template that its model file gives."""

    def __init__(
        self,
        backend: Any,
        *,
        bos_token_id: int | None,
        eos_token_ids: tuple[int, ...],
        add_bos: bool | None,
        special_tokens: Mapping[str, int],
        chat: ChatTemplate,
    ) -> None:
        """``add_bos`` None leaves the matter to the backend's own post-processor."""
        self._backend, self._chat, self._add_bos = backend, chat, add_bos
        self.vocab_size = int(backend.get_vocab_size())
        self.bos_token_id, self.eos_token_ids = bos_token_id, eos_token_ids
        self.special_tokens = dict(special_tokens)

    def encode(self, text: str) -> list[int]:
        ids = list(self._backend.encode(text, add_special_tokens=self._add_bos is None).ids)
        if self._add_bos and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special))

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        return self._chat.render(messages, variables)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
        text = self.apply_chat_template(messages, **variables)
        return list(self._backend.encode(text, add_special_tokens=False).ids)
