"""Texts to time: from the tokenizer's own vocabulary, a fixed list for a seed.

`exact` texts have exactly N tokens, so that nothing is padded and every call has one shape: what
spreads then is the machine. `padded` are short texts filled up to N, another attention path of the
same shape. `natural` are as long as they come; their lengths are drawn evenly up to N, a stand-in
for passages cut at N, and bring many shapes.
"""

import hashlib
import random
from collections.abc import Iterator
from typing import Any

WORDS = 1000
"""Distinct words that texts are drawn from."""


class InputError(ValueError):
    """No texts of the wanted length can be made; the text says why."""


def make_texts(tokenizer: Any, kind: str, length: int, count: int, seed: int) -> list[str]:
    """`count` texts, equal for equal arguments.

    Args:
        tokenizer: A transformers tokenizer.
        kind: exact, padded or natural.
        length: N, special tokens included.

    Raises:
        InputError: The length has no room for a word, or no word of the vocabulary stands alone.
    """
    draw = random.Random(f"{seed} {kind} {length}")
    specials = int(tokenizer.num_special_tokens_to_add())
    if length <= specials:
        raise InputError(f"{length} tokens; {specials} are special tokens, so at least one more")
    words = _words(tokenizer, draw)
    short = max(specials + 1, length // 4)
    shortest, longest = {
        "exact": (length, length),
        "padded": (short, short),
        "natural": (specials + 1, length),
    }[kind]
    return [
        exact_text(tokenizer, words, draw.randint(shortest, longest), draw) for _ in range(count)
    ]


def exact_text(tokenizer: Any, words: list[str], length: int, draw: random.Random) -> str:
    """A text that the tokenizer makes exactly `length` tokens of, special tokens included.

    Words that are one token alone may be two beside each other, so the count is verified and words
    are added or taken until it holds.
    """
    text = draw.choices(words, k=length - int(tokenizer.num_special_tokens_to_add()))
    for _ in range(100):
        excess = token_count(tokenizer, " ".join(text)) - length
        if excess == 0:
            return " ".join(text)
        if excess < 0:
            text += draw.choices(words, k=-excess)
        else:
            text = text[: max(0, len(text) - excess)]
    raise InputError(f"no text of exactly {length} tokens was found in 100 tries")


def token_count(tokenizer: Any, text: str) -> int:
    """Tokens of a text, special tokens included."""
    return len(tokenizer(text, truncation=False)["input_ids"])


def texts_sha256(texts: list[str]) -> str:
    """Hex sha256 of the list."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _words(tokenizer: Any, draw: random.Random) -> list[str]:
    found: list[str] = []
    for word in _candidates(tokenizer, draw):
        if len(tokenizer(word, add_special_tokens=False)["input_ids"]) == 1:
            found.append(word)
        if len(found) == WORDS:
            break
    if not found:
        raise InputError("the tokenizer's vocabulary has no word of letters that is one token")
    return found


def _candidates(tokenizer: Any, draw: random.Random) -> Iterator[str]:
    ids = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    draw.shuffle(ids)
    for i in ids:
        word = tokenizer.decode([i]).strip()
        if word.isascii() and word.isalpha():
            yield word
