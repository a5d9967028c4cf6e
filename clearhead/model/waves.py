"""From the samples of a sound to vectors: a stem of convolutions (Baevski et al. 2020, wav2vec 2.0)."""

import torch
from torch import Tensor, nn

from clearhead.brief import shape_of
from clearhead.config import Convolution, StackConfig, WaveInput
from clearhead.errors import UserError
from clearhead.model.convolution import Around, ConvolutionLayer, before, shorter
from clearhead.model.embedding import Embedding
from clearhead.model.layout import Layout, Tokens
from clearhead.model.norm import ChannelNorm, LayerNorm, build_norm
from clearhead.model.ops import Steps

EPS = 1e-5
"""Of the norms within the stem, whatever that of the blocks is."""


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
