"""What a file keeps of a forward pass if it cannot hold the model: its attention, and the answers without each head."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.ablation import Ablations
from clearhead.analysis.attribution import attribute_each
from clearhead.errors import UserError, sizes
from clearhead.explorer.answering.passes import LIKELIEST, Pass
from clearhead.explorer.answering.questions import Reply
from clearhead.explorer.answering.values import vector_ops
from clearhead.explorer.recording.recording import LARGEST_HALF, differences, recompute
from clearhead.model import Transformer
from clearhead.model.linear import parameter
from clearhead.model.ops import Op

MOST_BYTES = 24 << 20
"""The limit for the attention of one pass."""
SPARE_BYTES = 128 << 10
"""The space for all other values of a pass. The smallest go first."""
HALVES = re.compile(r".*\.(?:attn|cross)\.[qkv]|.*\.attn\.distance\.(?:c2p|p2c)")
"""Queries, keys, values and scores of distances, kept as float16. The page computes the rest of attention from them."""
SPLIT = 5
"""The likeliest tokens of each position whose logits are kept as sums."""
POSITIONS = "relative_bias"
"""The op whose parameters, a few for each head, are kept."""
MIXED = re.compile(r".*\.(?:attn|cross)\.z")


@dataclass(frozen=True)
class Answered:
    """One pass: its replies by name, and its entry in the file's document."""

    parts: dict[str, Reply[Any]]
    told: dict[str, Any]


def answered(found: Pass, replies: Mapping[str, Reply[Any]], *, is_plain: bool, measure: bool) -> Answered:
    """Keeps `replies` and values; with `measure` each head's effect, and for a plain pass the answers without it."""
    values, follow = _kept(found)
    run = replies["run"]
    facts = {a: fact for a, fact in run.json["facts"].items() if a in values or a in follow or a == "head.logits"}
    notes = [*run.json["notes"], *_rounding(found, values)]
    parts = {"run": Reply[Any]({**run.json, "facts": facts, "notes": notes}, run.tensors)}
    by_block: dict[str, dict[str, Tensor]] = {}
    for address, value in values.items():
        by_block.setdefault(_block(address), {})[address] = value
    parts |= {f"values-{block}": Reply[Any]({}, tensors) for block, tensors in by_block.items()}
    parts |= {"lens": replies["lens"]} if "lens" in replies else {}
    tables = {name for op in found.recording.ops.values() if op.op == POSITIONS for name in op.weights}
    if tables:
        network = found.model.network
        parts["parameters"] = Reply({}, {name: parameter(network, name).detach().float() for name in tables})
    if splits_likeliest(found.model.network):
        parts["attribution"] = _split(found)
    told: dict[str, Any] = {
        "check": recompute(found.recording).model_dump(mode="json"),
        "values": {address: f"values-{_block(address)}" for address in values},
        "heads": replies["statistics"].json["heads"],
    }
    if measure:
        effects, without = _without_heads(found, keep=is_plain)
        told["effects"] = effects
        parts |= {"without": without} if is_plain and without.json["sites"] else {}
    return Answered(parts, told)


# --- logits -----------------------------------------------------------------------------------------------------


def splits_likeliest(network: Transformer) -> bool:
    """Returns True if the logits of a network are sums over its parts, at each position of a text."""
    head = network.config.head
    return isinstance(head, c.LanguageHead) and not head.transform and head.soft_cap is None


def _split(found: Pass) -> Reply[Any]:
    """What each part adds to the likeliest tokens of every position: `shares`, part t k, and `ids`, t k."""
    assert found.recording.output is not None
    ids = found.recording.output.ids[:, :SPLIT]
    shares = attribute_each(found.model.network, found.reading.inputs, ids.long(), edit=found.edit)
    return Reply({"parts": list(shares)}, {"ids": ids, "shares": torch.stack(list(shares.values())).float().cpu()})


# --- values -----------------------------------------------------------------------------------------------------


def _read_by_vector(found: Pass) -> list[str]:
    """The states, or the vector, that a sentence encoder's own steps read."""
    return [op.inputs[0] for op in vector_ops(found.model.config, found.model.sentences)[:1]]


