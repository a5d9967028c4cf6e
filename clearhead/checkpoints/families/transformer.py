"""The encoder-decoder of Vaswani et al. 2017, in its published sizes and two small ones."""

from clearhead.config import Init, LanguageHead, ModelConfig, StackConfig, TokenInput


def encoder_decoder(
    d_model: int, n_layers: int, *, d_ff: int, n_heads: int, vocab_size: int, dropout: float
) -> ModelConfig:
    """Post-norm, ReLU, sinusoidal positions, one table for source, target and output (sections 3.1-3.5)."""
    stack = StackConfig(
        input=TokenInput(vocab_size=vocab_size, scale=True),
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=d_ff,
        norm_place="post",
        dropout=dropout,
    )
    return ModelConfig(
        encoder=stack,
        decoder=stack,
        head=LanguageHead(tied=True),
        share_embeddings=True,
        init=Init(matrices="xavier"),
    )


PRESETS = {
    # Vaswani et al. 2017, table 3: base and big, with the 37000 byte pairs of section 5.1.
    "transformer-base": encoder_decoder(512, 6, d_ff=2048, n_heads=8, vocab_size=37_000, dropout=0.1),
    "transformer-big": encoder_decoder(1024, 6, d_ff=4096, n_heads=16, vocab_size=37_000, dropout=0.3),
    # Wu et al. 2021 (Good for Misconceived Reasons): the size for the 29,000 pairs of Multi30k.
    "transformer-tiny": encoder_decoder(128, 4, d_ff=256, n_heads=4, vocab_size=10_000, dropout=0.3),
    # `clearhead demo`: small enough to learn its phrases in two minutes on two cores.
    "demo": encoder_decoder(128, 2, d_ff=512, n_heads=4, vocab_size=4_000, dropout=0.0),
}
