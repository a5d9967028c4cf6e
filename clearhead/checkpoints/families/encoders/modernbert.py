"""The encoder of Warner et al. 2024: pre-norm, gated GELU, rotary positions, most layers with a local window."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    FULL,
    LOCAL,
    MOST_LAYERS,
    bare,
    bias,
    by_layer_types,
    classes,
    head_width,
    labels,
    local_layers,
    output_matrix,
    sizes,
    window_layers,
)
from clearhead.checkpoints.weights.fields import (
    REQUIRED,
    Field,
    FieldRule,
    FieldRules,
    Only,
    Values,
    computed,
    ignored,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, modules, rename, sides, split
from clearhead.config import ModelConfig
from clearhead.errors import UserError

BASE = {FULL: 160_000.0, LOCAL: 10_000.0}


def modernize(document: dict[str, Any]) -> dict[str, Any]:
    """Builds layer_types and rope_parameters from older fields. Leaves malformed ones to be refused later."""
    every, n_layers = document.get("global_attn_every_n_layers") or 3, document.get("num_hidden_layers", 22)
    if isinstance(every, int) and isinstance(n_layers, int):
        document.pop("global_attn_every_n_layers", None)
        if document.get("layer_types") is None:
            document["layer_types"] = [LOCAL if i % every else FULL for i in range(min(n_layers, MOST_LAYERS))]
    said = document.get("rope_parameters") or {}
    full = document.pop("global_rope_theta", BASE[FULL])
    local = document.pop("local_rope_theta", BASE[LOCAL])
    if not isinstance(said, dict) or not all(isinstance(one or {}, dict) for one in said.values()):
        return document
    older = {FULL: {"rope_theta": full}, LOCAL: {"rope_theta": full if local is None else local}}
    return document | {"rope_parameters": said | {kind: older[kind] | (said.get(kind) or {}) for kind in older}}


# --- windows and angles, by layer ----------------------------------------------------------------------------------


def _layers(values: Values) -> list[int]:
    """The layers with a window."""
    return local_layers(values["layer_types"], values["num_hidden_layers"])


def _some(values: Values) -> list[int] | None:
    """The layers with a window if only some layers have one; otherwise None."""
    return window_layers(_layers(values), len(values["layer_types"]))


def _window(reach: int, values: Values) -> int | None:
    """local_attention covers reach // 2 tokens on each side. Our window also counts the token itself."""
    return reach // 2 + 1 if _layers(values) else None


def _rotary(parameters: Values, kind: str) -> dict[str, Any]:
    if set(parameters) != set(BASE):
        raise UserError(f"expected {' and '.join(BASE)}, got {', '.join(parameters)}")
    said = {name: value for name, value in parameters[kind].items() if value is not None}
    base, name = said.pop("rope_theta", BASE[kind]), said.pop("rope_type", said.pop("type", "default"))
    if name != "default" or said:
        raise UserError(f"expected rope_type default and rope_theta alone, got {dict(parameters[kind])!r}")
    return {"kind": "rotary", "base": base}


def _positions(parameters: Values, values: Values) -> dict[str, Any]:
    return _rotary(parameters, FULL if len(_layers(values)) < len(values["layer_types"]) else LOCAL)


def _window_positions(parameters: Values, values: Values) -> dict[str, Any] | None:
    both = [_rotary(parameters, kind) for kind in (FULL, LOCAL)]
    return both[1] if _some(values) is not None and both[0] != both[1] else None


def _angles(_: Any, ours: Values) -> dict[str, Any]:
    """The rope_parameters of our stack."""
    stack = ours["encoder"]
    full = stack["positions"]
    by_kind = {FULL: full, LOCAL: stack["window_positions"] or full}
    return {kind: {"rope_type": "default", "rope_theta": rotary["base"]} for kind, rotary in by_kind.items()}


def by_layer() -> tuple[Field, ...]:
    """Four fields of ours from three of theirs, which depend on each other."""
    return (
        by_layer_types("window_layers", lambda _, values: _some(values), stack="encoder", default=REQUIRED),
        computed(
            "local_attention",
            "encoder.window",
            read=_window,
            write=lambda window, _: 128 if window is None else 2 * (window - 1),
            default=128,
        ),
        computed("rope_parameters", "encoder.positions", read=_positions, write=_angles),
        computed("rope_parameters", "encoder.window_positions", read=_window_positions, write=_angles),
    )


# --- the rest ------------------------------------------------------------------------------------------------------

