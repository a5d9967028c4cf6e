"""The decoder of Radford et al. 2019, in its two smaller sizes."""

from clearhead.config import LanguageHead, Learned, ModelConfig, StackConfig, TokenInput


def decoder(d_model: int, n_layers: int, *, n_heads: int) -> ModelConfig:
    """Pre-norm, tanh GELU, learned positions, output tied to the token table (section 2.3)."""
    return ModelConfig(
        decoder=StackConfig(
            input=TokenInput(vocab_size=50_257),
            d_model=d_model,
            n_layers=n_layers,
            n_heads=n_heads,
            d_ff=4 * d_model,
            positions=Learned(max_length=1024),
            activation="gelu_tanh",
            dropout=0.1,
            attn_dropout=0.1,
        ),
        head=LanguageHead(tied=True),
    )


PRESETS = {
    "gpt2": decoder(768, 12, n_heads=12),
    "gpt2-medium": decoder(1024, 24, n_heads=16),
}
