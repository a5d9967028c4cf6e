"""Small networks of every kind with an input, padding included; shared by the tests of analysis."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.features import Features, Site
from clearhead.analysis.features.dictionary import Kind
from clearhead.api.features import attach
from clearhead.model import Tokens, Transformer
from clearhead.trace import Edit, Trace, trace
from tests.model import small

Case = tuple[Transformer, list[Tokens]]

IMAGE = c.PatchInput(image_size=8, patch_size=4, n_channels=2)


def pictures(*, pool: str = "first", **changes: object) -> Case:
    stack = small.stack(input=IMAGE, positions=c.Learned(max_length=IMAGE.length), **changes)
    head = c.ClassificationHead.model_validate({"n_labels": 5, "pool": pool})
    pixels = torch.randn(2, 2, 8, 8, generator=torch.Generator().manual_seed(3))
    return small.shaken(Transformer(c.ModelConfig(encoder=stack, head=head))), [Tokens(pixels)]


def right() -> Tokens:
    return Tokens.pad(small.sequences(6, 4))


def left() -> Tokens:
    return Tokens.pad(small.sequences(4, 7), left=True)


def spans() -> Case:
    config = c.ModelConfig(encoder=small.stack(), head=c.SpanHead())
    return small.shaken(Transformer(config)), [right()]


def tags() -> Case:
    config = c.ModelConfig(encoder=small.stack(), head=c.TaggingHead(n_labels=3))
    return small.shaken(Transformer(config)), [right()]


CASES: dict[str, Callable[[], Case]] = {
    "decoder": lambda: (small.decoder(), [left()]),
    "decoder_grouped_rotary": lambda: (
        small.decoder(n_kv_heads=2, positions=c.Rotary(), norm="rms", bias=False, gated=True),
        [Tokens.pad(small.sequences(6, 4), packed=True)],
    ),
    "decoder_window_sandwich": lambda: (small.decoder(window=3, window_layers=(1,), norm_place="sandwich"), [right()]),
    "decoder_post": lambda: (small.decoder(norm_place="post"), [right()]),
    "encoder_relative": lambda: (small.encoder(positions=c.RelativeBias(n_buckets=8, max_distance=16)), [right()]),
    "encoder_normed_input": lambda: (
        small.encoder(input=c.TokenInput(vocab_size=small.VOCAB, norm=True, scale=True, n_types=2), first_norm=False),
        [right()],
    ),
    "encoder_decoder": lambda: (small.encoder_decoder(), [right(), left()]),
    "pictures": pictures,
    "tags": tags,
}

SITES: dict[str, tuple[str, str, Kind]] = {
    "stream": ("decoder", "decoder.blocks.0.resid_post", "sae"),
    "post_norm_middle": ("decoder_post", "decoder.blocks.1.resid_attn", "sae"),
    "first_stream": ("tags", "encoder.blocks.0.resid_pre", "sae"),
    "last_stream": ("decoder_grouped_rotary", "decoder.blocks.1.resid_post", "sae"),
    "feed_forward": ("decoder_window_sandwich", "decoder.blocks.0.ffn.out", "sae"),
    "transcoder": ("decoder", "decoder.blocks.1.ffn", "transcoder"),
    "post_norm_transcoder": ("decoder_post", "decoder.blocks.0.ffn", "transcoder"),
    "attention": ("pictures", "encoder.blocks.1.attn.out", "sae"),
    "cross_attention": ("encoder_decoder", "decoder.blocks.0.cross.out", "sae"),
    "read_across": ("encoder_decoder", "encoder.blocks.1.resid_post", "sae"),
}


def features(network: Transformer, at: str, kind: Kind, *, k: int | None = 6, n: int = 40) -> Features:
    """Features of random directions that explain a part of the value."""
    draw = torch.Generator().manual_seed(5)
    d = network.last_stack.config.d_model
    w_dec = torch.nn.functional.normalize(torch.randn(n, d, generator=draw), dim=-1)
    w_enc = (w_dec.T if kind == "sae" else torch.randn(d, n, generator=draw)) * 0.4
    bias = 0.1 * torch.randn(n, generator=draw)
    own = Features(Site.of(network, at, kind), w_enc, bias, w_dec, torch.zeros(d), k=k)
    attach(network, own)
    return own


def traced(
    network: Transformer, inputs: Sequence[Tokens | Tensor], edit: Mapping[str, Edit] | None = None
) -> tuple[Trace, Tensor]:
    """What a trace sees, and the result."""
    with torch.no_grad(), trace(network, edit) as seen:
        return seen, network(*inputs)
