"""From ids, pixels or frames of sound to vectors: what a stack starts from."""

from abc import ABC, abstractmethod
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import FrameInput, PatchInput, StackConfig, TokenInput
from clearhead.errors import UserError
from clearhead.model.checks import look_up
from clearhead.model.convolution import Around
from clearhead.model.encoding import PositionEncoding
from clearhead.model.fast.dropout import dropout
from clearhead.model.feedforward import activation_steps
from clearhead.model.layout import Layout, Tokens
from clearhead.model.mode import Part
from clearhead.model.norm import Norm, build_norm
from clearhead.model.ops import KINDS, Call, Kind, Sized, Steps
from clearhead.model.table import Table
from clearhead.trace import tap


class Embedding(Part, ABC):
    """sum = tokens + positions, then norm, dropout and a dense layer to d_model if the config has them."""

    norm: Norm | None
    dropout: float
    project: nn.Linear | None
    around: Around | None
    """Makes the positions of the vectors themselves, if the position encoding adds none."""

    @abstractmethod
    def layout(self, tokens: Tokens) -> Layout:
        """The positions of a batch that no cache precedes."""

    @abstractmethod
    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        """One vector for each position, b t d (or packed m d), before positions are added."""

    @abstractmethod
    def vector_steps(self, to: Steps, stack: str, path: str) -> None:
        """List the ops of `vectors` for the stack of this name."""

    def forward(self, tokens: Tokens, layout: Layout, positions: Tensor | None) -> Tensor:
        """ids, pixels or frames -> b t d (or packed m d); `positions` is b|1 t d."""
        x = tap(self, "tokens", self.vectors(tokens, layout), "b t d")
        if self.around is not None:
            positions = self.around(layout.blank(x))
        if positions is not None:
            positions = layout.pack(positions.expand(*layout.grid, -1))
            x = x + tap(self, "positions", positions.to(x.dtype), "b t d")
        # A padding token's vector must not enter a sum or a matrix's gradient, because 0 times NaN is NaN.
        x = tap(self, "sum", layout.blank(x), "b t d")
        x = x if self.norm is None else self.norm(x)
        x = dropout(x, self.dropout, self.training)
        return x if self.project is None else self.project(x)

    def steps(self, to: Steps, stack: str, positions: PositionEncoding) -> str:
        """List the ops of `forward` for the stack of this name; returns the address of the result."""
        path, numbers = f"{stack}.embed", f"{stack}.positions"
        with to.inside(path):
            self.vector_steps(to, stack, path)
            x = to.named(f"{path}.tokens")
            if self.around is not None:
                added = self.around.steps(to, f"{path}.positions", f"{path}.around", x)
            else:
                added = positions.embedding_steps(to, f"{path}.positions", f"{stack}.positions", numbers)
            x = to.do(f"{path}.sum", "copy", x) if added is None else to.do(f"{path}.sum", "add", x, added)
            x = x if self.norm is None else self.norm.steps(to, f"{path}.norm", x)
            x = to.dropout(x, self.dropout)
        if self.project is None:
            return x
        with to.inside(f"{path}.project"):
            return to.linear(f"{path}.projected", x, self.project, f"{path}.project")


UNMASKED = 1 - 0.15 * 0.8
"""The share of tokens that are not replaced by the mask token in training   (Devlin et al. 2018, 3.1)"""


