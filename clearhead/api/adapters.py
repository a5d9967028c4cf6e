"""Reads adapters of the library PEFT, adapter_config.json and adapter_model.safetensors, and puts them on a network.

PEFT keeps one pair of matrices for each matrix of theirs. Where theirs holds several of ours, such as queries, keys and
values in one, the parts share A and have their rows of B. Parts with matrices A of their own are written as one block
after the other, at a rank as many times larger. The change of a token table becomes a part of it, which is then written
whole. A head that a config ties to the table is a matrix of its own as soon as one of the two changes, as in PEFT.
"""

import hashlib
import logging
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from clearhead.brief import brief
from clearhead.checkpoints.families import family_for
from clearhead.checkpoints.weights import mapping
from clearhead.checkpoints.weights.documents import (
    ADAPTER,
    ADAPTER_HEAD,
    ADAPTER_WEIGHTS,
    AGAIN,
    CONFIG_LIMIT,
    read_json,
    short,
    shown,
)
from clearhead.checkpoints.weights.mapping import Pair, Rule
from clearhead.config import ClassificationHead, Head, LanguageHead, ModelConfig, SpanHead, TaggingHead
from clearhead.errors import UserError, reason
from clearhead.model import Transformer
from clearhead.model.adapter import Adapter, freeze, round_blocks
from clearhead.model.fast.grouped import GroupedLinear
from clearhead.recipe.contract import FILE, Contract
from clearhead.storage.tensors import check_finite

_log = logging.getLogger("clearhead")

TOP = "base_model.model."
PARTS = {"lora_A.weight": "down", "lora_B.weight": "up", "lora_magnitude_vector": "magnitude"}
TABLE = {"lora_embedding_A": "table_down", "lora_embedding_B": "table_up"}
"""The end of a tensor's name, and our name for it."""
WRAPPED = ".base_layer."
"""The part of a name that says that the tensor is one of the model below an adapter."""
PLAIN_INIT = (True, False, None, "gaussian", "eva", "orthogonal")
"""First values that leave the model below the adapter as it was."""
BASE_BITS = "clearhead_base_bits"
"""Our field of the bits of the model below. PEFT does not know it, and warns of it."""
READ = frozenset(
    f"{BASE_BITS} alpha_pattern auto_mapping base_model_name_or_path bias exclude_modules fan_in_fan_out inference_mode"
    " init_lora_weights layers_pattern layers_to_transform lora_alpha lora_dropout megatron_core modules_to_save"
    " peft_type peft_version qalora_group_size r rank_pattern revision target_modules task_type use_dora"
    " use_rslora".split()
)
"""Fields that are read, or that the tensors' names make superfluous. Any other must be empty."""


