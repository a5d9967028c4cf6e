"""The encoders of He et al. 2021 (DeBERTa-v2 and v3): distances in place of positions, scored with states.

Their masked-LM head has two spellings, of which the older one is written. Checkpoints of v3 have the newer one.
"""

import struct
from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.encoders.bert import classifier_dropout, norm, output_bias
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    encoder_classifier,
    encoder_language,
    encoder_sizes,
    encoder_tagging,
    output_matrix,
    span,
    with_defaults,
)
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed, ignored, implied, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, leave_out, rename, renames
from clearhead.config import LanguageHead, ModelConfig
from clearhead.errors import UserError

PREFIX = "deberta."
POOLER = {name: name for name in ("gelu", "tanh", "relu")}
LARGEST = 1 << 20
NO_DISTANCES = "relative_attention = false: no distance is scored"
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


def _scored_field(name: str, otherwise: Any) -> Any:
    def write(_: Any, ours: Values) -> Any:
        scored = _parts(ours)[1]
        return otherwise if scored is None or scored[name] is None else scored[name]

    return write


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


FIELDS: tuple[FieldRule, ...] = (
    same("vocab_size", "encoder.input.vocab_size", default=128_100),
    same("type_vocab_size", "encoder.input.n_types", default=0),
    *with_defaults(
        encoder_sizes(dropout=0.1),
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
        like=False,
    ),
    computed(
        "position_biased_input",
        write=lambda _, ours: _parts(ours)[0] is not None,
        default=True,
        like=True,
    ),
    computed("max_position_embeddings", write=_length, default=512, like=512),
    computed("max_relative_positions", write=_scored_field("max_distance", -1), default=-1, like=-1),
    computed(
        "pos_att_type", "encoder.attn_scale", read=lambda _, said: _scale(said), write=_written_terms, default=None
    ),
    # Its config class does not have these three, but its code reads them.
    computed("position_buckets", write=_scored_field("n_buckets", -1), default=-1, like=-1),
    computed("share_att_key", write=_scored_field("shared", False), default=False, like=False),
    computed(
        "norm_rel_ebd",
        write=lambda _, ours: "layer_norm" if _scored_field("norm", False)(_, ours) else "none",
        default="none",
        like="none",
    ),
    *(
        implied(name, lambda theirs: theirs["hidden_size"], write=lambda ours: ours["encoder"]["d_model"], what=what)
        for name, what in (("embedding_size", "which is hidden_size"), ("pooler_hidden_size", "which is hidden_size"))
    ),
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
    kind, ours = config.first.positions.kind, "encoder.positions"
    added, scored = (f"{ours}.added", f"{ours}.scored") if kind == "together" else (ours, ours)
    theirs, block = "encoder.layer.{i}", "encoder.blocks.{i}"
    own = {"query_proj": "q", "key_proj": "k", "value_proj": "v"}
    projected = {"pos_key_proj": "distance.k", "pos_query_proj": "distance.q"}
    of_distances = (
        rename("encoder.rel_embeddings.weight", f"{scored}.table.weight"),
        *norm("encoder.LayerNorm", f"{scored}.norm"),
    )
    table = "embeddings.position_embeddings.weight"
    unused = leave_out(table, because="position_biased_input = false: no position is added to the embedding")
    return (
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename(table, f"{added}.table.weight") if kind in ("together", "learned") else unused,
        rename("embeddings.token_type_embeddings.weight", "encoder.embed.types.weight"),
        *norm("embeddings.LayerNorm", "encoder.embed.norm"),
        *(of_distances if config.first.distances else (leave_out("encoder.LayerNorm.{p}", because=NO_DISTANCES),)),
        *renames(f"{theirs}.attention.self", f"{block}.attn", (own | projected)),
        rename(f"{theirs}.attention.output.dense.{{p}}", f"{block}.attn.out.{{p}}"),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{block}.attn_norm"),
        rename(f"{theirs}.intermediate.dense.{{p}}", f"{block}.ffn.up.{{p}}"),
        rename(f"{theirs}.output.dense.{{p}}", f"{block}.ffn.down.{{p}}"),
        *norm(f"{theirs}.output.LayerNorm", f"{block}.ffn_norm"),
        ignore("embeddings.position_ids"),
    )


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, in both spellings."""
    assert isinstance(config.head, LanguageHead)
    older, newer = "cls.predictions", "lm_predictions.lm_head"
    return (
        output_matrix(f"{older}.decoder.weight", config, "encoder.embed.tokens.weight"),
        *output_bias(f"{older}.bias", f"{older}.decoder.bias", tied=config.head.tied),
        rename(f"{older}.transform.dense.{{p}}", "head.dense.{p}"),
        *norm(f"{older}.transform.LayerNorm", "head.norm"),
        rename(f"{newer}.bias", "head.output.bias"),
        rename(f"{newer}.dense.{{p}}", "head.dense.{p}"),
        *norm(f"{newer}.LayerNorm", "head.norm"),
        leave_out("mask_predictions.{a}.{p}", because="no head here finds replaced tokens for this family"),
    )


DEBERTA = Family(
    model_type="deberta-v2",
    constants={
        "encoder.input.kind": "tokens",
        "encoder.input.norm": True,
        "encoder.norm_place": "post",
        "init.depth_scaled": False,
    },
    fields=FIELDS,
    rules=rules,
    heads=(
        encoder_language("DebertaV2ForMaskedLM", PREFIX, language_rules),
        HeadMap("DebertaV2Model", {"head.kind": "none"}),
        encoder_classifier(
            "DebertaV2ForSequenceClassification",
            PREFIX,
            classifier_dropout("cls_dropout"),  # Its config class does not have it.
            named("pooler_hidden_act", "head.pooler_activation", names=POOLER, default="gelu"),
            pooler="pooler.dense",
        ),
        encoder_tagging(
            "DebertaV2ForTokenClassification", PREFIX, same("hidden_dropout_prob", "head.dropout", default=0.1)
        ),
        span("DebertaV2ForQuestionAnswering", prefix=PREFIX),
    ),
)
