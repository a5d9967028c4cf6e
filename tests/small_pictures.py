"""Small random models of the reference library that read pictures within a text, with their processors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tokenizers
from tokenizers import pre_tokenizers, processors

from tests.later import later
from tests.parity.cases import of
from tests.parity.harness import reference

transformers = later("transformers")
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "this", "a", "red", "?", "in", " ", "\n", "\n\n", "\n\n\n"]
TEMPLATE = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %} {% endfor %}"
)
MARKS = {"gemma3": "<start_of_image>", "qwen2_5_vl": "<|vision_start|><image><|vision_end|>"}
TILES = "<fake_token_around_image>", "<global-img>", *(f"<row_{r}_col_{c}>" for r in (1, 2) for c in (1, 2))
QWEN = "<|vision_start|>", "<|vision_end|>", "w57", "<|video_pad|>"
MORE: Mapping[str, tuple[str, ...]] = {
    "gemma3": ("<start_of_image>", "<end_of_image>"),
    "idefics3": TILES,
    "qwen2_5_vl": QWEN,
}
"""Tokens before that of a vector, which is the last one."""


def _processor(family: str, words: Any) -> Any:
    side = {"height": 12, "width": 12}
    if family == "gemma3":
        return transformers.Gemma3Processor(transformers.Gemma3ImageProcessor(size=side), words, image_seq_length=9)
    if family == "paligemma":
        images = transformers.SiglipImageProcessor(size=side)
        images.image_seq_length = 9
        return transformers.PaliGemmaProcessor(images, words)
    if family == "idefics3":
        sizes = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}}
        return transformers.Idefics3Processor(transformers.Idefics3ImageProcessor(**sizes), words, image_seq_len=4)
    if family == "qwen2_5_vl":
        sizes = {"size": {"shortest_edge": 64, "longest_edge": 1024}, "patch_size": 4}
        with patch.object(transformers.ProcessorMixin, "check_argument_for_proper_class"):  # None for videos.
            return transformers.Qwen2_5_VLProcessor(transformers.Qwen2VLImageProcessorPil(**sizes), words)
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 12}, crop_size=side)
    more = {"vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return transformers.LlavaProcessor(images, words, patch_size=4, **more)


def pictured(folder: Path, family: str = "llava") -> tuple[Any, Any]:
    """Writes the folder of a model; returns the model and its processor."""
    theirs = reference(of(family)[0])
    theirs.save_pretrained(folder)
    more = MORE.get(family, ())
    names = [*WORDS, *(f"w{i}" for i in range(59 - len(WORDS) - len(more))), *more, "<image>"]
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>"))
    library.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"\n+| +|[^\s]+"), "isolated")
    if family != "paligemma":
        library.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    roles = {"image_token": "<image>"}
    roles |= dict(zip(("boi_token", "eoi_token"), more, strict=True)) if family == "gemma3" else {}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        extra_special_tokens=roles, chat_template=TEMPLATE.replace("<image>", MARKS.get(family, "<image>")),
    )  # fmt: skip
    tokenizer.add_tokens([tokenizers.AddedToken(name, special=True) for name in more])
    processor = _processor(family, tokenizer)
    for part in [processor.image_processor, tokenizer] if family == "qwen2_5_vl" else [processor]:
        part.save_pretrained(folder)
    return theirs, processor
