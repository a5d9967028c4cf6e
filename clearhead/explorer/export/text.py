"""Bytes as text in a page: base64, or 15 bits a character where the page is UTF-16."""

import base64

import numpy as np

FIRST = 0x100
"""The first of 2^15 characters, of which none is a mark of HTML, a control character or half of a pair."""
BYTES, CHARACTERS = 15, 8
CHUNK = BYTES << 16


def sparse(content: bytes) -> str:
    """Base64: 4 bytes of UTF-8 for 3."""
    return base64.b64encode(content).decode()


def dense(content: bytes) -> str:
    """A character with the number of zeros that were added, then 8 characters for 15 bytes: 2 bytes of UTF-16 each."""
    padding = -len(content) % BYTES
    whole = np.frombuffer(content + bytes(padding), np.uint8)
    parts = [chr(FIRST + padding)]
    for start in range(0, len(whole), CHUNK):
        block = whole[start : start + CHUNK].reshape(-1, BYTES).astype(np.uint32)
        block = np.pad(block, ((0, 0), (0, 2)))
        units = np.empty((len(block), CHARACTERS), "<u2")
        for i in range(CHARACTERS):
            at, past = divmod(BYTES * i, 8)
            three = block[:, at] << 16 | block[:, at + 1] << 8 | block[:, at + 2]
            units[:, i] = FIRST + (three >> (9 - past) & 0x7FFF)
        parts.append(units.tobytes().decode("utf-16-le"))
    return "".join(parts)
