"""The encoder of Devlin et al. 2018, with the head of its masked-word objective."""

from clearhead.config import Init, LanguageHead, Learned, ModelConfig, StackConfig, TokenInput

PRESETS = {
    "bert-base": ModelConfig(
        encoder=StackConfig(
            input=TokenInput(vocab_size=30_522, n_types=2, norm=True),
            d_model=768,
            n_layers=12,
            n_heads=12,
            d_ff=3072,
            positions=Learned(max_length=512),
            norm_place="post",
            norm_eps=1e-12,
            activation="gelu",
            dropout=0.1,
            attn_dropout=0.1,
        ),
        head=LanguageHead(tied=True, bias=True, transform=True),
        init=Init(depth_scaled=False),
    )
}
