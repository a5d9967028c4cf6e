"""Keys and values that are made of one short vector for each position, as data."""

from pydantic import PositiveFloat

from clearhead.config.base import Config, Count, Width


class Latent(Config):
    """One short vector for each position, of which all heads make keys and values (DeepSeek-AI 2024, 2.1).

    A head's key is a part that all heads share, which rotary positions turn, and then a part of its own.
    """

    rank: Count
    """Width of that vector."""
    query_rank: Count | None = None
    """Width of a vector of which queries are made; None makes them of the position's state."""
    d_shared: Width
    """Width of the part of a key that all heads share."""
    d_value: Width
    """Width of a head's values."""
    bias: bool = False
    """Bias of the maps to the short vectors and to the shared part."""
    norm_eps: PositiveFloat = 1e-6
    """Epsilon of the norms of the short vectors."""
