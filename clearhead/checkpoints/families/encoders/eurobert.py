"""The encoder of Boizard et al. 2025: a decoder's blocks without the causal mask."""

from collections.abc import Sequence

from clearhead.checkpoints.families.decoders import llama
from clearhead.checkpoints.families.encoders.bidirectional import encoding, encoding_constants, encoding_rules
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.rotary import modern
from clearhead.checkpoints.families.shared import labels, output_matrix, problem_type, with_defaults
from clearhead.checkpoints.weights.fields import Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig

PREFIX = "model."
POOLS = {"bos": ("first", False), "mean": ("mean", False), "late": ("mean", True)}
"""Their name -> which states the classifier reads, and whether its first layer comes before the mean."""


def _pool(name: str, _: Values) -> str:
    return POOLS[name][0]


def _pools_last(name: str, _: Values) -> bool:
    return POOLS[name][1]


def _name(_: object, ours: Values) -> str:
    head = ours["head"]
    return {pools: name for name, pools in POOLS.items()}[head["pool"], head["pools_last"]]


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The output matrix, which has a bias if the feed-forward layers have."""
    output = output_matrix("lm_head.weight", config, "encoder.embed.tokens.weight")
    return (output, rename("lm_head.bias", "head.output.bias"))


HEADS = (
    HeadMap(
        "EuroBertForMaskedLM",
        {"head.kind": "language"},
        language_rules,
        (same("tie_word_embeddings", "head.tied", default=False), same("mlp_bias", "head.bias", default=False)),
        prefix=PREFIX,
    ),
    HeadMap("EuroBertModel", {"head.kind": "none"}),
    HeadMap(
        "EuroBertForSequenceClassification",
        {"head.kind": "classification", "head.pooler": True, "head.pooler_activation": "gelu"},
        lambda _: (rename("dense.{p}", "head.pooler.{p}"), rename("classifier.{p}", "head.output.{p}")),
        (
            *labels(),
            problem_type(),
            computed("classifier_pooling", "head.pool", read=_pool, write=_name, default="late", like="late"),
            computed("classifier_pooling", "head.pools_last", read=_pools_last, write=_name, default="late"),
        ),
        prefix=PREFIX,
    ),
    HeadMap(
        "EuroBertForTokenClassification",
        {"head.kind": "tagging"},
        lambda _: (rename("classifier.{p}", "head.output.{p}"),),
        labels(),
        prefix=PREFIX,
    ),
)

FAMILY = Family(
    model_type="eurobert",
    constants=encoding_constants(llama.CONSTANTS),
    fields=(
        *with_defaults(
            encoding(
                (
                    *llama.sizes(
                        vocab_size=128_256,
                        hidden_size=768,
                        intermediate_size=3072,
                        kv_heads=None,
                        eps=1e-5,
                        max_length=8192,
                    ),
                    *llama.BIASES,
                )
            ),
            num_hidden_layers=12,
            num_attention_heads=12,
        ),
        ignored("classifier_pooling"),
    ),
    rules=encoding_rules(llama.rules),
    heads=HEADS,
    modernize=modern,
)
