"""Small language models that learn a book on a laptop."""

from clearhead.config import LanguageHead, ModelConfig, Rotary, StackConfig, TokenInput

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

PRESETS = {
    "nano": ModelConfig(decoder=NANO, head=LanguageHead(tied=False)),
}
