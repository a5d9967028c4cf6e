"""What the reference libraries answer for a folder; what they refuse is an error."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.commands import check_vectors
from clearhead.weights.modules import network_folder


def vectors(folder: Path, texts: list[str], *, prompt: str | None) -> Tensor:
    """One vector a text, as sentence-transformers makes it, one text at a time."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(network_folder(folder), dtype=torch.float32).eval()
    _, vector = check_vectors.reference(folder, network)
    return torch.stack([vector(text, prompt) for text in texts])


def scores(folder: Path, texts: list[str]) -> list[dict[str, float]]:
    """Every label's number for each text, as the reference's pipeline says."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    if any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise ValueError(str(report))
    classify: Any = pipeline("text-classification", model=model.eval(), tokenizer=AutoTokenizer.from_pretrained(folder))
    return [{one["label"]: one["score"] for one in classify(text, top_k=None)} for text in texts]
