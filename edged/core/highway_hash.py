"""HighwayHash with a result of 64 bits, which nats-server guards the files of its store with.

The reference of what `_s2.pyx` does in C. The state is four times four lanes of 64 bits: v0, v1, mul0,
mul1. A packet is 32 bytes, one number for each lane.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from typing import Final

KEY_BYTES: Final = 32
HASH_BYTES: Final = 8

_PACKET_BYTES: Final = 32
_LANES: Final = Struct("<4Q")
_PAIR: Final = Struct("<2Q")
_MASK: Final = (1 << 64) - 1
_LOW: Final = (1 << 32) - 1
_MUL0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
# How the 16 bytes of two neighbouring lanes are mixed before they are added to others.
_ZIPPER: Final = itemgetter(3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)


def highway_hash(key: bytes, data: bytes) -> bytes:
    """The hash of `data` with a key of 32 bytes, as the 8 bytes that are written to disk."""
    state = _State(_LANES.unpack(key))
    whole = len(data) & -_PACKET_BYTES
    for position in range(0, whole, _PACKET_BYTES):
        state.update(_LANES.unpack_from(data, position))
    if whole < len(data):
        state.update_last(data[whole:])
    return state.finish().to_bytes(HASH_BYTES, "little")


class _State:
    __slots__ = ("mul0", "mul1", "v0", "v1")

    def __init__(self, key: tuple[int, ...]) -> None:
        self.mul0, self.mul1 = list(_MUL0), list(_MUL1)
        self.v0 = [number ^ lane for number, lane in zip(_MUL0, key, strict=True)]
        self.v1 = [number ^ _swapped(lane) for number, lane in zip(_MUL1, key, strict=True)]

    def update(self, packet: tuple[int, ...]) -> None:
        """Take one packet in."""
        v0, v1, mul0, mul1 = self.v0, self.v1, self.mul0, self.mul1
        for lane in range(4):
            v1[lane] = (v1[lane] + mul0[lane] + packet[lane]) & _MASK
            mul0[lane] ^= (v1[lane] & _LOW) * (v0[lane] >> 32)
            v0[lane] = (v0[lane] + mul1[lane]) & _MASK
            mul1[lane] ^= (v0[lane] & _LOW) * (v1[lane] >> 32)
        for target, source in ((v0, v1), (v1, v0)):
            for lane in (0, 2):
                pair = bytes(_ZIPPER(_PAIR.pack(source[lane], source[lane + 1])))
                low, high = _PAIR.unpack(pair)
                target[lane] = (target[lane] + low) & _MASK
                target[lane + 1] = (target[lane + 1] + high) & _MASK

    def update_last(self, rest: bytes) -> None:
        """Take in what is less than a packet; its size counts, too."""
        size = len(rest)
        for lane in range(4):
            self.v0[lane] = (self.v0[lane] + (size << 32) + size) & _MASK
            low, high = self.v1[lane] & _LOW, self.v1[lane] >> 32
            self.v1[lane] = _rotated(high, size) << 32 | _rotated(low, size)
        packet = bytearray(_PACKET_BYTES)
        fours, odd = size & ~3, size & 3
        packet[:fours] = rest[:fours]
        if size & 16:
            packet[28:] = rest[-4:]
        elif odd:
            packet[16:19] = bytes((rest[fours], rest[fours + (odd >> 1)], rest[size - 1]))
        self.update(_LANES.unpack(packet))

    def finish(self) -> int:
        """Mix four times more; the result."""
        for _ in range(4):
            v0 = self.v0
            self.update((_swapped(v0[2]), _swapped(v0[3]), _swapped(v0[0]), _swapped(v0[1])))
        return (self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]) & _MASK


def _swapped(lane: int) -> int:
    return lane >> 32 | (lane & _LOW) << 32


def _rotated(half: int, bits: int) -> int:
    return (half << bits | half >> 32 - bits) & _LOW
