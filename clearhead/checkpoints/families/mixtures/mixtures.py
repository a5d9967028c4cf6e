"""Llama's relatives with experts: Mixtral (Jiang et al. 2024), Qwen2-MoE and Qwen3-MoE (Yang et al. 2024 and 2025),
OLMoE (Muennighoff et al. 2024).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, heads, sizes
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.decoders.qwen import windows
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.mixtures.expert_rules import expert_rules
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import MOST_LAYERS
from clearhead.checkpoints.weights.fields import Alias, Field, FieldRule, Only, Values, computed, inherited, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig

# --- fields ----------------------------------------------------------------------------------------------------------


def balance(default: float = 0.001) -> tuple[Field, ...]:
    """The factor of the load-balancing loss, which counts only if the model returns its router's logits."""

    def read(factor: float, values: Values) -> float:
        return factor if values["output_router_logits"] else 0.0

    def returned(_: Any, ours: Values) -> bool:
        return ours["decoder"]["experts"]["balance"] > 0

    return (
        computed(
            "router_aux_loss_coef",
            "decoder.experts.balance",
            read=read,
            write=lambda factor, _: factor or default,
            default=default,
            like=default,
        ),
        computed("output_router_logits", write=returned, default=False, like=False),
    )


def choice(
    n: int, n_chosen: int, *, theirs: str = "num_experts", also: str = "num_local_experts"
) -> tuple[FieldRule, ...]:
    """How many experts there are, under either name, and how many a position goes through."""
    return (
        same(theirs, "decoder.experts.n", default=n),
        Alias(also, theirs),
        same("num_experts_per_tok", "decoder.experts.n_chosen", default=n_chosen),
    )


def _layers(dense: Sequence[int] | None, values: Values) -> list[int] | None:
    """The layers with experts: every `decoder_sparse_step`-th, but for those in `mlp_only_layers`."""
    n, every = values["num_hidden_layers"], values["decoder_sparse_step"]
    found = [i for i in range(min(n, MOST_LAYERS)) if i not in (dense or ()) and (i + 1) % every == 0]
    return None if len(found) == n else found


def _dense(layers: Sequence[int] | None, ours: Values) -> list[int]:
    return [] if layers is None else [i for i in range(ours["decoder"]["n_layers"]) if i not in layers]


SPARSE: tuple[Field, ...] = (
    computed("mlp_only_layers", "decoder.experts.layers", read=_layers, write=_dense, default=None),
    computed("decoder_sparse_step", write=lambda *_: 1, default=1, like=1),
)

# --- tensors ---------------------------------------------------------------------------------------------------------


def rules(
    maps: Mapping[str, str], *, at: str = "layers.{i}.mlp", shared: str = ""
) -> Callable[[ModelConfig], Sequence[Rule]]:
    """Llama's names, with experts `at` this place. `maps` are their names of an expert's matrices."""

    def table(config: ModelConfig) -> Sequence[Rule]:
        ours = "decoder.blocks.{i}.ffn"
        found = [*llama_rules(config), rename(f"{at}.gate.weight", f"{ours}.router.weight")]
        found += expert_rules(config, at=f"{at}.experts", maps=maps)
        if shared:
            found += [rename(f"{at}.{shared}.{a}.{{p}}", f"{ours}.shared.{b}.{{p}}") for a, b in maps.items()]
            found += [rename(f"{at}.{shared}_gate.{{p}}", f"{ours}.shared_gate.{{p}}")]
        return found

    return table


PROJECTIONS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
WS = {"w1": "gate", "w3": "up", "w2": "down"}

# --- families --------------------------------------------------------------------------------------------------------

MIXTRAL = Family(
    model_type="mixtral",
    constants=CONSTANTS | {"decoder.experts.normalised": True},
    fields=(
        *sizes(intermediate_size=14_336, kv_heads=8, eps=1e-5, angles=rotary(max_length=131_072, theta=1_000_000.0)),
        computed("sliding_window", "decoder.window", default=None),
        *choice(8, 2, theirs="num_local_experts", also="num_experts"),
        *balance(),
        Only("router_jitter_noise", 0.0),
    ),
    rules=rules(WS, at="layers.{i}.block_sparse_moe"),
    heads=heads("Mixtral", span_prefix="model."),
    modernize=modern,
)

of_qwen = partial(sizes, vocab_size=151_936, hidden_size=2048, layers=24, max_length=32_768)

QWEN2_MOE = Family(
    model_type="qwen2_moe",
    constants=CONSTANTS | {"decoder.experts.shared_gate": True},
    fields=(
        *of_qwen(intermediate_size=5632, n_heads=16, kv_heads=16),
        inherited("qkv_bias", "decoder.qkv_bias", of="bias", default=True),
        *windows(lambda i, first: i % 2 == 0 and i < first),
        *choice(60, 4),
        *SPARSE,
        same("moe_intermediate_size", "decoder.experts.d_ff", default=1408),
        same("shared_expert_intermediate_size", "decoder.experts.shared", default=5632),
        same("norm_topk_prob", "decoder.experts.normalised", default=False),
        *balance(),
    ),
    rules=rules(PROJECTIONS, shared="shared_expert"),
    heads=heads("Qwen2Moe", span_prefix="model."),
    modernize=modern,
)


def _window(said: int | None, values: Values) -> int | None:
    return said if values["use_sliding_window"] else None


QWEN3_MOE = Family(
    model_type="qwen3_moe",
    constants=CONSTANTS | {"decoder.qk_norm": True},
    fields=(
        *of_qwen(intermediate_size=6144, kv_heads=4),
        BIASES[0],
        computed("sliding_window", "decoder.window", read=_window, default=4096),
        computed(
            "use_sliding_window",
            write=lambda _, ours: ours["decoder"]["window"] is not None,
            default=False,
            like=False,
        ),
        *choice(128, 8),
        *SPARSE,
        same("moe_intermediate_size", "decoder.experts.d_ff", default=768),
        same("norm_topk_prob", "decoder.experts.normalised", default=False),
        *balance(),
    ),
    rules=rules(PROJECTIONS),
    heads=heads("Qwen3Moe"),
    modernize=modern,
)

OLMOE = Family(
    model_type="olmoe",
    constants=CONSTANTS | {"decoder.qk_norm": True, "decoder.qk_norm_over": "heads"},
    fields=(
        *sizes(
            vocab_size=50_304,
            hidden_size=2048,
            intermediate_size=2048,
            layers=16,
            n_heads=16,
            kv_heads=None,
            eps=1e-5,
            max_length=4096,
        ),
        BIASES[0],
        *choice(64, 8),
        same("norm_topk_prob", "decoder.experts.normalised", default=False),
        *balance(0.01),
        # A limit on queries, keys and values.
        Only("clip_qkv", None),
    ),
    rules=rules(PROJECTIONS),
    heads=heads("Olmoe")[:2],
    modernize=modern,
)
