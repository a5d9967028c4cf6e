"""The configurations of models of pictures and texts, of which the text model is compared."""

from typing import Any

from tests.parity.cases.decoders import BASE
from tests.parity.cases.towers import IMAGE_BASE
from tests.parity.harness import Case, cases

TEXT = {**BASE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CLIP = {**IMAGE_BASE, "model_type": "clip_vision_model"}
SIGLIP = {**IMAGE_BASE, "model_type": "siglip_vision_model"}
OWN: dict[str, Any] = {"image_token_index": 59}


def of(text: str, **fields: Any) -> dict[str, Any]:
    return {"text_config": {**TEXT, "model_type": text, **fields}}


GEMMA = of("gemma3_text", head_dim=8, num_key_value_heads=1, sliding_window=3, query_pre_attn_scalar=7)
CASES: list[Case] = [
    *cases(
        "gemma3",
        "Gemma3ForConditionalGeneration",
        {**GEMMA, **OWN, "vision_config": SIGLIP, "mm_tokens_per_image": 4},
        {
            "untied": {"tie_word_embeddings": False},
            "deep": of("gemma3_text", head_dim=8, num_key_value_heads=3, num_hidden_layers=7),
        },
    ),
    *cases(
        "llava",
        "LlavaForConditionalGeneration",
        {**of("llama"), **OWN, "vision_config": CLIP},
        {
            "mistral": of("mistral", num_key_value_heads=1, sliding_window=3),
            "qwen2": of("qwen2", num_key_value_heads=1),
            "tied": {"tie_word_embeddings": True},
            "tied-inside": of("qwen2", num_key_value_heads=1, tie_word_embeddings=True),
        },
    ),
    *cases(
        "llava_next",
        "LlavaNextForConditionalGeneration",
        {**of("mistral", num_key_value_heads=1), **OWN, "vision_config": CLIP},
        {"llama": of("llama"), "qwen2": of("qwen2", num_key_value_heads=1), "tied": {"tie_word_embeddings": True}},
    ),
    *cases(
        "llava_onevision",
        "LlavaOnevisionForConditionalGeneration",
        {**of("qwen2", num_key_value_heads=1), **OWN, "video_token_index": 58, "vision_config": SIGLIP},
        {"tied-inside": of("qwen2", num_key_value_heads=1, tie_word_embeddings=True)},
    ),
]