@dataclass(frozen=True)
class SavedAdapter:
    """The content of an adapter's folder."""

    __repr__ = brief

    where: Path
    document: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    """By the name of the tensor in the whole model, and for adapters that of the matrix with `.down`, `.up` or
    `.magnitude`."""
    kept: Mapping[str, Any] | None
    """Our description of the head, if we wrote the folder."""
    contract: Contract = field(default_factory=Contract)

    @classmethod
    def read(cls, folder: Path) -> "SavedAdapter":
        """Raises UserError for another kind of adapter, and for a file that is damaged or of an older form."""
        where = folder / ADAPTER
        document = read_json(where, limit=CONFIG_LIMIT)
        if document.get("peft_type") != "LORA":
            got = short(document.get("peft_type"))
            raise UserError(f"{where}:peft_type: expected LORA, got {got}; try merging it with PEFT: merge_and_unload")
        init = document.get("init_lora_weights")
        odd = {name: value for name, value in document.items() if name not in READ and value}
        odd |= {} if init in PLAIN_INIT else {"init_lora_weights": init}
        for name, value in odd.items():
            expected = f"{where}:{shown(name)}: expected an adapter without it, got {short(value)}"
            raise UserError(f"{expected}; try merging it with PEFT: merge_and_unload, then save_pretrained")
        path = folder / ADAPTER_WEIGHTS
        if not path.is_file():
            raise UserError(f"{path}: expected the adapter's weights, got none; save it again with safetensors")
        try:
            tensors_of_file = load_file(path)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise UserError(f"{path}: expected a whole safetensors file, got {reason(error)}; {AGAIN}") from error
        check_finite(tensors_of_file, where=str(path), remedy=AGAIN)
        kept = read_json(folder / ADAPTER_HEAD, limit=CONFIG_LIMIT) if (folder / ADAPTER_HEAD).is_file() else None
        tensors = {_our_end(name.removeprefix(TOP)): tensor for name, tensor in tensors_of_file.items()}
        under = folder / FILE
        contract = Contract.read(read_json(under, limit=CONFIG_LIMIT), under) if under.is_file() else Contract()
        if document.get(BASE_BITS) != contract.base_bits:
            got = f"{short(document.get(BASE_BITS))} in {ADAPTER}:{BASE_BITS} and {contract.base_bits} in {FILE}"
            raise UserError(f"{folder}: expected the bits of the model below in both files, got {got}; {AGAIN}")
        return cls(path, document, tensors, kept, contract)

    @property
    def base(self) -> str:
        """The model that the adapter is of. Raises UserError if the folder does not say."""
        name = self.document.get("base_model_name_or_path")
        if not isinstance(name, str) or not name:
            place = f"{self.where.parent / ADAPTER}:base_model_name_or_path"
            raise UserError(f"{place}: expected the model that it is of, got none; give load(…, base=FOLDER)")
        return name

    @property
    def revision(self) -> str | None:
        """The revision of the model that the adapter is of; None if the folder does not say."""
        return self.document.get("revision")

    @property
    def modules(self) -> list[str]:
        """The matrices with adapters, under their names without `.weight`."""
        return [name.removesuffix(".down") for name in self.tensors if name.endswith(".down")]

    @property
    def tables(self) -> list[str]:
        """The token tables with adapters, under their names without `.weight`."""
        return [name.removesuffix(".table_down") for name in self.tensors if name.endswith(".table_down")]

    @property
    def others(self) -> dict[str, Tensor]:
        """Tensors that replace tensors of the model, such as the tensors of a new head."""
        ends = tuple(f".{part}" for part in (*PARTS.values(), *TABLE.values()))
        tensors = {name.replace(WRAPPED, "."): one for name, one in self.tensors.items() if not name.endswith(ends)}
        return {name: tensor for name, tensor in tensors.items() if name not in self.below}

    @property
    def below(self) -> dict[str, Tensor]:
        """Tensors of the model below an adapter, which were not trained."""
        ends = (".weight",) if self.document.get("bias", "none") != "none" else (".weight", ".bias")
        named = {name: one for name, one in self.tensors.items() if WRAPPED in name and name.endswith(ends)}
        return {name.replace(WRAPPED, "."): tensor for name, tensor in named.items()}

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return next((tensor.dtype for tensor in self.tensors.values()), torch.float32)

    def number(self, field: str, module: str, default: float) -> float:
        """The value of a field for one matrix, from the table of patterns of that field."""
        patterns = self.document.get(f"{field}_pattern") or {}
        fits = (value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module))
        return float(next(fits, default))

    def scale(self, module: str, rank: int) -> float:
        """The factor of the change of one matrix."""
        alpha = self.number("alpha", module, self.document.get("lora_alpha") or 8)
        return alpha / (math.sqrt(rank) if self.document.get("use_rslora") else rank)

    def head(self, config: ModelConfig) -> Head | None:
        """The head that was trained with the adapter; None for that of the model itself."""
        task, sizes = self.document.get("task_type"), [len(t) for t in self.others.values() if t.ndim == 2]
        if self.kept is not None:
            return ModelConfig.model_validate({**dict(config), "head": self.kept}).head
        if task not in ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS") or not sizes:
            return None
        if task == "QUESTION_ANS":
            return SpanHead()
        if task == "TOKEN_CLS":
            return TaggingHead(n_labels=min(sizes))
        place: dict[str, Any] = {"pool": "last"} if config.decoder is not None else {}
        return ClassificationHead(n_labels=min(sizes), **place)


