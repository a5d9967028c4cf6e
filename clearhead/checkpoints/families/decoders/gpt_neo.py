"""GPT-2's relatives: Black et al. 2021 (every second layer with a window) and Li et al. 2023 (keys shared by heads)."""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders import gpt2
from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import ACTIVATIONS, MOST_LAYERS, four_times, window_layers, windowed
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Alias, Values, computed, ignored, inherited, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.checkpoints.weights.rows import fused
from clearhead.config import ModelConfig
from clearhead.errors import UserError

KINDS = ("global", "local")


def _kinds(values: Values) -> list[str]:
    """The kind of each layer: attention_types lists patterns with the number of their repetitions."""
    found: list[str] = []
    for pattern, n in values["attention_types"] or [[[*KINDS], 12]]:
        if type(n) is not int or not 0 < n <= MOST_LAYERS:
            raise UserError(f"expected numbers of repetitions up to {MOST_LAYERS}, got {short(n)}")
        found += [*pattern] * n
    if len(found) != values["num_layers"] or not {*found} <= {*KINDS}:
        raise UserError(f"expected global or local for each of num_layers={values['num_layers']}, got {short(found)}")
    return found


def _local(values: Values) -> list[int]:
    return [i for i, kind in enumerate(_kinds(values)) if kind == "local"]


def _written(ours: Values) -> list[str]:
    stack = ours["decoder"]
    local = windowed(stack)
    return [KINDS[i in local] for i in range(stack["n_layers"])]


def _agree(said: Any, values: Values) -> None:
    """Raises UserError unless the list is absent or follows from attention_types."""
    if said != [] and said != _kinds(values):
        raise UserError(f"expected {short(_kinds(values))}, which follows from attention_types, got {short(said)}")


FIELDS = (
    same("vocab_size", "decoder.input.vocab_size", default=50_257),
    same("max_position_embeddings", "decoder.positions.max_length", default=2048),
    same("hidden_size", "decoder.d_model", default=2048),
    same("num_layers", "decoder.n_layers", default=24),
    same("num_heads", "decoder.n_heads", default=16),
    computed(
        "attention_types",
        "decoder.window_layers",
        read=lambda _, values: window_layers(_local(values), values["num_layers"]),
        write=lambda _, ours: [[_written(ours), 1]],
        default=None,
    ),
    computed("attention_layers", read=_agree, write=lambda _, ours: _written(ours), default=[]),
    computed(
        "window_size",
        "decoder.window",
        read=lambda reach, values: reach if _local(values) else None,
        write=lambda reach, _: 256 if reach is None else reach,
        default=256,
        like=256,
    ),
    four_times("intermediate_size", "hidden_size"),
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu_new"),
    same("layer_norm_epsilon", "decoder.norm_eps", default=1e-5),
    same("initializer_range", "init.std", default=0.02),
    same("resid_dropout", "decoder.dropout", default=0.0),
    inherited("embed_dropout", "decoder.embed_dropout", of="dropout", default=0.0),
    same("attention_dropout", "decoder.attn_dropout", default=0.0),
    Alias("num_attention_heads", of="num_heads"),
    Alias("num_hidden_layers", of="num_layers"),
    ignored("summary_*"),
)


def rules(_: ModelConfig) -> Sequence[Rule]:
    """Matrices output first, unlike GPT-2's."""
    ours = "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}
    return (
        *_rest(),
        *(rename(f"h.{{i}}.attn.attention.{a}.{{p}}", f"{ours}.attn.{b}.{{p}}") for a, b in attention.items()),
        ignore("h.{i}.attn.attention.bias", "h.{i}.attn.attention.masked_bias"),
    )


def bigcode_rules(config: ModelConfig) -> Sequence[Rule]:
    """One head of keys and values below all queries, or each head's three together."""
    ours, stack = [f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qkv"], config.output
    k, group = stack.head_width, stack.n_heads // stack.kv_heads
    return (
        *_rest(),
        fused("h.{i}.attn.c_attn.{p}", ours, rows=[group * k, k, k], groups=stack.kv_heads),
        rename("h.{i}.attn.c_proj.{p}", "decoder.blocks.{i}.attn.out.{p}"),
        ignore("h.{i}.attn.bias", "h.{i}.attn.masked_bias", "bias"),
    )


def _rest() -> Sequence[Rule]:
    ours = "decoder.blocks.{i}"
    return (
        rename("wte.weight", "decoder.embed.tokens.weight"),
        rename("wpe.weight", "decoder.positions.table.weight"),
        rename("h.{i}.ln_1.{p}", f"{ours}.attn_norm.{{p}}"),
        rename("h.{i}.ln_2.{p}", f"{ours}.ffn_norm.{{p}}"),
        rename("h.{i}.mlp.c_fc.{p}", f"{ours}.ffn.up.{{p}}"),
        rename("h.{i}.mlp.c_proj.{p}", f"{ours}.ffn.down.{{p}}"),
        rename("ln_f.{p}", "decoder.final_norm.{p}"),
    )


FAMILY = Family(
    model_type="gpt_neo",
    constants={
        "decoder.input.kind": "tokens",
        "decoder.positions.kind": "learned",
        "decoder.attn_scale": 1.0,
        "decoder.qkv_bias": False,
    },
    fields=FIELDS,
    rules=rules,
    heads=(
        language("GPTNeoForCausalLM", "transformer."),
        *others("GPTNeo", "transformer.", dropout=same("classifier_dropout", "head.dropout", default=0.1)),
    ),
)


def _kv_heads(shared: bool, values: Values) -> int:
    return 1 if shared else values["n_head"]


def _shared(kv_heads: int | None, ours: Values) -> bool:
    if kv_heads not in (None, 1, ours["decoder"]["n_heads"]):
        raise ValueError(kv_heads)
    return kv_heads == 1


BIGCODE_FIELDS: tuple[Any, ...] = (
    *gpt2.FIELDS,
    named("activation_function", "decoder.activation", names=ACTIVATIONS, default="gelu_pytorch_tanh"),
    computed("multi_query", "decoder.n_kv_heads", read=_kv_heads, write=_shared, default=True, like=True),
    # Numbers that follow from others, and the precision of one product.
    ignored("num_key_value_heads", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"),
)
BIGCODE = Family(
    model_type="gpt_bigcode",
    constants={"decoder.input.kind": "tokens", "decoder.positions.kind": "learned"},
    fields=BIGCODE_FIELDS,
    rules=bigcode_rules,
    heads=(language("GPTBigCodeForCausalLM", "transformer."), *others("GPTBigCode", "transformer.", "bare class tags")),
)
