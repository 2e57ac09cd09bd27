"""Random numbers and permutations derived from a key, without state and without tables.

    key = make_key("permutation", seed, epoch)     64 bits, equal on every machine
    hash64(key, position)                          64 random bits for a position
    draw_below(key, position, n)                   one of 0 .. n-1, uniformly
    permute_index(key, position, n)                the image of a position in a permutation
    unpermute_index(key, position, n)              the position of an image: the inverse
    permutation_array(key, n)                      another permutation, as an array

Everything is arithmetic on 64-bit integers: key, position and n may be Python integers or arrays of
uint64, with the same results. The hash is the finaliser of splitmix64 (Steele, Lea and Flood 2014).

The permutation is a Feistel network: 0 .. n-1 are laid out as a rectangle of about sqrt(n) rows and
columns, and in every round the row is rotated by a hash of the column, or the column by a hash of
the row. The rectangle is at most a row larger than n; a position outside 0 .. n-1 goes through the
network again until it is inside ("cycle walking"), which keeps it a permutation. The number of rows
is even, because rotations of odd rows and columns reach only half of the permutations.

The values are part of the public contract: a checkpoint continues in the same order in any later
version.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: successive positions differ in half of their bits
# The orders of 7 elements come equally often from 18 rounds on; with 10, chi-square is 177 standard
# deviations too large. Larger permutations need fewer.
_ROUNDS = 20


def make_key(*words: str | int) -> int:
    """Return a 64-bit key derived from these words, such as names of files."""
    text = "/".join(map(str, words)).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def hash64(key: Any, position: Any) -> Any:
    """Return 64 random bits for each position."""
    if isinstance(position, np.ndarray):  # products of uint64 need no mask, and constants no check
        x = position * np.uint64(_STEP) + np.asarray(key, np.uint64)
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
    x = key + (position * _STEP & _MASK) & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def draw_below(key: Any, position: Any, n: Any) -> Any:
    """Return one of 0 .. n-1 for each position, without bias.

    The hashes that would favour small numbers, 2^64 mod n of them, are drawn again.
    """
    return limit_bits(hash64(key, position), key, n)


def limit_bits(bits: Any, key: Any, n: Any) -> Any:
    """Return `draw_below` for positions whose hashes are `bits`."""
    threshold = (_MASK - n + 1) % n
    if not isinstance(bits, np.ndarray):
        while bits < threshold:
            bits = hash64(key, bits)
        return bits % n
    while (is_rejected := bits < threshold).any():
        bits = np.where(is_rejected, hash64(key, bits), bits)
    return bits % n


def as_fractions(bits: Any) -> Any:
    """Return floats in [0, 1) of 64 random bits: their highest 53, which a float holds exactly."""
    return (bits >> 11) * 2.0**-53


def permute_index(key: Any, position: Any, n: Any) -> Any:
    """Return the image of each position in the permutation of 0 .. n-1 of `key`; n < 2^63."""
    return _cycle_walk(_network, key, position, n)


def unpermute_index(key: Any, position: Any, n: Any) -> Any:
    """Return the inverse of `permute_index` at each position."""
    return _cycle_walk(_inverse_network, key, position, n)


def permutation_array(key: int, n: int) -> Any:
    """Return a permutation of 0 .. n-1 derived from `key`, as an array of uint64; n < 2^32.

    The numbers are sorted by their hashes, which takes a tenth of the time of `permute_index` for
    all positions, and 16 bytes a number. Each number is in the low bits of its hash, so all differ.
    """
    numbers = np.arange(n, dtype=np.uint64)
    low = np.uint64((1 << n.bit_length()) - 1)
    return np.sort(hash64(key, numbers) & ~low | numbers) & low


def _cycle_walk(network: Any, key: Any, position: Any, n: Any) -> Any:
    rows = _row_count(n)
    columns = (n + rows - 1) // rows
    images = network(key, position, rows, columns)
    if not isinstance(images, np.ndarray):
        while images >= n:
            images = network(key, images, rows, columns)
        return images
    outside = np.flatnonzero(images >= n)
    while outside.size:
        sides = _at(rows, outside), _at(columns, outside)
        images[outside] = network(_at(key, outside), images[outside], *sides)
        outside = outside[images[outside] >= _at(n, outside)]
    return images


def _row_count(n: Any) -> Any:
    """Return the even number next to sqrt(n), at least 2."""
    if isinstance(n, np.ndarray):
        return (np.sqrt(n).astype(np.uint64) + 1) // 2 * 2
    return max(2, (int(math.sqrt(n)) + 1) // 2 * 2)


def _network(key: Any, position: Any, rows: Any, columns: Any) -> Any:
    row = position // columns
    column = position % columns
    for round_index in range(0, _ROUNDS, 2):
        row = (row + _rotation(key, round_index, column, rows)) % rows
        column = (column + _rotation(key, round_index + 1, row, columns)) % columns
    return row * columns + column


def _inverse_network(key: Any, position: Any, rows: Any, columns: Any) -> Any:
    row = position // columns
    column = position % columns
    for round_index in range(_ROUNDS - 2, -1, -2):
        column = (column + columns - _rotation(key, round_index + 1, row, columns)) % columns
        row = (row + rows - _rotation(key, round_index, column, rows)) % rows
    return row * columns + column


def _rotation(key: Any, round_index: int, position: Any, size: Any) -> Any:
    """Return a hash of the round and the position, below `size`, which is below 2^32."""
    return (hash64(hash64(key, round_index), position) >> 32) * size >> 32


def _at(value: Any, indices: Any) -> Any:
    """Return `value[indices]` of an array; a scalar unchanged."""
    return value[indices] if isinstance(value, np.ndarray) else value
