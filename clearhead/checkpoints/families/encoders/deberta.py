"""The encoders of He et al. 2021 (DeBERTa-v2 and v3): distances in place of positions, scored with states.

Their masked-LM head has two spellings, of which the older one is written. Checkpoints of v3 have the newer one.
"""

import struct
from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.encoders.bert import (
    EMBEDDINGS,
    NORM_AFTER,
    REST,
    UNREAD,
    classifier_dropout,
    words_rules,
)
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import (
    bare,
    encoder_classifier,
    encoder_language,
    encoder_sizes,
    span,
    tags,
)
from clearhead.checkpoints.weights.fields import (
    Field,
    FieldRules,
    Only,
    Values,
    computed,
    equal,
    ignored,
    implied,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, leave_out, modules, rename, renames
from clearhead.config import ModelConfig
from clearhead.errors import UserError

PREFIX = "deberta."
POOLER = {name: name for name in ("gelu", "tanh", "relu")}
LARGEST = 1 << 20
TERMS = {"c2p": "content_to_position", "p2c": "position_to_content"}

# --- positions ---------------------------------------------------------------------------------------------------


def _terms(values: Values) -> list[str]:
    """Their names of the terms, as a list or as a text with bars between them."""
    said = values["pos_att_type"] or []
    names = said.lower().split("|") if isinstance(said, str) else said
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise UserError(f"expected c2p, p2c or both in pos_att_type, got {str(said)[:40]!r}")
    return [one.strip() for one in names]


def _scored(values: Values) -> dict[str, Any] | None:
    """Our scores by distance; None without them."""
    if not values["relative_attention"]:
        return None
    if not {*_terms(values)} & {*TERMS}:
        raise UserError(f"expected c2p or p2c in pos_att_type with relative attention, got {values['pos_att_type']!r}")
    longest, buckets = values["max_relative_positions"], values["position_buckets"]
    distance = longest if longest >= 1 else values["max_position_embeddings"]
    if not 1 <= distance <= LARGEST or (buckets > 0 and not 2 <= buckets <= min(LARGEST, 2 * distance - 3)):
        raise UserError(
            f"expected position_buckets from 2 to about twice the distance, which is at most {LARGEST}, got"
            f" position_buckets={buckets}, max_relative_positions={longest},"
            f" max_position_embeddings={values['max_position_embeddings']}"
        )
    return {
        "kind": "disentangled",
        "max_distance": distance,
        "n_buckets": buckets if buckets > 0 else None,
        "shared": values["share_att_key"],
        "norm": "layer_norm" in [one.strip() for one in values["norm_rel_ebd"].lower().split("|")],
        **{ours: theirs in _terms(values) for theirs, ours in TERMS.items()},
    }


def _positions(_: Any, values: Values) -> dict[str, Any]:
    scored = _scored(values)
    if not values["position_biased_input"]:
        return scored or {"kind": "none"}
    added = {"kind": "learned", "max_length": values["max_position_embeddings"]}
    return added if scored is None else {"kind": "together", "added": added, "scored": scored}


def _parts(ours: Values) -> tuple[Values | None, Values | None]:
    """The added and the scored positions. Raises ValueError for positions of another kind."""
    positions: dict[str, Any] = ours["encoder"]["positions"]
    match positions["kind"]:
        case "together":
            added, scored = positions["added"], positions["scored"]
        case "disentangled":
            added, scored = None, positions
        case "learned":
            added, scored = positions, None
        case "none":
            return None, None
        case kind:
            raise ValueError(kind)
    if (added and (added["kind"] != "learned" or added["offset"])) or (scored and scored["kind"] != "disentangled"):
        raise ValueError(positions)
    return added, scored


def _length(_: Any, ours: Values) -> int:
    added, scored = _parts(ours)
    return added["max_length"] if added else scored["max_distance"] if scored else 512


def _scored_field(name: str, setting: str, otherwise: Any) -> Field:
    """A field that is written from our setting of the scores by distance."""

    def write(_: Any, ours: Values) -> Any:
        scored = _parts(ours)[1]
        return otherwise if scored is None or scored[setting] is None else scored[setting]

    return computed(name, write=write, default=otherwise)


def _written_norm(_: Any, ours: Values) -> str:
    scored = _parts(ours)[1]
    return "layer_norm" if scored is not None and scored["norm"] else "none"


def _scale(values: Values) -> float:
    """1 / sqrt(width * (1 + terms)), whose root the reference library rounds to float32."""
    width = values["hidden_size"] // max(values["num_attention_heads"], 1)
    if width < 1:
        return 1.0  # The widths are refused by their own names.
    root = (width * (1 + len({*_terms(values)} & {*TERMS}))) ** 0.5
    return 1 / struct.unpack("f", struct.pack("f", root))[0]


def _written_terms(_: Any, ours: Values) -> list[str]:
    """The terms. Without scores of distances, their number follows from the scale."""
    scored, stack = _parts(ours)[1], ours["encoder"]
    if scored is not None:
        return [theirs for theirs, here in TERMS.items() if scored[here]]
    width = stack["d_model"] // stack["n_heads"]
    return [*TERMS][: round((stack["attn_scale"] or width**-0.5) ** -2 / width) - 1]


FIELDS: FieldRules = (
    *encoder_sizes(
        vocab_size=128_100,
        type_vocab_size=0,
        hidden_size=1536,
        num_hidden_layers=24,
        num_attention_heads=24,
        intermediate_size=6144,
        layer_norm_eps=1e-7,
    ),
    computed(
        "relative_attention",
        "encoder.positions",
        read=_positions,
        write=lambda _, ours: _parts(ours)[1] is not None,
        default=False,
    ),
    computed("position_biased_input", write=lambda _, ours: _parts(ours)[0] is not None, default=True),
    computed("max_position_embeddings", write=_length, default=512),
    _scored_field("max_relative_positions", "max_distance", -1),
    computed(
        "pos_att_type", "encoder.attn_scale", read=lambda _, said: _scale(said), write=_written_terms, default=None
    ),
    # Its config class does not have these three, but its code reads them.
    _scored_field("position_buckets", "n_buckets", -1),
    _scored_field("share_att_key", "shared", False),
    computed("norm_rel_ebd", write=_written_norm, default="none"),
    equal("embedding_size", "hidden_size", "encoder.d_model"),
    equal("pooler_hidden_size", "hidden_size", "encoder.d_model"),
    implied(
        "attention_head_size",
        lambda theirs: theirs["hidden_size"] // max(theirs["num_attention_heads"], 1),
        write=lambda ours: ours["encoder"]["d_model"] // ours["encoder"]["n_heads"],
        what="which is hidden_size / num_attention_heads",
    ),
    # A convolution beside the first block (v2-xlarge and v2-xxlarge).
    Only("conv_kernel_size", 0),
    ignored("conv_groups", "conv_act", "legacy", "pooler_dropout", "pooler_hidden_act", "cls_dropout"),
)

# --- weights -----------------------------------------------------------------------------------------------------


def rules(config: ModelConfig) -> Sequence[Rule]:
    """The embeddings, the vectors of distances, and the blocks, whose norms follow their branches."""
    kind, table = config.first.positions.kind, "embeddings.position_embeddings"
    added, scored = ("positions.added", "positions.scored") if kind == "together" else ("positions", "positions")
    names = {
        **EMBEDDINGS,
        table: f"{added}.table",
        "attention.self.query_proj": "attn.q",
        "attention.self.key_proj": "attn.k",
        "attention.self.value_proj": "attn.v",
        "attention.self.pos_key_proj": "attn.distance.k",
        "attention.self.pos_query_proj": "attn.distance.q",
        **REST,
    }
    unread = [UNREAD]
    if kind not in ("together", "learned"):
        del names[table]
        because = "position_biased_input = false: no position is added to the embedding"
        unread.append(leave_out(f"{table}.weight", because=because))
    if config.first.distances:
        names |= {"encoder.rel_embeddings": f"{scored}.table", "encoder.LayerNorm": f"{scored}.norm"}
    else:
        because = "relative_attention = false: no distance is scored"
        unread.append(leave_out("encoder.LayerNorm.{p}", because=because))
    return (*unread, *modules("encoder", "encoder.layer.{i}", names))


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, in both spellings."""
    newer = "lm_predictions.lm_head"
    return (
        *words_rules(config, "cls.predictions", {"transform.dense": "dense", "transform.LayerNorm": "norm"}),
        rename(f"{newer}.bias", "head.output.bias"),
        *renames(newer, "head", {"dense": "dense", "LayerNorm": "norm"}),
        leave_out("mask_predictions.{a}.{p}", because="no head here finds replaced tokens for this family"),
    )


DEBERTA = Family(
    model_type="deberta-v2",
    constants=NORM_AFTER,
    fields=FIELDS,
    rules=rules,
    heads=(
        encoder_language("DebertaV2ForMaskedLM", PREFIX, language_rules),
        bare("DebertaV2Model"),
        encoder_classifier(
            "DebertaV2ForSequenceClassification",
            PREFIX,
            classifier_dropout("cls_dropout"),  # Its config class does not have it.
            named("pooler_hidden_act", "head.pooler_activation", names=POOLER, default="gelu"),
            pooler="pooler.dense",
        ),
        tags("DebertaV2ForTokenClassification", PREFIX, same("hidden_dropout_prob", "head.dropout", default=0.1)),
        span("DebertaV2ForQuestionAnswering", prefix=PREFIX),
    ),
)