def _our_end(name: str) -> str:
    for theirs, ours in (PARTS | TABLE).items():
        if name.endswith((f".{theirs}", f".{theirs}.weight")):
            return f"{name.partition(f'.{theirs}')[0]}.{ours}"
    return name


MATRICES = (nn.Linear, GroupedLinear)


def put_on(network: Transformer, saved: SavedAdapter, family: str | None, *, base: str) -> None:
    """Puts the adapters on the network, in place. Raises UserError for adapters of another model."""
    rules = rules_of(network, family, base)
    names = [name for name, one in network.named_modules() if isinstance(one, (*MATRICES, nn.Embedding))]
    known = {pair.theirs: pair for pair in mapping.pairs(rules, [f"{name}.weight" for name in names])}
    another = f"give the model that it was made from: load(…, base=FOLDER); {base} is another"
    _check_below(network, saved, known, base)
    if (bits := saved.contract.base_bits) is not None:
        round_blocks(network, bits)
    plain = {name: network.get_submodule(name) for name in names}
    chosen = _chosen(saved, rules, known, plain, f"{base}, got none; {another}")
    loaded = mapping.load(rules, {name: t.clone() for name, t in saved.others.items()}, where=str(saved.where))
    tables = {name for module in saved.tables if module in chosen for name in chosen[module][0].ours}
    whole = {*loaded.tensors, *tables}
    _check_base(network, saved, whole, base)
    untie(network, saved, loaded.tensors)
    there = dict(network.named_parameters())
    for module, (pair, maps) in chosen.items():
        try:
            if module in saved.tables:
                _add(saved, module, pair, maps)
            else:
                _put(network, saved, module, pair, maps)
        except UserError as error:
            raise UserError(f"{saved.where}:{shown(module)}: {error}; {another}") from None
    for name, tensor in loaded.tensors.items():
        if name not in there or there[name].shape != tensor.shape:
            got = f"shape {list(tensor.shape)}"
            raise UserError(f"{saved.where}:{loaded.origin[name]}: expected a weight of {base}, got {got}; {another}")
        there[name].data = tensor.to(there[name].dtype)
    freeze(network)
    for name, parameter in there.items():
        if name.startswith("head.") or name in whole:
            parameter.requires_grad_(name in whole)


def _check_base(network: Transformer, saved: SavedAdapter, trained: Collection[str], base: str) -> None:
    """Warns if the weights below the adapters differ from those in training, unless they are rounded differently."""
    known, kind = saved.contract, network.dtype_name
    is_alike = kind == known.base_dtype or (known.base_bits is None and "float16" not in (kind, known.base_dtype))
    if known.base_sha256 is not None and is_alike and fingerprint(network, trained) != known.base_sha256:
        _log.warning("%s: made from another model than %s, whose weights differ; check its base", saved.where, base)


def _chosen(
    saved: SavedAdapter, rules: Sequence[Rule], known: Mapping[str, Pair], plain: Mapping[str, nn.Module], expected: str
) -> dict[str, tuple[Pair, dict[str, nn.Module]]]:
    """The matrices and tables with adapters, and our maps that hold their numbers."""
    is_left_out = mapping.names_one_of([rule for rule in rules if rule.note])
    chosen: dict[str, tuple[Pair, dict[str, nn.Module]]] = {}
    for module in (*saved.modules, *saved.tables):
        if is_left_out(f"{module}.weight"):
            _log.warning("%s: left out %s, as the model that it is of leaves out its matrix", saved.where, module)
            continue
        pair = known.get(f"{module}.weight")
        ours = () if pair is None else pair.ours
        maps: dict[str, nn.Module] = {(at := name.removesuffix(".weight")): plain[at] for name in ours}
        kinds = MATRICES if module in saved.modules else nn.Embedding
        if pair is None or not all(isinstance(one, kinds) for one in maps.values()):
            raise UserError(f"{saved.where}:{shown(module)}: expected a matrix of {expected}")
        chosen[module] = pair, maps
    return chosen


