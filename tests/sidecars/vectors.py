"""Vectors of texts as sentence-transformers 6.2.0 makes them of the module files of a folder.

Shares no code with `Model.embed`, so that each checks the other. `python -m tests.sidecars` asks the library itself
where it is installed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from clearhead.checkpoints.weights.documents import read_json, read_list
from clearhead.checkpoints.weights.modules import MODULES, SETTINGS

Vector: TypeAlias = Callable[[str, str | None], Tensor]
"""The vector of a text after a prompt; None stands for the default prompt of the folder."""


def of_files(folder: Path, network: Any) -> Vector:
    """The vector of one text: the states of `network`, then the modules that modules.json lists."""
    from tokenizers import normalizers
    from transformers import AutoTokenizer

    entries: list[Any] = read_list(folder / MODULES)
    first, *modules = entries
    said = _read(folder / SETTINGS)
    place = folder / first["path"]
    names = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    how = next(filter(None, (_read(place / f"sentence_{name}_config.json") for name in names)), {})
    tokenizer: Any = AutoTokenizer.from_pretrained(str(place), local_files_only=True)
    if how.get("do_lower_case"):
        library = tokenizer.backend_tokenizer
        before = [] if library.normalizer is None else [library.normalizer]
        library.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])
    own = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", 10**9))
    default = {"query": "", "document": "", **said.get("prompts", {})}.get(said.get("default_prompt_name"), "")

    def ids(text: str) -> list[int]:
        return tokenizer(text, truncation=True, max_length=how.get("max_seq_length") or own)["input_ids"]

    def vector(text: str, prompt: str | None) -> Tensor:
        prompt = default if prompt is None else prompt
        n_prompt = len(ids(prompt)) - 1 if prompt else 0
        with torch.no_grad():
            states = network(input_ids=torch.tensor([ids(prompt + text)])).last_hidden_state[0]
            x = states
            for module in modules:
                kind = module["type"].rpartition(".")[2]
                x = _applied(kind, folder / module["path"], states=states, x=x, n_prompt=n_prompt)
        return x[: said.get("truncate_dim")]

    return vector


def _applied(kind: str, place: Path, *, states: Tensor, x: Tensor, n_prompt: int) -> Tensor:
    config = _read(place / "config.json")
    match kind:
        case "Pooling":
            first = 0 if config.get("include_prompt", True) else n_prompt
            return torch.cat([_pooled(states, first, mode) for mode in _modes(config)])
        case "Dense":
            weights = _weights(place)
            name = config.get("activation_function", "torch.nn.Tanh").rpartition(".")[2]
            out = getattr(nn, name)()(nn.functional.linear(x, weights["linear.weight"], weights.get("linear.bias")))
            if not config.get("use_residual"):
                return out
            return out + (nn.functional.linear(x, weights["residual.weight"]) if "residual.weight" in weights else x)
        case "LayerNorm":
            weights = _weights(place)
            return nn.functional.layer_norm(x, x.shape, weights["norm.weight"], weights["norm.bias"])
        case "Normalize":
            return x / x.norm()
        case "Dropout":
            return x
    raise ValueError(f"{place}: {kind}")


def _modes(config: dict[str, Any]) -> Iterator[str]:
    new = config.get("pooling_mode")
    if new is not None:
        yield from [new] if isinstance(new, str) else new
        return
    known = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    yield from [mode for mode in known if config.get(f"pooling_mode_{mode}")] or ["mean"]


def _pooled(states: Tensor, first: int, mode: str) -> Tensor:
    kept = states[first:]
    match mode.removesuffix("_token").removesuffix("_tokens"):
        case "cls":
            return kept[0]
        case "lasttoken":
            return kept[-1]
        case "max":
            return kept.amax(0)
        case "mean":
            return kept.mean(0)
        case "mean_sqrt_len":
            return kept.sum(0) / len(kept) ** 0.5
        case "weightedmean":
            weights = torch.arange(first + 1, len(states) + 1.0)[:, None]
            return (kept * weights).sum(0) / weights.sum()
    raise ValueError(mode)


def _read(path: Path) -> Any:
    return read_json(path) if path.is_file() else {}


def _weights(place: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    path = place / "model.safetensors"
    found = load_file(path) if path.is_file() else torch.load(place / "pytorch_model.bin", weights_only=True)
    return {name: tensor.float() for name, tensor in found.items()}
