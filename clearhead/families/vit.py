"""The image encoder of Dosovitskiy et al. 2020, in the tiny size of Touvron et al. 2021 (DeiT, table 1)."""

from clearhead.config import ClassificationHead, Init, Learned, ModelConfig, PatchInput, StackConfig

PRESETS = {
    "vit-tiny": ModelConfig(
        encoder=StackConfig(
            input=PatchInput(image_size=224, patch_size=16),
            d_model=192,
            n_layers=12,
            n_heads=3,
            d_ff=768,
            positions=Learned(max_length=197),
            norm_eps=1e-6,
            activation="gelu",
        ),
        head=ClassificationHead(n_labels=1000),
        init=Init(depth_scaled=False),
    )
}
