"""A family as data: the model type in its configs, a field map, and a weight table for each head."""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    ANOTHER,
    Decision,
    FieldMap,
    FieldRules,
    Only,
    get,
    ignored,
    put,
)
from clearhead.checkpoints.weights.mapping import Rule, leave_out, names_one_of, renames
from clearhead.config import (
    ClassificationHead,
    Continuous,
    Experts,
    Head,
    Init,
    LearnedGrid,
    ModelConfig,
    PatchInput,
    Rotary,
    SpanHead,
    StackConfig,
    TaggingHead,
    TokenInput,
)
from clearhead.config.positions import Positions
from clearhead.errors import UserError, refuse
from clearhead.recipe import explain

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
Document = Mapping[str, Any]
REFERENCE = "transformers 5.23.0"
"""The library whose source tells which fields change nothing there."""
MOST_NUMBERS = 1 << 16
"""Upper limit on the length of a list that a tensor holds."""
Rules = Callable[[ModelConfig], Sequence[Rule]]


@dataclass(frozen=True)
class HeadMap:
    """One head of a family: its class in the reference library, and its additions to the field map and weight table."""

    architecture: str
    """The class that the config names, such as GPT2LMHeadModel."""
    constants: Document
    """Our fixed settings for this head by path: {"head.kind": "language", ...}."""
    rules: Rules = lambda _: ()
    fields: FieldRules = ()
    prefix: str = ""
    """Prefix of the family's own tensor names in checkpoints of this class."""
    also: tuple[str, ...] = ()
    """Other class names that are read as this one."""
    also_first: bool = False
    """Whether a config may name other classes after this one."""
    presence: Mapping[str, str] = field(default_factory=dict)
    """Our switches that depend on the presence of a tensor in the checkpoint: path -> tensor name."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Their names of the head's modules -> ours."""