def _check_below(network: Transformer, saved: SavedAdapter, known: Mapping[str, Pair], base: str) -> None:
    """Raises UserError if the file has other numbers than the model for what lies below an adapter."""
    for name, tensor in saved.below.items():
        parts = zip(known[name].ours, known[name].rule.load([tensor]), strict=True) if name in known else ()
        if any(not torch.equal(network.get_parameter(one), part.to(network.get_parameter(one))) for one, part in parts):
            got = "others; merge the adapter where it was made"
            raise UserError(f"{saved.where}:{shown(name)}: expected the numbers of {base}, got {got}")


def untie(network: Transformer, saved: SavedAdapter, tensors: Mapping[str, Tensor]) -> None:
    """Gives the head a matrix of its own, in place, if the adapter changes it or the table that it is tied to.

    Raises UserError for another table of a network whose encoder and decoder share theirs.
    """
    if network.config.share_embeddings and (saved.tables or any(".embed.tokens." in name for name in tensors)):
        raise UserError(
            f"{saved.where}: expected adapters on matrices, got one on the table that encoder and decoder share;"
            " merge it where it was made"
        )
    head = network.config.head
    if not isinstance(head, LanguageHead) or not head.tied:
        return
    output = network.get_submodule("head.output")
    tables = {name for name, p in network.named_parameters() if p is output.get_parameter("weight")}
    if not (saved.tables or (tables | {"head.output.weight"}) & {*tensors}):
        return
    own = nn.Parameter(output.get_parameter("weight").detach().clone(), requires_grad=False)
    output.register_parameter("weight", own)
    network.config = network.config.model_copy(update={"head": head.model_copy(update={"tied": False})})


def _fitting(down: Tensor | None, up: Tensor | None, wide: int, high: int) -> tuple[Tensor, Tensor]:
    """Both matrices of an adapter. Raises UserError unless they are there, with the sizes of the matrix below."""
    if down is None or up is None or [*down.shape] != [len(down), wide] or [*up.shape] != [high, len(down)]:
        got = " and ".join("none" if one is None else str([*one.shape]) for one in (down, up))
        raise UserError(f"expected shapes [r, {wide}] and [{high}, r], got {got}")
    return down, up


def _add(saved: SavedAdapter, module: str, pair: Pair, tables: Mapping[str, nn.Module]) -> None:
    """Adds the change of a token table to it, in place.   W + s (B A)^T"""
    down, up = saved.tensors[f"{module}.table_down"], saved.tensors.get(f"{module}.table_up")
    (table,) = tables.values()
    assert isinstance(table, nn.Embedding)
    rows, width = table.weight.shape
    down, up = _fitting(down, up, rows, width)
    (change,) = pair.rule.load([saved.scale(module, len(down)) * (up @ down).mT])
    weight = table.weight.detach() + change.to(table.weight.dtype)
    if (length := saved.tensors.get(f"{module}.magnitude")) is not None:
        weight = weight * (length.flatten().to(weight) / weight.norm(dim=0))
    table.weight.data = weight


