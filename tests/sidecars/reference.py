"""What the reference libraries answer for a folder; what they refuse is an error."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoints.weights.modules import network_folder
from tests.sidecars.vectors import of_files


def vectors(folder: Path, texts: list[str], *, prompt: str | None) -> Tensor:
    """One vector a text, as sentence-transformers makes it, one text at a time; by its files where it is missing."""
    try:
        library: Any = import_module("sentence_transformers")
    except ImportError:
        from transformers import AutoModel

        network = AutoModel.from_pretrained(network_folder(folder), dtype=torch.float32).eval()
        vector = of_files(folder, network)
        return torch.stack([vector(text, prompt) for text in texts])
    opened = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True).float()
    asked = {"prompt": prompt, "convert_to_tensor": True, "show_progress_bar": False}
    return torch.stack([opened.encode(text, **asked) for text in texts])


def scores(folder: Path, texts: list[str]) -> list[dict[str, float]]:
    """Every label's number for each text, as the reference's pipeline says."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    if any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise ValueError(str(report))
    classify: Any = pipeline("text-classification", model=model.eval(), tokenizer=AutoTokenizer.from_pretrained(folder))
    return [{one["label"]: one["score"] for one in classify(text, top_k=None)} for text in texts]
