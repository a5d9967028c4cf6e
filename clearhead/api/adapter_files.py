"""Writes adapters in the form of the library PEFT, which `api/adapters.py` reads."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import torch
from pydantic import JsonValue
from torch import Tensor, nn

from clearhead.api.adapters import BASE_BITS, PARTS, TOP, WRAPPED, rules_of
from clearhead.checkpoints.weights import mapping
from clearhead.checkpoints.weights.documents import ADAPTER, ADAPTER_HEAD, ADAPTER_WEIGHTS
from clearhead.checkpoints.weights.mapping import Pair
from clearhead.config import Continuous, ModelConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.adapter import Adapter, adapters
from clearhead.model.fast.grouped import GroupedLinear
from clearhead.model.linear import LinearMap, parameter
from clearhead.storage.checkpoints import Checkpoint

_log = logging.getLogger("clearhead")


def export(network: Transformer, *, family: str | None, base: str | None) -> Checkpoint:
    """The adapters and the trained head as a folder of PEFT. Raises UserError for a network without adapters."""
    ours = dict(adapters(network))
    if not ours:
        remedy = "train it with --adapter.kind lora" if base is None else "merge() and save()"
        raise UserError(f"adapter: expected a model with adapters on matrices, got one without; {remedy}")
    rules = rules_of(network, family, base or "model")
    maps = (name for name, module in network.named_modules() if isinstance(module, nn.Linear | LinearMap))
    names = [f"{name}.weight" for name in maps if name.removesuffix(".base") not in ours or name in ours]
    pairs = [
        (pair, {name.removesuffix(".weight"): ours.get(name.removesuffix(".weight")) for name in pair.ours})
        for pair in mapping.pairs(rules, names)
    ]
    written = [(pair, parts) for pair, parts in pairs if any(parts.values())]
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    for pair, parts in written:
        module = pair.theirs.removesuffix(".weight")
        one = _joined(pair, parts, network)
        ranks[module] = len(one["down"])
        for end, part in PARTS.items():
            if part in one:
                tensors[f"{TOP}{module}.{end}"] = one[part]
    trained = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    own = {f"{name}.{part}" for name in ours for part in PARTS.values()}
    others = mapping.save(rules, {name: p for name, p in trained.items() if name not in own})
    adapted = {pair.theirs.removesuffix(".weight") for pair, _ in written}
    biases = [name for name in others if name.endswith(".bias") and f"{name[:-4]}weight" not in others]
    for name, tensor in others.items():
        module, _, last = name.rpartition(".")
        tensors[f"{TOP}{module}{WRAPPED if module in adapted else '.'}{last}"] = tensor
    own_only = all(name.rpartition(".")[0] in adapted for name in biases)
    config = _config(network.config, written, ranks, [pair.theirs for pair, _ in pairs])
    config["bias"] = ("lora_only" if own_only else "all") if biases else "none"
    whole: list[JsonValue] = [*dict.fromkeys(name.rpartition(".")[0] for name in others if name not in biases)]
    config |= {"base_model_name_or_path": base, "modules_to_save": whole or None}
    is_new = not network.config.predicts_tokens and "head.output.weight" in trained
    head = {ADAPTER_HEAD: network.config.head.model_dump(mode="json")} if is_new else {}
    rounded = (one.base.bits for one in ours.values() if isinstance(one.base, GroupedLinear))
    if (bits := next(rounded, None)) is not None:
        config[BASE_BITS] = bits
        _log.warning(
            "adapter: of a model in %d bits, which PEFT does not round; for other libraries, merge() and save()", bits
        )
    documents: dict[str, dict[str, JsonValue]] = {ADAPTER: config, **head}
    return Checkpoint({ADAPTER_WEIGHTS: tensors}, documents)


def _joined(pair: Pair, parts: Mapping[str, Adapter | None], network: Transformer) -> dict[str, Tensor]:
    """The matrices for one of theirs that holds these of ours."""
    there = [part for part in parts.values() if part is not None]
    first = there[0]
    if len(there) == len(parts) and all(torch.equal(first.down, part.down) for part in there):
        down, ups = first.down, [part.up for part in there]
    else:
        maps = {name: network.get_submodule(name) for name in parts}
        rows = {name: int(maps[name].out_features) for name in parts}  # pyrefly: ignore[bad-argument-type]
        own = [part.up if part else first.up.new_zeros(rows[name], first.rank) for name, part in parts.items()]
        down = torch.cat([part.down if part else torch.zeros_like(first.down) for part in parts.values()])
        ups = torch.block_diag(*own).split([len(up) for up in own])
    up, down = pair.composed([*ups], down)
    joined = {"down": down, "up": up}
    if first.magnitude is not None:
        # Rows of a part without an adapter keep their lengths.
        plain = {n: parameter(network, f"{n}.weight").norm(dim=1) for n, part in parts.items() if part is None}
        own_lengths = {n: part.magnitude for n, part in parts.items() if part and part.magnitude is not None}
        lengths = plain | own_lengths
        joined["magnitude"] = pair.composed([lengths[name][:, None] for name in parts], down)[0].flatten()
    return {name: tensor.detach().contiguous() for name, tensor in joined.items()}


def _config(
    config: ModelConfig, written: Sequence[tuple[Pair, Mapping[str, Adapter | None]]], ranks: Mapping[str, int],
    there: Sequence[str],
) -> dict[str, JsonValue]:  # fmt: skip
    """The content of adapter_config.json: ranks and factors of most matrices, and patterns for the exceptions."""
    of = {pair.theirs.removesuffix(".weight"): next(filter(None, parts.values())) for pair, parts in written}
    rank = Counter(ranks.values()).most_common(1)[0][0]
    # A matrix of n blocks has n times the rank, so alpha grows with it to keep the factor.
    grown = {m: (ranks[m] / a.rank) ** (0.5 if a.rslora else 1.0) for m, a in of.items()}
    alphas = {m: _whole(a.alpha * grown[m]) for m, a in of.items()}
    alpha = next(alphas[m] for m in of if ranks[m] == rank)
    first = next(iter(of.values()))
    return {
        "peft_type": "LORA",
        "task_type": _task(config),
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": first.dropout,
        "use_rslora": first.rslora,
        "use_dora": first.magnitude is not None,
        "fan_in_fan_out": any(pair.rule.turned for pair, _ in written),
        "init_lora_weights": True,
        "target_modules": list(_targets(list(of), [name.removesuffix(".weight") for name in there])),
        "rank_pattern": {m: n for m, n in ranks.items() if n != rank or n != of[m].rank},
        "alpha_pattern": {m: value for m, value in alphas.items() if value != alpha},
    }


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


def _targets(modules: Sequence[str], there: Sequence[str]) -> Iterator[str]:
    """The modules by the part of their names after the layer's number, where all layers have it; else whole."""

    def end(name: str) -> str:
        return re.split(r"\.\d+\.", name)[-1]

    complete = Counter(map(end, there))
    counts = Counter(map(end, modules))
    for name in dict.fromkeys(map(end, modules)):
        if counts[name] == complete[name] and sum(other.endswith(f".{name}") for other in there) == counts[name]:
            yield name
        else:
            yield from (module for module in modules if end(module) == name)


def _task(config: ModelConfig) -> str | None:
    if isinstance(config.first.input, Continuous):
        return None
    kinds = {"classification": "SEQ_CLS", "tagging": "TOKEN_CLS", "span": "QUESTION_ANS", "none": "FEATURE_EXTRACTION"}
    if config.head.kind in kinds:
        return kinds[config.head.kind]
    if config.decoder is None:
        return None
    return "SEQ_2_SEQ_LM" if config.encoder is not None else "CAUSAL_LM"
