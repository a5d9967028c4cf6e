"""From ids or pixels to vectors: what a stack starts from."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import PatchInput, StackConfig, TokenInput
from clearhead.errors import UserError
from clearhead.model.checks import look_up
from clearhead.model.dropout import dropout
from clearhead.model.layout import Layout, Tokens
from clearhead.model.norm import build_norm
from clearhead.trace import tap


class Embedding(nn.Module, ABC):
    """sum = tokens + positions, then norm and dropout where the config has them."""

    norm: nn.Module | None
    dropout: float

    @abstractmethod
    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        """One vector a position, b t d (or packed n d), before positions are added."""

    def forward(self, tokens: Tokens, layout: Layout, positions: Tensor | None) -> Tensor:
        """ids or pixels -> b t d (or packed n d); `positions` is b|1 t d."""
        x = tap(self, "tokens", self.vectors(tokens, layout), "b t d")
        if positions is not None:
            positions = layout.pack(positions.expand(*layout.grid, -1))
            x = x + tap(self, "positions", positions.to(x.dtype), "b t d")
        # 0 times NaN is NaN: what the table says of a padding token may not enter a sum or the gradient of a matrix.
        x = tap(self, "sum", layout.blank(x), "b t d")
        x = x if self.norm is None else self.norm(x)
        return dropout(x, self.dropout, self.training)


class TokenEmbedding(Embedding):
    """table[id] (* sqrt(d_model)) (+ types[type])   (Vaswani et al. 2017, 3.4; Devlin et al. 2018, 3)"""

    def __init__(self, config: StackConfig, reads: TokenInput) -> None:
        super().__init__()
        self.tokens = nn.Embedding(reads.vocab_size, config.d_model)
        self.types = nn.Embedding(reads.n_types, config.d_model) if reads.n_types else None
        self.norm = build_norm(config) if reads.norm else None
        self.factor = config.d_model**0.5 if reads.scale else None
        self.dropout = config.embedding_dropout

    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        x = look_up(self.tokens, layout.pack(tokens.ids), "ids")
        x = x if self.factor is None else x * self.factor
        if self.types is not None:
            types = torch.zeros_like(tokens.ids) if tokens.types is None else tokens.types.expand_as(tokens.ids)
            x = x + look_up(self.types, layout.pack(types), "types")
        return x


class PatchEmbedding(Embedding):
    """Each patch's pixels through one linear layer, the class token in front   (Dosovitskiy et al. 2020, eq. 1)"""

    def __init__(self, config: StackConfig, reads: PatchInput) -> None:
        super().__init__()
        self.patch_size, self.shape = reads.patch_size, (reads.n_channels, reads.image_size, reads.image_size)
        self.patches = nn.Linear(reads.n_channels * reads.patch_size**2, config.d_model)
        self.class_token = nn.Parameter(torch.zeros(config.d_model)) if reads.class_token else None
        self.norm = None
        self.dropout = config.embedding_dropout

    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        pixels = tokens.ids
        if pixels.shape[1:] != self.shape:
            raise UserError(f"image: expected shape {self.shape}, got {tuple(pixels.shape[1:])}; resize it first")
        x = self.patches(F.unfold(pixels, self.patch_size, stride=self.patch_size).mT)
        return x if self.class_token is None else torch.cat([self.class_token.expand(len(x), 1, -1), x], 1)


def build_embedding(config: StackConfig) -> Embedding:
    """The embedding for what a stack reads."""
    if isinstance(config.input, TokenInput):
        return TokenEmbedding(config, config.input)
    return PatchEmbedding(config, config.input)
