"""Randomness without state: every random choice is a function of its purpose. Imports no torch.

Because nothing is consumed in order, a resumed run needs no generator state, and the order of the data does
not depend on the number of workers.
"""

import hashlib


def key(*parts: str | int) -> int:
    """A seed in [0, 2^63) from its purpose: `key(seed, "shuffle", epoch)`.

    The same on every machine and in every process (BLAKE2b of the parts, unlike `hash`). Raises TypeError for
    a part that is no str or int, because its text need not be stable.
    """
    for part in parts:
        if type(part) is not str and type(part) is not int:
            raise TypeError(f"key(): expected parts of type str or int, got {type(part).__name__} {part!r}")
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