@dataclass(frozen=True)
class Family:
    """An architecture of the reference library, expressed in our configuration."""

    model_type: str
    constants: Document
    """Our settings common to all its models by path: {"decoder.norm": "rms", ...}."""
    fields: FieldRules
    rules: Rules
    """The weight table without heads. Their names lack the head's prefix."""
    heads: tuple[HeadMap, ...]
    """The heads. A config that names none gets the first."""
    modernize: Callable[[dict[str, Any]], dict[str, Any]] = field(default=lambda document: document)
    """Replaces older spellings of config fields by today's."""
    nest: Callable[[dict[str, Any]], dict[str, Any]] = field(default=lambda document: document)
    """Makes a written config one of several networks, where `modernize` reads such a one."""
    read_only: bool = False
    """Whether the reference library has no class for it. Its models are written as those of another family."""
    only_if: Document = field(default_factory=dict)
    """Fields, as dotted paths, whose values tell this family from another of the same model type."""
    fallback: Document = field(default_factory=dict)
    """Fields written if nothing else sets them, because the library's defaults do not fit every size."""
    stored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields whose numbers a checkpoint keeps in a tensor: field -> names of it; the first existing tensor counts."""
    without: str = ""
    """What its checkpoints hold besides this network, which is left out; empty for nothing."""
    uncounted_padding: bool = False
    """Whether its decoder counts no padding token as a position, so that texts cannot begin with one."""
    packings: tuple[str, ...] = ()
    """The methods of quantised checkpoints whose tensors its weight table restores."""
    presets: Mapping[str, ModelConfig] = field(default_factory=dict)
    """Networks by name, for a family of another package; those of this one stand in presets.toml."""

    def reads(self, document: Document) -> bool:
        """Returns True if a config names this family."""
        own = {"model_type": self.model_type, **self.only_if}
        return all(_said(document, path) == value for path, value in own.items())

    def head_of(self, document: Document, *, where: str) -> HeadMap:
        """The head that `architectures` of a config names."""
        names = document.get("architectures") or [self.heads[0].architecture]
        for head in self.heads:
            if not isinstance(names, list) or names[:1] == [] or names[0] not in (head.architecture, *head.also):
                continue
            if len(names) == 1 or head.also_first:
                return head
        known = ", ".join(head.architecture for head in self.heads)
        raise refuse(f"{where}:architectures", f"one of {known}", short(names), "try one of those")

    def map_of(self, head: HeadMap) -> FieldMap:
        """The field map of one head. The head's own entries come first."""
        return FieldMap((*head.fields, *self.fields, *COMMON))

    def read(
        self, document: Document, *, where: str, tensors: "Container[str] | Mapping[str, Tensor] | None" = None
    ) -> tuple[ModelConfig, HeadMap]:
        """Converts a config of the reference library to ours, and finds its head.

        Raises UserError, which names the field, if a field is not supported. `tensors` are the checkpoint's tensors
        or their names, if known. They decide about parts that no config field mentions.
        """
        head = self.head_of(document, where=where)
        numbers = self._numbers(head, tensors, where) if isinstance(tensors, Mapping) else {}
        fields, document = self.map_of(head), self.modernize({**document, **numbers})
        ours = fields.read(document, where=where)
        said = set[str]() if tensors is not None else {path for field in fields.fields() for path in field.ours}
        present = {path: tensors is None or name in tensors for path, name in head.presence.items() if path not in said}
        for path, value in {**self.constants, **head.constants, **present}.items():
            put(ours, path, value)
        for stack in ours.keys() & {"encoder", "decoder"}:
            ours[stack].setdefault("input", {}).setdefault("kind", "tokens")
        try:
            # Strict validation of JSON accepts lists for tuples, but not "12" for a number.
            config = ModelConfig.model_validate_json(json.dumps(ours), strict=True)
        except ValidationError as error:
            path = [str(part) for part in error.errors()[0]["loc"]]
            theirs = fields.field_of(path)
            told = re.sub(r"^:? ?((decoder|encoder|head|init)[\w.]*: )?", "", explain(error, ""))
            told = fields.translated(told, path, fields.values(document, where=where))
            mentioned = (name for name in re.findall(r"[a-z_]+(?==)", told) if name in document)
            place = theirs or next(mentioned, None)
            if theirs == "rope_parameters":
                place = f"{theirs}.{OF_ANGLES.get(path[-1], path[-1])}"
            place = f"{where}:{place}" if place else where
            raise UserError(f"{place}: {told}; {ANOTHER}", field=place) from None
        _check_causality(document, config, where)
        return config, head

    def _numbers(self, head: HeadMap, tensors: "Mapping[str, Tensor]", where: str) -> dict[str, list[float]]:
        """The fields of `stored`. Raises UserError for a tensor that is no short list of numbers."""
        found: dict[str, list[float]] = {}
        for name, known in self.stored.items():
            tensor = next((tensors[head.prefix + one] for one in known if head.prefix + one in tensors), None)
            if tensor is not None and (tensor.ndim != 1 or len(tensor) > MOST_NUMBERS):
                raise refuse(f"{where}:{name}", "a list of numbers", f"shape {list(tensor.shape)}", ANOTHER)
            if tensor is not None:
                found[name] = tensor.tolist()
        return found

    def write(self, config: ModelConfig) -> tuple[dict[str, Any], HeadMap] | None:
        """Converts our config to one that reads back as the same network, with its head. None if that is impossible."""
        ours = config.model_dump(mode="json")
        for head in () if self.read_only else self.heads:
            if ours["head"]["kind"] != head.constants["head.kind"]:
                continue
            theirs = self.map_of(head).write(ours)
            if theirs is None:
                continue
            document = {"architectures": [head.architecture], "model_type": self.model_type, **theirs, **self.only_if}
            document = self.nest(document)
            present = [name for path, name in head.presence.items() if get(ours, path)]
            try:
                back, _ = self.read(document, where=self.model_type, tensors=present)
            except UserError:
                continue
            if canonical(back) == canonical(config):
                return document, head
        return None

    def fitting(self, head: Head) -> Head:
        """Fills the unset fields of a new head with this family's values, such as a pooler."""
        for known in self.heads:
            if known.constants["head.kind"] == head.kind:
                own = {path[5:]: value for path, value in known.constants.items() if path.startswith("head.")}
                return head.model_copy(update={n: v for n, v in own.items() if n not in head.model_fields_set})
        return head

    def table(self, config: ModelConfig, head: HeadMap) -> list[Rule]:
        """The whole weight table of a model with this head."""
        own = (*renames("", "head", head.names), *head.rules(config))
        return [*own, *(prefixed(rule, head.prefix) for rule in self.rules(config))]

    @property
    def of_unread(self) -> str:
        """What is told of a field without an entry."""
        if self.read_only and not self.without:
            return "not read here, though its own code may read it"
        return f"not read, as it changes no number in {REFERENCE} either"

    def unknown(self, document: Document, *, where: str) -> list[str]:
        """The fields of a config without an entry, which have no effect here: see `of_unread`."""
        return self.map_of(self.head_of(document, where=where)).unknown(self.modernize(dict(document)))

    def decisions(self, document: Document, *, where: str) -> list[Decision]:
        """The effect of each field of a config."""
        head = self.head_of(document, where=where)
        fields = self.map_of(head)
        return list(fields.decisions(self.modernize(dict(document)), where=where, unread=self.of_unread))


def _said(document: Document, path: str) -> object:
    """The value at a dotted path; None if there is none."""
    value: object = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def prefixed(rule: Rule, prefix: str) -> Rule:
    """The same rule with `prefix` before the names in the checkpoint."""
    if not prefix:
        return rule
    return replace(rule, theirs=tuple(prefix + name for name in rule.theirs))


