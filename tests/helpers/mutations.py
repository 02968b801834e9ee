"""Files' contents, changed at random."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.helpers.files import compressed

HEADS = [b"PAR1", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"ARROW1\0\0", b"\xff\xff\xff\xff", b"\xef\xbb\xbf"]
HEADS += [b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"[", b"PK\x03\x04", b"BZh9"]
INSERTIONS = [
    b"\0",
    b"\0" * 1000,
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\x1b]0;title\x07\x1b[2J",
    b"\n",
    b"\r",
    b"\n" * 5000,
    b'"',
    b"\\",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 5000,
    b"1e999999",
    b"NaN",
    b"x" * 3_000_000,
    "\u202e\u2028\x85".encode(),
    b'"text": null, ',
    b'"text": [[]], "text": {}, ',
    b'"text": 123456789012345678901234567890, ',
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
]


def flipped(content: bytearray, generator: random.Random) -> bytearray:
    for _ in range(generator.choice([1, 1, 1, 5, 100])):
        if content:
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return content


def cut(content: bytearray, generator: random.Random) -> bytearray:
    first, last = sorted(generator.choices(range(len(content) + 1), k=2))
    return generator.choice([content[:first], content[last:], content[:first] + content[last:]])


def doubled(content: bytearray, generator: random.Random) -> bytearray:
    first, last = sorted(generator.choices(range(len(content) + 1), k=2))
    return content[:last] + content[first:last] * generator.choice([1, 2, 30]) + content[last:]


def inserted(content: bytearray, generator: random.Random) -> bytearray:
    place = generator.randrange(len(content) + 1)
    return content[:place] + generator.choice(INSERTIONS) + content[place:]


def overwritten(content: bytearray, generator: random.Random) -> bytearray:
    """Near the end too, where a table has its footer."""
    from_end = generator.random() < 0.5
    place = generator.randrange(len(content) + 1)
    place = max(0, len(content) - 1 - place % 600) if from_end else place
    wrong = generator.choice([generator.randbytes(4), b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff" * 4, b"\x80" * 4])
    return content[:place] + wrong + content[place + 4 :]


def beheaded(content: bytearray, generator: random.Random) -> bytearray:
    return bytearray(generator.choice(HEADS)) + content[generator.choice([0, 4]) :]


def numbers_changed(content: bytearray, generator: random.Random) -> bytearray:
    digits = [place for place, byte in enumerate(content) if 0x30 <= byte <= 0x39]
    if digits:
        place = generator.choice(digits)
        wrong = generator.choice([b"-1", b"0", b"99999999999999999999", b"1.5", b'"x"', b"null", b"[]", b"true"])
        return content[:place] + wrong + content[place + 1 :]
    return content


def recoded(content: bytearray, generator: random.Random) -> bytearray:
    text = bytes(content).decode("latin1")
    return bytearray(text.encode(generator.choice(["utf-16", "utf-16-be", "utf-32", "utf-8", "cp1252"]), "replace"))


def wrongly_compressed(content: bytearray, generator: random.Random) -> bytearray:
    return bytearray(compressed(bytes(content), generator.choice([".gz", ".zst"])))


MUTATIONS: list[Callable[[bytearray, random.Random], bytearray]] = [
    *[flipped, overwritten] * 3,
    *[cut, doubled, inserted] * 2,
    *[beheaded, numbers_changed, recoded, wrongly_compressed],
]


def mutated(content: bytes, generator: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        changed = generator.choice(MUTATIONS)(changed, generator)
    return bytes(changed)