def _kept(found: Pass) -> tuple[dict[str, Tensor], set[str]]:
    """Values to keep, by address, and the addresses that follow from them. Raises UserError if they are too large."""
    recording = found.recording
    facts, ops = recording.facts, [*recording.ops.values()]
    halves = {a for a in recording.tensors if HALVES.fullmatch(a)}
    n_bytes = 2 * sum(recording.tensors[a].numel() for a in halves)
    if n_bytes > MOST_BYTES:
        most, got = sizes(MOST_BYTES, n_bytes)
        raise UserError(f"export: expected at most {most} of attention, got {got}; try a shorter text")
    by_hand = recording.by_hand
    known = halves | by_hand | {"encoder.embed.pixels", *recording.numbers()}
    known |= {op.out for op in _following(ops, known)}
    values = {a: _half(recording.value(a)) for a in halves} | {a: recording.value(a) for a in by_hand}
    values |= {a: recording.value(a) for a in _read_by_vector(found) if a in facts}
    features = {f"{one.reads}.{one.name}" for one in found.model.network.attached}  # The file answers about them.
    rest = sorted(facts.keys() - known - features, key=lambda a: prod(facts[a].shape))
    left = SPARE_BYTES
    for address in rest:
        left -= 4 * prod(facts[address].shape)
        if left < 0:
            break
        values[address] = recording.value(address)
    return values, {a for a in facts if a in known}


def _following(ops: Iterable[Op], known: Iterable[str]) -> list[Op]:
    """The ops whose results follow from known values. They use no weights but those of positions."""
    known, found = set(known), list[Op]()
    for op in ops:
        if op.out not in known and known.issuperset(op.inputs) and (not op.weights or op.op == POSITIONS):
            known.add(op.out)
            found.append(op)
    return found


def _half(value: Tensor) -> Tensor:
    """The value as float16, if it fits."""
    return value.half() if float(value.abs().max()) <= LARGEST_HALF else value


def _rounding(found: Pass, values: Mapping[str, Tensor]) -> list[str]:
    """A note on the largest error of weights that follow from rounded queries and keys."""
    recording = found.recording
    shares = {a: value for a, value in recording.tensors.items() if a.endswith(".weights")}
    numbers, by_hand, masks = recording.numbers(), recording.by_hand, recording.masks
    given = {a: value.float() for a, value in values.items() if HALVES.fullmatch(a) or a in by_hand}
    ops, network = _following(recording.ops.values(), {*given, *numbers}), found.model.network
    off = differences(ops, given | shares, by_hand=by_hand, numbers=numbers, masks=masks, network=network)
    most = max((one.most for one in off.values()), default=0.0)
    return [f"In this file queries, keys and values are rounded to float16: a weight is at most {most:.1g} off."]


def _block(address: str) -> str:
    found = re.match(r"(encoder|decoder)\.blocks\.\d+", address)
    return found[0] if found else "around"


# --- heads ------------------------------------------------------------------------------------------------------


def _without_heads(found: Pass, *, keep: bool) -> tuple[dict[str, float], Reply[Any]]:
    """KL(plain || without), in nats, of each head; and the answers without it, as log probabilities."""
    network, tensors = found.model.network, found.recording.tensors
    sites = [f"{a}[h={h}]" for a, value in tensors.items() if MIXED.fullmatch(a) for h in range(len(value))]
    ablations = Ablations(network, found.reading.inputs, edit=found.edit, vectors=found.model.sentences.vectors)
    effects: dict[str, float] = {}
    rows: list[Tensor] = []
    ids: list[Tensor] = []
    order: list[str] = []
    for site, logs in ablations.answers(sites):
        effects[site] = ablations.divergence(logs)
        if keep and ablations.metric is None:
            values, which = logs.topk(min(LIKELIEST, logs.shape[-1]), -1)
            order.append(site)
            rows.append(values.half().cpu() if network.config.predicts_tokens else logs.cpu())
            ids.append(which.int().cpu())
    return effects, _answers_without(found, order, rows, ids)


def _answers_without(found: Pass, sites: list[str], rows: list[Tensor], ids: list[Tensor]) -> Reply[Any]:
    """One row a site: `ids` and `values`, n t k, of a language head; of another `logits`, n and its own axes."""
    if not sites:
        return Reply({"sites": []})
    config = found.model.config
    if config.predicts_tokens:
        which = torch.stack(ids)
        return Reply({"sites": sites, "words": found.words(which)}, {"ids": which, "values": torch.stack(rows)})
    logits = torch.stack(rows)
    shape = found.recording.tensors["head.logits"].shape
    logits = logits.mT if isinstance(config.head, c.SpanHead) else logits
    return Reply({"sites": sites, "words": {}}, {"logits": logits.reshape(len(sites), *shape)})