class TokenEmbedding(Embedding):
    """table[id] (* sqrt(width)) (* factor) (* kept) (+ types[type])   (Vaswani et al. 2017, 3.4; Devlin et al. 2018, 3)

    kept is 0 for a mask token, else the share of unmasked tokens in training over that of the text (Lin et al. 2022).
    """

    def __init__(self, config: StackConfig, reads: TokenInput) -> None:
        super().__init__()
        width, sum_width = config.embed_width, config.sum_width
        self.tokens: Table = nn.Embedding(reads.vocab_size, width)
        self.types = nn.Embedding(reads.n_types, sum_width) if reads.n_types else None
        self.norm = build_norm(config, sum_width) if reads.norm else None
        self.project = nn.Linear(width, config.d_model) if reads.width and not reads.tokens_alone else None
        self.widen = nn.Linear(width, config.d_model, bias=False) if reads.tokens_alone else None
        self.factor = (width**0.5 if reads.scale else 1.0) * (reads.factor or 1.0)
        self.mask_id = reads.mask_id
        self.around = None
        self.dropout = config.embedding_dropout

    def layout(self, tokens: Tokens) -> Layout:
        return Layout.of(tokens)

    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        x = look_up(self.tokens, layout.pack(tokens.ids), "ids")
        x = x if self.factor == 1.0 else x * self.factor
        if self.mask_id is not None:
            x = x * layout.pack(kept(tokens, self.mask_id)).to(x.dtype)
        x = x if self.widen is None else self.widen(x)
        if self.types is not None:
            types = torch.zeros_like(tokens.ids) if tokens.types is None else tokens.types.expand_as(tokens.ids)
            x = x + look_up(self.types, layout.pack(types), "types")
        return x

    def vector_steps(self, to: Steps, stack: str, path: str) -> None:
        x = to.do(f"{path}.lookup", "lookup", f"{stack}.ids", weights=(f"{path}.tokens.weight",))
        if self.factor != 1.0:
            x = to.do(f"{path}.scaled", "scale", x, by={"factor": self.factor})
        if self.mask_id is not None:
            by = {"id": self.mask_id, "unmasked": UNMASKED}
            x = to.do(f"{path}.kept", "weigh", x, to.do(f"{path}.factors", "unmasked", f"{stack}.ids", by=by))
        if self.widen is not None:
            with to.inside(f"{path}.widen"):
                x = to.linear(f"{path}.widened", x, self.widen, f"{path}.widen")
        if self.types is not None:
            types = to.do(f"{path}.types", "lookup", f"{stack}.types", weights=(f"{path}.types.weight",))
            to.do(f"{path}.tokens", "add", x, types)


def kept(tokens: Tokens, mask_id: int) -> Tensor:
    """b t 1: 0 for a mask token, for the others of its text UNMASKED over their share in it."""
    real = torch.ones_like(tokens.ids, dtype=torch.bool) if tokens.valid is None else tokens.valid
    others = (tokens.ids != mask_id) & real
    if tokens.documents is None:
        n_others, n_real = others.sum(1, keepdim=True), real.sum(1, keepdim=True)
    else:
        together = tokens.documents[:, :, None] == tokens.documents[:, None, :]
        n_others, n_real = ((together & some[:, None]).sum(-1) for some in (others, real))
    return (others * (UNMASKED * n_real / n_others.clamp(min=1)))[..., None]


def _unmasked(call: Call) -> Tensor:
    ids = call.x[0].long()[None]
    return kept(Tokens(ids), int(call.op.by["id"]))[0].float()


class PatchEmbedding(Embedding):
    """Each patch's pixels through one linear layer, the class token and registers in front   (Dosovitskiy et al. 2020,
    eq. 1; Darcet et al. 2023)
    """

    def __init__(self, config: StackConfig, reads: PatchInput) -> None:
        super().__init__()
        self.patch_size, self.shape = reads.patch_size, (reads.n_channels, reads.image_size, reads.image_size)
        d = config.d_model
        self.patches = nn.Linear(reads.n_channels * reads.patch_size**2, d, bias=reads.bias)
        self.class_token = nn.Parameter(torch.zeros(d)) if reads.class_token else None
        self.registers = nn.Parameter(torch.zeros(reads.n_registers, d)) if reads.n_registers else None
        self.mask_token = nn.Parameter(torch.zeros(d)) if reads.mask_token else None
        self.norm = build_norm(config) if reads.norm else None
        self.project = self.around = None
        self.dropout, self.length = config.embedding_dropout, reads.length

    def layout(self, tokens: Tokens) -> Layout:
        return Layout.of(tokens, length=self.length)

    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        pixels = tokens.ids
        if pixels.shape[1:] != self.shape:
            raise UserError(f"image: expected shape {self.shape}, got {tuple(pixels.shape[1:])}; resize it first")
        x = self.patches(F.unfold(pixels, self.patch_size, stride=self.patch_size).mT)
        first = [one.expand(x.shape[0], -1, -1) for one in self.first.values()]
        return torch.cat([*first, x], 1) if first else x

    @property
    def first(self) -> dict[str, Tensor]:
        """1|n d: the learned vectors before the patches, by name."""
        known = {"class_token": self.class_token, "registers": self.registers}
        return {name: one.view(-1, one.shape[-1]) for name, one in known.items() if one is not None}

    def vector_steps(self, to: Steps, stack: str, path: str) -> None:
        x = to.do(f"{path}.unfolded", "unfold", f"{path}.pixels", by={"size": self.patch_size})
        x = to.linear(f"{path}.patches", x, self.patches, f"{path}.patches")
        if first := tuple(f"{path}.{name}" for name in self.first):
            to.do(f"{path}.tokens", "prepend", x, weights=first)


