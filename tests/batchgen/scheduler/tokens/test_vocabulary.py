"""Which tokens end a sentence, and which leave a word open."""

from __future__ import annotations

from batchgen.models.tokenizer import ByteTokenizer
from batchgen.scheduler.tokens.vocabulary import vocabulary_of


def test_the_byte_tokenizer() -> None:
    found = vocabulary_of(ByteTokenizer())
    assert found.sentence_end == set(b".!?\n")
    # Letters and digits, and every byte that is only a part of a character.
    assert found.mid_word == {i for i in range(256) if i > 127 or chr(i).isalnum()}
    assert len(found.texts) == 264 and found.texts[ord("a")] == "a" and found.texts[258] == ""


class Words:
    vocab_size = 6

    def decode(self, ids: list[int], skip_special: bool = True) -> str:
        return [" done", ". ", "。", ' said."', "\n\n", "3"][ids[0]]


def test_blanks_after_a_sentence_do_not_matter() -> None:
    found = vocabulary_of(Words())  # type: ignore[arg-type]
    assert (found.sentence_end, found.mid_word) == ({1, 2, 4}, {0, 5})
