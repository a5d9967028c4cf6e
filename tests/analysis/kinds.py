"""Small networks of every kind with an input, padding included; shared by the tests of analysis."""

from collections.abc import Callable

import torch

from clearhead import config as c
from clearhead.model import Tokens, Transformer
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