class FrameEmbedding(Embedding):
    """gelu(W_2 w_2(gelu(W_1 w_1(frames)))), where w_s joins every s-th frame with its two neighbours, zeros at the ends
    (Radford et al. 2022, 2.2). Each is a convolution over time, written as one linear layer of the joined frames.
    """

    WIDTH = 3

    def __init__(self, config: StackConfig, reads: FrameInput) -> None:
        super().__init__()
        self.shape = reads.shape
        self.conv1 = nn.Linear(self.WIDTH * reads.n_bins, config.d_model)
        self.conv2 = nn.Linear(self.WIDTH * config.d_model, config.d_model)
        self.norm = self.project = self.around = None
        self.dropout, self.length = config.embedding_dropout, reads.length

    def layout(self, tokens: Tokens) -> Layout:
        return Layout.of(tokens, length=self.length)

    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        frames = tokens.ids
        if frames.shape[1:] != self.shape:
            raise UserError(f"sound: expected shape {self.shape}, got {tuple(frames.shape[1:])}; pad or cut it")
        x = tap(self, "conv1", F.gelu(self.conv1(joined(frames, self.WIDTH, 1))), "b x d")
        return F.gelu(self.conv2(joined(x, self.WIDTH, 2)))

    def vector_steps(self, to: Steps, stack: str, path: str) -> None:
        x = f"{path}.frames"
        for name, linear, step in (("conv1", self.conv1, 1), ("conv2", self.conv2, 2)):
            at = f"{path}.{name}"
            with to.inside(at):
                x = to.do(f"{at}.joined", "unfold_frames", x, by={"width": self.WIDTH, "step": step})
                x = activation_steps(to, at, to.linear(f"{at}.linear", x, linear, at), "gelu")


def joined(x: Tensor, width: int, step: int) -> Tensor:
    """… t c -> … t/step (c width): every step-th vector with its neighbours, of which those beyond the ends are 0."""
    return F.pad(x, (0, 0, width // 2, width // 2)).unfold(-2, width, step).flatten(-2)


def _lookup(call: Call) -> Tensor:
    return call.w[0][call.x[0].long() + int(call.op.by.get("offset", 0))]


def _unfold(call: Call) -> Tensor:
    size = int(call.op.by["size"])
    channels, height, width = call.x[0].shape
    cells = call.x[0].reshape(channels, height // size, size, width // size, size)
    return cells.permute(1, 3, 0, 2, 4).reshape(-1, channels * size * size)


def _unfolded_shape(call: Sized) -> tuple[int, ...]:
    (channels, height, width), size = call.x[0].shape, int(call.op.by["size"])
    return (height // size) * (width // size), channels * size * size


def _joined_shape(call: Sized) -> tuple[int, ...]:
    (n, channels), by = call.x[0].shape, call.op.by
    return (n - 1) // int(by["step"]) + 1, channels * int(by["width"])


def _prepended_shape(call: Sized) -> tuple[int, ...]:
    rows, width = call.x[0].shape
    return rows + sum(prod(shape[:-1]) for shape in call.w), width


KINDS |= {
    "unfold_frames": Kind(
        lambda call: joined(call.x[0], int(call.op.by["width"]), int(call.op.by["step"])),
        _joined_shape,
    ),
    "unmasked": Kind(_unmasked, lambda call: (*call.x[0].shape, 1), width=lambda _: 0),
    "lookup": Kind(_lookup, lambda call: (*call.x[0].shape, call.w[0][1])),
    "unfold": Kind(_unfold, _unfolded_shape),
    "prepend": Kind(
        lambda call: torch.cat([*(w.reshape(-1, w.shape[-1]) for w in call.w), call.x[0]]), _prepended_shape
    ),
}
