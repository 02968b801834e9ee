"""Checksums of files; and randomness without state: hashes of numbers, for pure functions of (seed, cursor)."""

from functools import partial
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

new_checksum = partial(blake2b, digest_size=16)

_GAMMA = 0x9E3779B97F4A7C15


def checksum(content: bytes) -> str:
    """blake2b, 32 hexadecimal digits."""
    return new_checksum(content).hexdigest()


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def hash_uint64(value: NDArray[np.uint64], *keys: int) -> NDArray[np.uint64]:
    """A well-mixed 64-bit hash of each value under the keys; same shape."""
    hashed = _mix(np.atleast_1d(value) + np.uint64(_GAMMA))
    for key in keys:
        hashed = _mix(hashed + np.uint64(_GAMMA * (2 * key + 1) % (1 << 64)))
    return hashed.reshape(np.shape(value))


def uniform(hashed: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The hash as a number in [0, 1)."""
    return (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permute(index: NDArray[np.int64], size: int, *keys: int) -> NDArray[np.int64]:
    """Where each index goes in a pseudo-random permutation of ``range(size)``, in O(1) each.

    A four-round Feistel network over the next power of four, walked until it falls below ``size``
    (Black and Rogaway: Ciphers with arbitrary finite domains, 2002).
    """
    limit = np.uint64(size)
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low_mask = (np.uint64(1) << half) - np.uint64(1)
    round_keys = hash_uint64(np.arange(4, dtype=np.uint64), *keys)
    value = index.astype(np.uint64)
    outside = np.arange(len(value))
    while outside.size:
        walked = value[outside]
        left, right = walked >> half, walked & low_mask
        for round_key in round_keys:
            left, right = right, left ^ (_mix(right + round_key) & low_mask)
        value[outside] = walked = (left << half) | right
        outside = outside[walked >= limit]
    return value.astype(np.int64)
