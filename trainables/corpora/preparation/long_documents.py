"""Long documents: tokenised in windows, because an encoding takes hundreds of bytes a token.

Where a text is cut the tokens beside the cut may be others; a little further they are the whole text's again, as words
are tokenised apart, and without words the best segmentation does not look far. So windows overlap, and are joined where
both have the same tokens for long enough.
"""

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

LONG_CHARACTERS = 1 << 21  # longer documents are tokenised in windows
WINDOW_CHARACTERS = 1 << 20
OVERLAP_CHARACTERS = 1 << 12  # of two windows, at first; their tokens must agree over the middle half of it


def encode_long(tokenizer: Tokenizer, text: str) -> NDArray[np.int64]:
    """The tokens of the whole text, without special tokens, (tokens,).

    Where two windows do not agree they overlap more; where they do not in half a window, the text is tokenised whole.
    """
    ids, first = list[NDArray[np.int64]](), 0
    window = _Window(tokenizer, text, 0, WINDOW_CHARACTERS)
    while window.end < len(text):
        overlap, joint = OVERLAP_CHARACTERS, None
        while joint is None:
            if overlap > WINDOW_CHARACTERS // 2:
                return _Window(tokenizer, text, 0, len(text)).ids
            following = _Window(tokenizer, text, window.end - overlap, window.end + WINDOW_CHARACTERS)
            joint = _joint(window, following)
            overlap *= 4
        ids.append(window.ids[first : joint[0]])
        window, first = following, joint[1]
    return np.concatenate([*ids, window.ids[first:]])


class _Window:
    """The tokens of ``text[begin:end]``, and the characters they begin at."""

    def __init__(self, tokenizer: Tokenizer, text: str, begin: int, end: int) -> None:
        encoding = tokenizer.encode(text[begin:end], add_special_tokens=False)
        self.begin, self.end = begin, min(end, len(text))
        self.ids = np.array(encoding.ids, dtype=np.int64)
        self.starts = np.array([start for start, _ in encoding.offsets], dtype=np.int64) + begin


def _joint(window: _Window, following: _Window) -> tuple[int, int] | None:
    """A token of each: from there on, over the middle half of the overlap, the two are the same."""
    quarter = (window.end - following.begin) // 4
    middle = (following.begin + quarter, window.end - quarter)
    first, last = np.searchsorted(window.starts, middle)
    other_first, other_last = np.searchsorted(following.starts, middle)
    same = first < last and all(
        np.array_equal(one[first:last], other[other_first:other_last])
        for one, other in ((window.ids, following.ids), (window.starts, following.starts))
    )
    return (int(first), int(other_first)) if same else None
