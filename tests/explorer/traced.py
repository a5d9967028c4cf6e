"""Models of every architecture for the explorer's tests: each weight random, norms and biases too."""

from collections.abc import Collection, Mapping
from typing import Any

import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.api.reader import Input
from clearhead.capture.passes import every_address
from clearhead.config.positions import Disentangled
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.explorer.recording.recording import Recording, observe
from clearhead.explorer.recording.tokens import ReadInput, read
from clearhead.machine.precision import Arithmetic
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from clearhead.trace import Edit
from tests.small_models import TEXTS

TOKENIZER = Tokenizer.train(TEXTS, Words())
V = TOKENIZER.vocab_size
WORDS = c.TokenInput(vocab_size=V)


def stack(**fields: Any) -> c.StackConfig:
    """Two layers of four heads."""
    small = {"input": WORDS, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24}
    return c.StackConfig.model_validate({**small, **fields})


LLAMA = {"norm": "rms", "bias": False, "positions": c.Rotary(), "gated": True, "activation": "silu", "n_kv_heads": 2}
BERT_INPUT = c.TokenInput(vocab_size=V, n_types=2, norm=True)
YARN = c.Rotary(scaling=c.YarnScaling(factor=4.0, original_length=8))
DISTANCES = Disentangled(max_distance=16, n_buckets=4, norm=True)
LOCAL = {"window": 3, "window_layers": (1,), "positions": YARN, "window_positions": c.Rotary(base=50.0, fraction=0.5)}
T5 = {"positions": c.RelativeBias(n_buckets=8, max_distance=16), "norm": "rms", "bias": False, "d_head": 8}
EACH = {"positions": c.RelativeBias(n_buckets=8, max_distance=16, each_layer=True)}
POST = {"norm_place": "post", "input": c.TokenInput(vocab_size=V, scale=True)}

CONFIGS: dict[str, c.ModelConfig] = {
    "encoder_decoder_post": c.ModelConfig(encoder=stack(**POST), decoder=stack(**POST), share_embeddings=True),
    "encoder_decoder_relative": c.ModelConfig(
        encoder=stack(**T5), decoder=stack(**{**T5, **EACH}, gated=True), head=c.LanguageHead(scale=0.25, tied=True)
    ),
    "decoder_pre_learned": c.ModelConfig(
        decoder=stack(positions=c.Learned(max_length=24, offset=2), activation="gelu_tanh")
    ),
    "decoder_rotary_grouped": c.ModelConfig(decoder=stack(**LLAMA, qk_norm=True), head=c.LanguageHead(tied=False)),
    "decoder_qk_norm_unturned": c.ModelConfig(decoder=stack(qk_norm=True, positions=c.NoPositions(), attn_scale=0.3)),
    "decoder_alibi_capped": c.ModelConfig(
        decoder=stack(positions=c.ALiBi(), soft_cap=1.5, window=3), head=c.LanguageHead(soft_cap=2.0, bias=True)
    ),
    "decoder_sandwich_local": c.ModelConfig(decoder=stack(norm_place="sandwich", **LOCAL)),
    "encoder_masked_language": c.ModelConfig(
        encoder=stack(input=BERT_INPUT, norm_place="post", activation="gelu", positions=DISTANCES),
        head=c.LanguageHead(transform=True, bias=True),
    ),
    "encoder_classifier": c.ModelConfig(
        encoder=stack(positions=c.Sinusoidal(layout="concatenated"), window=2, n_kv_heads=1),
        head=c.ClassificationHead(n_labels=3, pool="mean", pooler=True),
    ),
    "encoder_tagger_no_first_norm": c.ModelConfig(
        encoder=stack(input=BERT_INPUT, first_norm=False, norm="rms", positions=YARN),
        head=c.TaggingHead(n_labels=5, transform=True),
    ),
    "encoder_states": c.ModelConfig(encoder=stack(), head=c.NoHead(pooler=True)),
    "vision": c.ModelConfig(
        encoder=stack(input=c.PatchInput(image_size=8, patch_size=4), positions=c.Learned(max_length=5)),
        head=c.ClassificationHead(n_labels=3, transform=True),
    ),
}


def model_of(config: c.ModelConfig) -> Model:
    torch.manual_seed(0)
    network = Transformer(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    images = None
    stacks = config.encoder or config.output
    if isinstance(stacks.input, c.PatchInput):
        images = ImageProcessor(ImageConfig(size=PixelSize(height=8, width=8)))
    return Model(network.eval(), TOKENIZER, GenerationConfig(max_new_tokens=4), images=images)


def inputs(config: c.ModelConfig) -> tuple[Any, str | None]:
    """A text, or a source and a target, or an image."""
    if isinstance((config.encoder or config.output).input, c.PatchInput):
        return torch.arange(192).reshape(8, 8, 3).to(torch.uint8).numpy(), None
    both = config.encoder is not None and config.decoder is not None
    return "one two three four five two", "eins zwei drei vier" if both else None


def observed(
    model: Model,
    reading: ReadInput,
    edit: Mapping[str, Edit] | None = None,
    before: tuple[Recording, Collection[str]] | None = None,
) -> Recording:
    return observe(
        model,
        reading,
        edit=edit or {},
        likeliest=200,
        arithmetic=Arithmetic("fp32"),
        every=every_address(model, large=True),
        before=before,
    )


def record(model: Model, text: Input, other: str | None = None, edit: Mapping[str, Edit] | None = None) -> Recording:
    return observed(model, read(model, text, other), edit)
