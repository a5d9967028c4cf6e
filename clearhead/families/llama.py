"""The decoder of Touvron et al. 2023, in a size for one core."""

from clearhead.config import LanguageHead, ModelConfig, Rotary, StackConfig, TokenInput

PRESETS = {
    # RMSNorm before each branch, a gated SiLU, rotary positions, no bias anywhere (section 2.2).
    "llama-tiny": ModelConfig(
        decoder=StackConfig(
            input=TokenInput(vocab_size=32_000),
            d_model=288,
            n_layers=6,
            n_heads=6,
            d_ff=768,
            positions=Rotary(),
            norm="rms",
            activation="silu",
            gated=True,
            bias=False,
        ),
        head=LanguageHead(tied=True),
    )
}
