"""What the reference libraries answer for a folder; what they refuse is an error."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


def vectors(folder: Path, texts: list[str], *, prompt: str | None) -> Tensor:
    """One vector a text, as sentence-transformers makes it, one text at a time.

    By that library where it is installed, else by `transformers` and what follows from its documentation.
    """
    try:
        library: Any = import_module("sentence_transformers")
    except ImportError:
        return torch.stack([_vector(folder, text, prompt) for text in texts])
    opened = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return opened.encode(texts, prompt=prompt, batch_size=1, convert_to_tensor=True, show_progress_bar=False)


def scores(folder: Path, texts: list[str]) -> list[dict[str, float]]:
    """Every label's number for each text, as the reference's pipeline says."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    if any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise ValueError(str(report))
    classify: Any = pipeline("text-classification", model=model.eval(), tokenizer=AutoTokenizer.from_pretrained(folder))
    return [{one["label"]: one["score"] for one in classify(text, top_k=None)} for text in texts]


# --- the few lines ---------------------------------------------------------------------------------------------------


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else {}


def _vector(folder: Path, text: str, prompt: str | None) -> Tensor:
    from transformers import AutoModel, AutoTokenizer

    modules = _read(folder / "modules.json")
    said = _read(folder / "config_sentence_transformers.json")
    network = folder / modules[0]["path"]
    how = _read(network / "sentence_bert_config.json")
    tokenizer: Any = AutoTokenizer.from_pretrained(network)
    model = AutoModel.from_pretrained(network).eval()
    if prompt is None and said.get("default_prompt_name") is not None:
        prompt = {"query": "", "document": "", **said.get("prompts", {})}[said["default_prompt_name"]]
    own = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", 10**9))
    length = how.get("max_seq_length") or own

    def ids(text: str) -> list[int]:
        text = text.lower() if how.get("do_lower_case") else text
        return tokenizer(text, truncation=True, max_length=length)["input_ids"]

    before = len(ids(prompt)) - 1 if prompt else 0
    with torch.no_grad():
        states = model(input_ids=torch.tensor([ids((prompt or "") + text)])).last_hidden_state[0]
        x = states
        for module in modules[1:]:
            x = _applied(module["type"].rpartition(".")[2], folder / module["path"], states, x, before)
    return x


def _applied(kind: str, place: Path, states: Tensor, x: Tensor, before: int) -> Tensor:
    config = _read(place / "config.json")
    weights = _weights(place)
    match kind:
        case "Pooling":
            first = 0 if config.get("include_prompt", True) else before
            return torch.cat([_pooled(states, first, mode) for mode in _modes(config)])
        case "Dense":
            name = config.get("activation_function", "torch.nn.Tanh").rpartition(".")[2]
            out = getattr(nn, name)()(nn.functional.linear(x, weights["linear.weight"], weights.get("linear.bias")))
            return out + x if config.get("use_residual") else out
        case "LayerNorm":
            return nn.functional.layer_norm(x, x.shape, weights["norm.weight"], weights["norm.bias"])
        case "Normalize":
            return x / x.norm()
    raise ValueError(kind)


def _weights(place: Path) -> dict[str, Tensor]:
    if (place / "model.safetensors").is_file():
        return load_file(place / "model.safetensors")
    old = place / "pytorch_model.bin"
    return torch.load(old, weights_only=True) if old.is_file() else {}


def _modes(config: dict[str, Any]) -> list[str]:
    if (new := config.get("pooling_mode")) is not None:
        return [new] if isinstance(new, str) else new
    old = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    return [name for name in old if config.get(f"pooling_mode_{name}")] or ["mean"]


def _pooled(states: Tensor, first: int, mode: str) -> Tensor:
    kept = states[first:]
    match mode.removesuffix("_token").removesuffix("_tokens"):
        case "cls":
            return kept[0]
        case "max":
            return kept.max(0).values
        case "mean":
            return kept.mean(0)
        case "mean_sqrt_len":
            return kept.sum(0) / len(kept) ** 0.5
        case "weightedmean":
            weights = torch.arange(first + 1, len(states) + 1.0)[:, None]
            return (kept * weights).sum(0) / weights.sum()
        case "lasttoken":
            return kept[-1]
    raise ValueError(mode)
