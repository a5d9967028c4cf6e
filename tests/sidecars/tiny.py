"""Tiny random models of the reference library with a tokenizer of letters, to be changed."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGH"
SIZES: dict[str, dict[str, Any]] = {
    "Bert": {"intermediate_size": 24, "max_position_embeddings": 48, "hidden_size": 16},
    "ModernBert": {"intermediate_size": 24, "max_position_embeddings": 48, "hidden_size": 16},
    "Llama": {"intermediate_size": 24, "max_position_embeddings": 48, "hidden_size": 16},
    "GPT2": {"n_positions": 48, "n_embd": 16},
}


def tokenizer(folder: Path, **settings: object) -> None:
    """Each letter is a token; [CLS] and [SEP] stand around a text."""
    import transformers

    words = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    transformers.PreTrainedTokenizerFast(tokenizer_object=library, **names, **settings).save_pretrained(folder)


def network(folder: Path, family: str, kind: str, seed: int, **fields: object) -> None:
    """A model of this class, such as Bert and ForSequenceClassification, every weight drawn at random."""
    import transformers

    architecture = getattr(transformers, family + kind)
    sizes = {"n_layer": 2, "n_head": 2} if family == "GPT2" else {"num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "vocab_size": len(SPECIAL) + 2 * len(LETTERS)}
    more = {"cls_token_id": 2, "sep_token_id": 3} if family == "ModernBert" else {}
    config = architecture.config_class(**{**SIZES[family], **sizes, **ids, **more, **fields})
    model = architecture(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.save_pretrained(folder)


def texts(draw: random.Random, n: int = 3) -> list[str]:
    """A few words of letters, in both cases."""
    return [
        " ".join("".join(draw.choices(LETTERS, k=draw.randint(1, 4))) for _ in range(draw.randint(1, 7)))
        for _ in range(n)
    ]


def document(path: Path) -> Any:
    return json.loads(path.read_text())


def put(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def change(path: Path, changes: Mapping[str, object]) -> None:
    put(path, {**document(path), **changes})
