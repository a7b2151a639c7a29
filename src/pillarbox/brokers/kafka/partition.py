"""Which partition librdkafka's partitioners choose for a key; Java's default is `murmur2`."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

Partitioner = Callable[[bytes], int]
MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key, made positive as Kafka does."""
    m, whole = 0x5BD1E995, len(key) & ~3
    h = (0x9747B28C ^ len(key)) & MASK
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & MASK
        k = (k ^ (k >> 24)) * m & MASK
        h = (h * m & MASK) ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & MASK
    h = (h ^ (h >> 13)) * m & MASK
    return (h ^ (h >> 15)) & 0x7FFFFFFF


def fnv1a(key: bytes) -> int:
    h = 0x811C9DC5
    for byte in key:
        h = (h ^ byte) * 0x01000193 & MASK
    return MASK + 1 - h if h & 0x80000000 else h  # Sarama's: the absolute value of a signed number


# Those that end in `_random` differ only for messages without a key, whose partition means nothing.
PARTITIONERS: dict[str, Partitioner] = {
    "murmur2": murmur2,
    "murmur2_random": murmur2,
    "consistent": zlib.crc32,
    "consistent_random": zlib.crc32,
    "fnv1a": fnv1a,
    "fnv1a_random": fnv1a,
    "random": lambda _key: random.getrandbits(31),
}
