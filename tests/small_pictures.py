"""A small random model of the reference library that reads pictures within a text, with its processor."""

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers, processors

from tests.later import later
from tests.parity.cases import PICTURED
from tests.parity.harness import reference

transformers = later("transformers")
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "this", "a", "red", "?", "in"]
TEMPLATE = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %} {% endfor %}"
)


def llava(folder: Path) -> tuple[Any, Any]:
    """Writes the folder; returns the model and its processor."""
    theirs = reference(PICTURED[0])
    theirs.save_pretrained(folder)
    names = [*WORDS, *(f"w{i}" for i in range(59 - len(WORDS))), "<image>"]
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        extra_special_tokens={"image_token": "<image>"}, chat_template=TEMPLATE,
    )  # fmt: skip
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 12}, crop_size={"height": 12, "width": 12})
    processor = transformers.LlavaProcessor(
        images, tokenizer, patch_size=4, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    processor.save_pretrained(folder)
    return theirs, processor