def _put(network: Transformer, saved: SavedAdapter, module: str, pair: Pair, linears: Mapping[str, nn.Module]) -> None:
    """Puts the adapter of one of PEFT's matrices on our matrices that it contains."""
    parts = {part: saved.tensors.get(f"{module}.{part}") for part in PARTS.values()}
    down, up = parts["down"], parts["up"]
    sizes = [(one.in_features, one.out_features) for one in linears.values() if isinstance(one, MATRICES)]
    wide, high = sizes[0][0], sum(rows for _, rows in sizes)
    down, up = _fitting(down, up, wide, high)
    is_dora, is_root, n = bool(saved.document.get("use_dora")), bool(saved.document.get("use_rslora")), len(linears)
    alpha = saved.number("alpha", module, saved.document.get("lora_alpha") or 8)
    ups, down = pair.divided(up, down)
    downs, ups = [down] * n, [*ups]
    if n > 1 and _is_blocks(saved, module, ups):
        downs, ups = [*down.chunk(n)], [one.chunk(n, 1)[i].contiguous() for i, one in enumerate(ups)]
        alpha /= math.sqrt(n) if is_root else n
    length = parts["magnitude"]
    magnitudes = [None] * n if length is None else [*pair.divided(length.view(-1, 1), down)[0]]
    shared: nn.Parameter | None = None
    for i, (name, linear) in enumerate(linears.items()):
        if not ups[i].any() and not downs[i].any():
            continue
        assert isinstance(linear, MATRICES)
        adapter = Adapter(
            linear,
            rank=len(downs[i]),
            alpha=alpha,
            dropout=saved.document.get("lora_dropout") or 0.0,
            rslora=is_root,
            dora=is_dora,
        )
        dtype = adapter.down.dtype
        adapter.down = nn.Parameter(downs[i].to(dtype)) if shared is None or downs[i] is not down else shared
        shared = adapter.down
        adapter.up = nn.Parameter(ups[i].to(dtype).clone())
        if (length := magnitudes[i]) is not None:
            adapter.magnitude = nn.Parameter(length.flatten().to(dtype).clone())
        for same in _runs_of(network, name, linear):
            network.set_submodule(same, adapter.train(linear.training))


def _runs_of(network: Transformer, name: str, linear: nn.Module) -> list[str]:
    """The addresses of a map in all blocks that have its weights."""
    if not isinstance(linear, nn.Linear) or all(stack.repeats == 1 for stack in network.config.stacks.values()):
        return [name]
    maps = ((n, m) for n, m in network.named_modules() if ".blocks." in n and isinstance(m, nn.Linear))
    return [name, *(n for n, m in maps if m.weight is linear.weight and n != name)]


def _is_blocks(saved: SavedAdapter, module: str, ups: Sequence[Tensor]) -> bool:
    """True if the rows of each part read only a part of the columns of their own."""
    n = len(ups)
    is_patterned = module in (saved.document.get("rank_pattern") or {})
    if not is_patterned or ups[0].shape[1] % n or not any(up.any() for up in ups):
        return False
    blocks = [up.chunk(n, 1) for up in ups]
    return not any(blocks[i][j].any() for i in range(n) for j in range(n) if i != j)


def fingerprint(network: Transformer, trained: Collection[str]) -> str:
    """Hash of the weights below adapters and head but for these: vectors, and three rows of a matrix, in bfloat16."""
    all_of_them = network.named_modules(remove_duplicate=False)  # A shared block has its adapter once for each run.
    adapters = [name for name, one in all_of_them if isinstance(one, Adapter)]
    own = {f"{name}.{part}" for name in adapters for part in PARTS.values()} | {*trained}
    weights = {n.replace(".base.", "."): one for n, one in network.state_dict().items() if n not in own}
    digest = hashlib.sha256()
    for _, one in sorted((n, one) for n, one in weights.items() if not n.startswith("head.")):
        rows = one[[0, len(one) // 2, -1]] if one.ndim > 1 else one
        digest.update(rows.reshape(-1).to(torch.bfloat16).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def rules_of(network: Transformer, family: str | None, base: str) -> list[Rule]:
    """The weight table of the family, as if no head were tied. Raises UserError if no family has this architecture."""
    config, head = network.config, network.config.head
    tied, apart = (
        config.model_copy(update={"head": head.model_copy(update={"tied": is_tied})})
        if isinstance(head, LanguageHead)
        else config
        for is_tied in (True, False)
    )
    match = family_for(config, family) or family_for(tied, family)
    if match is None:
        raise UserError(
            f"{base}: expected an architecture that other libraries have, got one of our own; PEFT has no names for it,"
            " so keep the run itself, or merge() and save()"
        )
    return match[0].table(apart, match[1])