def _check_causality(document: Document, config: ModelConfig, where: str) -> None:
    """Raises UserError for an `is_causal` with which shared code of the reference library changes a stack's mask."""
    said, stacks = document.get("is_causal"), {name == "decoder" for name in config.stacks}
    if said is not None and stacks != {said}:
        expected = "none" if len(stacks) > 1 else stacks.pop()
        raise refuse(f"{where}:is_causal", f"{expected}, as its attention is", short(said), ANOTHER)


def canonical(config: ModelConfig) -> ModelConfig:
    """The same function with every default written out, and with initialisation and dropout reset."""
    stacks = {name: stack and _canonical(stack) for name, stack in (("e", config.encoder), ("d", config.decoder))}
    has_dropout = isinstance(config.head, ClassificationHead | TaggingHead | SpanHead)
    head = config.head.model_copy(update={"dropout": 0.0}) if has_dropout else config.head
    return config.model_copy(update={"encoder": stacks["e"], "decoder": stacks["d"], "head": head, "init": Init()})


BIASED = ("qkv", "key", "out", "ffn", "down", "norm")


def _canonical(stack: StackConfig) -> StackConfig:
    return stack.model_copy(
        update={
            "bias": True,
            **{f"{part}_bias": getattr(stack, f"has_{part}_bias") for part in BIASED},
            "d_head": stack.head_width,
            "n_groups": stack.n_layers // stack.repeats,
            "n_kv_heads": stack.kv_heads,
            "attn_scale": stack.score_scale,
            "final_norm": stack.has_final_norm,
            "positions": _unlimited(stack.positions),
            "experts": stack.experts and _canonical_experts(stack.experts, stack.d_ff),
            "input": _as_trained(stack),
            **dict.fromkeys(("dropout", "embed_dropout", "attn_dropout", "ffn_dropout"), 0.0),
        }
    )


def _canonical_experts(experts: Experts, d_ff: int) -> Experts:
    """The same choice, whatever training adds to the loss."""
    groups = experts.n_groups or 1
    whole = {"n_groups": groups, "n_groups_chosen": experts.n_groups_chosen or groups}
    return experts.model_copy(update={"d_ff": experts.d_ff or d_ff, "balance": 0.0, **whole})


def _as_trained(stack: StackConfig) -> TokenInput | Continuous:
    """The input, with pictures of the size that its table of positions is for."""
    if not isinstance(stack.input, PatchInput) or not isinstance(stack.positions, LearnedGrid):
        return stack.input
    return stack.input.model_copy(update={"image_size": stack.positions.side * stack.input.patch_size})


def _unlimited(positions: Positions) -> Positions:
    """The same angles without the trained length."""
    return positions.model_copy(update={"trained_length": None}) if isinstance(positions, Rotary) else positions


OF_ANGLES = {"base": "rope_theta", "original_length": "original_max_position_embeddings"}
"""Our settings that stand under these names in the table of rotary angles."""
_TABLE = tomllib.loads(files("clearhead.checkpoints.families").joinpath("common.toml").read_text(encoding="utf-8"))
COMMON: FieldRules = (
    ignored(*_TABLE["ignored"]),
    *(Only(name, None) for name in _TABLE["absent"]),
    *(Only(name, value) for name, value in _TABLE["only"].items()),
)
"""Fields of any config that change no computed number, or that support only their usual value."""


# --- tensors under the names of another class of the same family ---------------------------------------------------


def respelled(
    family: Family, head: HeadMap, document: Document, tensors: Mapping[str, T], *, where: str
) -> dict[str, T]:
    """The tensors under the names that checkpoints of this class use, where they have those of another class."""
    is_own = names_one_of(family.table(family.read(document, where=where)[0], head))
    prefixes = sorted({"", *(other.prefix for other in family.heads)}, key=len, reverse=True)
    names: dict[str, str] = {}
    for name in tensors:
        spellings = (head.prefix + name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix))
        own = name if is_own(name) else next(filter(is_own, spellings), name)
        names[name] = name if own in tensors else own
    return {names[name]: tensor for name, tensor in tensors.items()}


def other_heads(
    family: Family, head: HeadMap, document: Document, names: Collection[str], rules: list[Rule], *, where: str
) -> list[Rule]:
    """Rules that leave out the tensors of heads that this class does not have."""
    is_own = names_one_of(rules)
    left, found = [name for name in names if not is_own(name)], list[Rule]()
    for other in family.heads if left else ():
        if other is head:
            continue
        try:
            config, _ = family.read({**document, "architectures": [other.architecture]}, where=where)
        except UserError:
            continue
        is_theirs = names_one_of(family.table(config, other))
        if theirs := [name for name in left if is_theirs(name)]:
            found.append(leave_out(*theirs, because=f"{head.architecture} has no head of {other.architecture}"))
            left = [name for name in left if name not in theirs]
    return found
