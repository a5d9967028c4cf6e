"""T5Gemma (Zhang et al. 2025): Gemma 2's blocks as an encoder and as a decoder that reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.as_encoder import as_encoder, encoding
from clearhead.checkpoints.families.decoders.llama import renamed
from clearhead.checkpoints.families.decoders.two_kinds import GEMMA2, SANDWICH
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import bare, decoder_language
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    ANOTHER,
    REQUIRED,
    Field,
    FieldRule,
    FieldRules,
    Values,
    computed,
    ignored,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import ModelConfig
from clearhead.errors import refuse

MODULE, CAP = "t5_gemma_module", "final_logit_softcapping"


def _inclusive(field: FieldRule) -> FieldRule:
    """The encoder's window, which reaches sliding_window tokens to each side. Ours also counts the token itself."""
    if not isinstance(field, Field) or field.theirs != "sliding_window":
        return field

    def read(said: int | None, values: Values) -> int | None:
        window = field.read(said, values)
        return None if window is None else window + 1

    def write(window: int | None, ours: Values) -> int:
        return field.write(None if window is None else window - 1, ours)

    return replace(field, read=read, write=write)


STACKS: Mapping[str, Family] = {
    "encoder": as_encoder(
        GEMMA2, model_type=MODULE, fields=encoding([*map(_inclusive, GEMMA2.fields)]), heads=(bare("Module"),)
    ),
    "decoder": replace(GEMMA2, model_type=MODULE, heads=(bare("Module"),)),
}
"""The family of each stack, whose table in the config is a config of its own."""
OF_THE_WHOLE = ("dropout", "attn_dropout")
"""What the whole config says for both stacks."""


def _stack(name: str, *, cap: bool = False) -> Field:
    """The table of a stack; with `cap` what its field for the head says."""

    def read(said: Any, _: Values) -> Any:
        if cap:
            return said.get(CAP, 30.0)
        if (kind := said.get("model_type", MODULE)) != MODULE:
            raise refuse("model_type", MODULE, short(kind), ANOTHER)
        own = {key: value for key, value in said.items() if key not in ("is_decoder", "cross_attention_hidden_size")}
        found = STACKS[name].read({**own, "architectures": ["Module"]}, where=name)[0]
        return found.output.model_dump(mode="json")

    def write(_: Any, ours: Values) -> dict[str, Any]:
        plain = {**ours[name], **dict.fromkeys(OF_THE_WHOLE, 0.0)}
        written = STACKS[name].write(ModelConfig.model_validate({name: plain, "head": {"kind": "none"}}))
        if written is None:
            raise ValueError(name)
        soft_cap = {CAP: ours["head"].get("soft_cap")} if name == "decoder" else {}
        return {**written[0], **soft_cap, "is_decoder": name == "decoder"}

    return computed(name, "head.soft_cap" if cap else name, read=read, write=write, default=REQUIRED, like={})


FIELDS: FieldRules = (
    *map(_stack, STACKS),
    same("dropout_rate", *(f"{name}.dropout" for name in STACKS), default=0.0),
    same("attention_dropout", *(f"{name}.attn_dropout" for name in STACKS), default=0.0),
    ignored("classifier_dropout_rate", "vocab_size", "initializer_range"),
)


def _rules(_: ModelConfig) -> Sequence[Rule]:
    """Llama's names in each stack, with three norms of a decoder's cross-attention."""
    names = {
        "pre_self_attn_layernorm": "attn_norm",
        "post_self_attn_layernorm": "attn_out_norm",
        **{there: here for there, here in SANDWICH.items() if here.startswith("ffn")},
        "pre_cross_attn_layernorm": "cross_norm",
        "post_cross_attn_layernorm": "cross_out_norm",
        **{f"cross_attn.{side}_proj": f"cross.{side}" for side in "qkv"},
        "cross_attn.o_proj": "cross.out",
    }
    return [
        replace(
            rule,
            theirs=tuple(f"{stack}.{name}" for name in rule.theirs),
            ours=tuple(name.replace("decoder.", f"{stack}.", 1) for name in rule.ours),
        )
        for stack in STACKS
        for rule in renamed(names)
    ]


_WORDS = decoder_language("T5GemmaForConditionalGeneration", "model.", names=("lm_head.out_proj",))
T5GEMMA = Family(
    model_type="t5gemma",
    constants={},
    fields=FIELDS,
    rules=_rules,
    heads=(
        replace(_WORDS, fields=(*_WORDS.fields, _stack("decoder", cap=True))),
        bare("T5GemmaModel"),
    ),
)
