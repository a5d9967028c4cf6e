"""The network: the paper, one concept a file."""

from clearhead.model.cache import Cache
from clearhead.model.layout import Layout, Tokens
from clearhead.model.transformer import Transformer

__all__ = ["Cache", "Layout", "Tokens", "Transformer"]
