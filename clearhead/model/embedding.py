"""From ids, pixels or frames of sound to the first vectors of a stack."""

from abc import ABC, abstractmethod
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.brief import shape_of
from clearhead.config import Convolution, FrameInput, GridInput, PatchInput, StackConfig, TokenInput, WaveInput
from clearhead.errors import UserError
from clearhead.model.attention_bias import PositionEncoding
from clearhead.model.convolution import Around, ConvolutionLayer, before, shorter
from clearhead.model.fast.dropout import dropout
from clearhead.model.feedforward import activation_steps
from clearhead.model.layout import Layout, Tokens
from clearhead.model.linear import Table, look_up
from clearhead.model.mode import Part
from clearhead.model.norm import ChannelNorm, LayerNorm, Norm, build_norm
from clearhead.model.ops import KINDS, Call, Kind, Sized, Steps
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
        """Lists the ops of `vectors` for the stack of this name."""

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
        """Lists the ops of `forward` for the stack of this name; returns the address of the result."""
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
        if tokens.vectors is not None and tokens.places is not None:
            rows = layout.pack(tokens.places)[..., None]
            x = torch.where(rows >= 0, tokens.vectors.to(x.dtype)[rows[..., 0].clamp(min=0)], x)
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
    """b t 1: 0 for a mask token, and for the other tokens UNMASKED divided by their share of the text."""
    real = tokens.valid_cells
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


class GridEmbedding(Embedding):
    """Each patch's pixels, once for each frame, through one linear layer   (Wang et al. 2024, 2.1)"""

    def __init__(self, config: StackConfig, reads: GridInput) -> None:
        super().__init__()
        self.by = {"channels": reads.n_channels, "frames": reads.frames}
        self.patches = nn.Linear(reads.frames * reads.shape[-1], config.d_model, bias=False)
        self.norm = self.project = self.around = None
        self.dropout = config.embedding_dropout

    def layout(self, tokens: Tokens) -> Layout:
        return Layout.of(tokens)

    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        x = layout.pack(filmed(tokens.ids, **self.by))
        return self.patches(x).to(x.dtype)  # Autocast would have all that follows in 16 bits.

    def vector_steps(self, to: Steps, stack: str, path: str) -> None:
        x = to.do(f"{path}.filmed", "film", f"{path}.patches", by={**self.by})
        to.linear(f"{path}.tokens", x, self.patches, f"{path}.patches")


def filmed(patches: Tensor, channels: int, frames: int) -> Tensor:
    """… (c p) -> … (c frames p): the patches of a film that stands still."""
    return patches.unflatten(-1, (channels, 1, -1)).expand(*patches.shape[:-1], channels, frames, -1).flatten(-3)


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
    """… t c -> … t/step (c width): every step-th vector with its neighbours; those beyond the ends are 0."""
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
    "film": Kind(
        lambda call: filmed(call.x[0], int(call.op.by["channels"]), int(call.op.by["frames"])),
        lambda call: (call.x[0].shape[0], call.x[0].shape[1] * int(call.op.by["frames"])),
    ),
    "prepend": Kind(
        lambda call: torch.cat([*(w.reshape(-1, w.shape[-1]) for w in call.w), call.x[0]]), _prepended_shape
    ),
}


EPS = 1e-5
"""Epsilon of the norms within the stem, whatever that of the blocks is."""


class WaveEmbedding(Embedding):
    """Norm(conv(… conv(samples))) W + b, and what a convolution makes of the moments around (Baevski et al. 2020, 2).

    A batch is padded on the right. The moments of a sound never depend on the padding.
    """

    def __init__(self, config: StackConfig, reads: WaveInput) -> None:
        super().__init__()
        self.reads = reads
        widths = [1, *(one.channels for one in reads.convolutions)]
        self.convolutions = nn.ModuleList(
            ConvolutionLayer(one, width, bias=reads.conv_bias, norm=_norm(reads, i, one), activation=reads.activation)
            for i, (one, width) in enumerate(zip(reads.convolutions, widths, strict=False))
        )
        self.feature_norm = LayerNorm(widths[-1], eps=config.norm_eps, bias=True) if reads.feature_norm else None
        self.dense = nn.Linear(widths[-1], config.d_model)
        self.around = Around(
            config.d_model, width=reads.position_width, groups=reads.position_groups, activation=reads.activation
        )
        self.mask_token = nn.Parameter(torch.zeros(config.d_model)) if reads.mask_token else None
        self.norm = build_norm(config) if reads.norm else None
        self.project = None
        self.dropout = config.embedding_dropout

    def layout(self, tokens: Tokens) -> Layout:
        least, n = self.reads.shape_of(1)[0], tokens.grid[1]
        if n < least or tokens.ids.shape[-1] != 1:
            got = shape_of(tokens.ids)
            raise UserError(f"sound: expected batch x {least} or more samples x 1, got {got}; try a longer sound")
        lengths = torch.tensor([n]) if tokens.valid is None else tokens.valid.sum(1)
        for one in self.reads.convolutions:
            n, lengths = (n - one.width) // one.step + 1, shorter(lengths, one.width, one.step)
        valid = None if tokens.valid is None else before(lengths, n)
        return Layout((len(tokens.ids), n), torch.arange(n, device=tokens.ids.device)[None], valid=valid)

    def vectors(self, tokens: Tokens, layout: Layout) -> Tensor:
        x, lengths = tokens.ids, None
        if tokens.valid is not None:
            x, lengths = x.masked_fill(~tokens.valid[..., None], 0.0), tokens.valid.sum(1)
        for convolution in self.convolutions:
            x, lengths = convolution(x, lengths)
        return self.dense(x if self.feature_norm is None else self.feature_norm(x))

    def vector_steps(self, to: Steps, stack: str, path: str) -> None:
        x = f"{path}.samples"
        for i, convolution in enumerate(self.convolutions):
            assert isinstance(convolution, ConvolutionLayer)
            x = convolution.steps(to, f"{path}.convolutions.{i}", x)
        x = x if self.feature_norm is None else self.feature_norm.steps(to, f"{path}.feature_norm", x)
        with to.inside(f"{path}.dense"):
            to.linear(f"{path}.dense", x, self.dense, f"{path}.dense")


def _norm(reads: WaveInput, i: int, convolution: Convolution) -> ChannelNorm | LayerNorm | None:
    if reads.conv_norm == "all":
        return LayerNorm(convolution.channels, eps=EPS, bias=True, axes="b x c")
    return None if i else ChannelNorm(convolution.channels, eps=EPS)


def build_embedding(config: StackConfig) -> Embedding:
    """The embedding for the input of a stack."""
    if isinstance(config.input, TokenInput):
        return TokenEmbedding(config, config.input)
    if isinstance(config.input, PatchInput):
        return PatchEmbedding(config, config.input)
    if isinstance(config.input, GridInput):
        return GridEmbedding(config, config.input)
    if isinstance(config.input, WaveInput):
        return WaveEmbedding(config, config.input)
    return FrameEmbedding(config, config.input)