# The longest text does not limit the network, but is kept for code that truncates texts.
LONGEST = replace(computed("max_position_embeddings", write=lambda *_: 8192, default=8192), extra=True)
FIELDS = (
    *sizes(
        "encoder",
        vocab_size=50_368,
        hidden_size=768,
        intermediate_size=1152,
        num_hidden_layers=22,
        num_attention_heads=12,
        hidden_activation="gelu",
        norm_eps=1e-5,
        initializer_range=0.02,
        embedding_dropout=0.0,
        # In the reference library it also acts on the attention's output to the residual stream.
        attention_dropout=0.0,
        mlp_dropout=0.0,
    ),
    bias("norm_bias", "norm", stack="encoder"),
    bias("attention_bias", "qkv", "out", stack="encoder"),
    bias("mlp_bias", "ffn", stack="encoder"),
    *by_layer(),
    head_width(),
    Only("rope_scaling", None),
    LONGEST,
    ignored("initializer_cutoff_factor", "deterministic_flash_attn", "reference_compile"),
    ignored("sparse_pred*", "repad_logits_with_grad", "decoder_bias", "classifier_*"),
    # Left over from the config class from which it was copied.
    ignored("layer_norm_eps", "position_embedding_type"),
)


NAMES = {
    "embeddings.tok_embeddings": "embed.tokens",
    "embeddings.norm": "embed.norm",
    "final_norm": "final_norm",
    "attn_norm": "attn_norm",
    "attn.Wo": "attn.out",
    "mlp_norm": "ffn_norm",
    "mlp.Wo": "ffn.down",
}


def rules(_: ModelConfig) -> Sequence[Rule]:
    """The checkpoint stores q, k and v in one, and gate and up in one. Biases exist only if the config has them."""
    gated = [f"encoder.blocks.{{i}}.ffn.{name}.{{p}}" for name in ("gate", "up")]
    return (
        *modules("encoder", "layers.{i}", NAMES),
        split("layers.{i}.attn.Wqkv.{p}", sides("encoder")),
        split("layers.{i}.mlp.Wi.{p}", gated),
    )


TRANSFORM = {"head.dense": "dense", "head.norm": "norm"}


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The matrix over the vocabulary, with its bias."""
    return output_matrix("decoder.weight", config, "encoder.embed.tokens.weight"), rename(
        "decoder.bias", "head.output.bias"
    )


def transform_fields() -> FieldRules:
    """The dense layer before every output. Its activation must be the network's."""

    def read(name: str, values: Values) -> None:
        if ACTIVATIONS.get(name) != ACTIVATIONS.get(values["hidden_activation"]):
            raise UserError(f"expected hidden_activation, {values['hidden_activation']!r}, got {name!r}")

    def write(_: Any, ours: Values) -> str:
        return next(name for name, here in ACTIVATIONS.items() if here == ours["encoder"]["activation"])

    return (
        same("classifier_bias", "head.transform_bias", default=False),
        computed("classifier_activation", read=read, write=write, default="gelu"),
    )


DROPOUT = same("classifier_dropout", "head.dropout", default=0.0)


def _head(kind: str, name: str, *fields: FieldRule) -> HeadMap:
    """The masked-word head with another output."""
    return HeadMap(
        f"ModernBertFor{name}",
        {"head.kind": kind, "head.transform": True},
        fields=(*transform_fields(), DROPOUT, *fields),
        prefix="model.",
        names={"classifier": "output", **TRANSFORM},
    )


MODERNBERT = Family(
    model_type="modernbert",
    constants={"encoder.input.norm": True, "encoder.gated": True, "encoder.first_norm": False},
    fields=FIELDS,
    rules=rules,
    heads=(
        HeadMap(
            "ModernBertForMaskedLM",
            {"head.kind": "language", "head.transform": True},
            language_rules,
            (
                same("tie_word_embeddings", "head.tied", default=True),
                same("decoder_bias", "head.bias", default=True),
                *transform_fields(),
            ),
            prefix="model.",
            names=TRANSFORM,
        ),
        bare("ModernBertModel"),
        _head(
            "classification",
            "SequenceClassification",
            *classes(),
            named("classifier_pooling", "head.pool", names={"cls": "first", "mean": "mean"}, default="cls"),
        ),
        _head("tagging", "TokenClassification", *labels()),
        _head("span", "QuestionAnswering"),
    ),
    modernize=modernize,
    fallback={"cls_token_id": None, "sep_token_id": None},
)
