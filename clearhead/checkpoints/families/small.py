"""Small networks that learn on a laptop: a language model, a classifier of texts and one of pictures."""

from clearhead.config import (
    ClassificationHead,
    Init,
    LanguageHead,
    Learned,
    ModelConfig,
    PatchInput,
    Rotary,
    StackConfig,
    TokenInput,
)

NANO = StackConfig(
    input=TokenInput(vocab_size=256),
    d_model=128,
    n_layers=4,
    n_heads=4,
    d_ff=512,
    positions=Rotary(),
    norm="rms",
    activation="relu",
    bias=False,
)

CLASSIFIER = StackConfig(
    input=TokenInput(vocab_size=256, norm=True),
    d_model=128,
    n_layers=2,
    n_heads=4,
    d_ff=192,
    positions=Rotary(),
    first_norm=False,
    activation="gelu",
    gated=True,
    bias=False,
)

IMAGES = StackConfig(
    input=PatchInput(image_size=28, patch_size=4, n_channels=1),
    d_model=128,
    n_layers=4,
    n_heads=4,
    d_ff=256,
    positions=Learned(max_length=50),
    norm_eps=1e-6,
    activation="gelu",
)

PRESETS = {
    "nano": ModelConfig(decoder=NANO, head=LanguageHead(tied=False)),
    "classifier": ModelConfig(
        encoder=CLASSIFIER, head=ClassificationHead(n_labels=2, pool="mean", transform=True, transform_bias=False)
    ),
    "image-classifier": ModelConfig(
        encoder=IMAGES, head=ClassificationHead(n_labels=10), init=Init(depth_scaled=False)
    ),
}
