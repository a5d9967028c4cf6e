"""The summary against what the network has and does: parameters, products counted, tensors saved, caches."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer, attention
from clearhead.model.summary import Summary, summarize
from clearhead.model.transformer import Stack
from tests.model.small import LAYERS, PAIRS, assert_values_follow, ids, kept_bytes, shaken, stack

BATCH, SOURCE, TARGET = 2, 7, 5
DROPOUTS = {"dropout": 0.5, "attn_dropout": 0.5, "ffn_dropout": 0.5}
IMAGE = c.PatchInput(image_size=12, patch_size=4)
SOUND = c.FrameInput(n_frames=14, n_bins=5)


REGISTERS = c.PatchInput(image_size=12, patch_size=4, n_registers=2, mask_token=True)
NARROW = c.TokenInput(vocab_size=13, width=6, norm=True)
JOINED = c.ClassificationHead(n_labels=3, pool="first_and_mean", patches_only=True)


def image(head: c.Head, **changes: Any) -> c.ModelConfig:
    return c.ModelConfig(encoder=stack(**{"input": IMAGE} | changes), head=head)


def both(head: c.Head | None = None, **changes: Any) -> c.ModelConfig:
    one = stack(**changes)
    return c.ModelConfig(encoder=one, decoder=one, head=head or c.LanguageHead(), share_embeddings=True)


FUSED = ("rotary-pre-grouped", "none-rms_no_bias-window", "relative-pre-qk_norm")
# Every third pair and these still have each position, each norm and each attention.
DECODERS = {*list(PAIRS)[::3], *LAYERS, *FUSED, "learned-post-soft_cap"}
CONFIGS = {
    **{name: c.ModelConfig(decoder=stack(**PAIRS[name])) for name in sorted(DECODERS)},
    "short_convolution": c.ModelConfig(decoder=stack(n_layers=3, mixer=c.ShortConvolution(layers=(0, 2)))),
    "state_space": c.ModelConfig(
        decoder=stack(n_layers=3, mixer=c.StateSpace(n_heads=4, d_head=6, d_state=5, n_groups=2, layers=(0, 2)))
    ),
    "state_space, step of limits": c.ModelConfig(
        decoder=stack(mixer=c.StateSpace(n_heads=2, d_state=3, least_step=0.01, most_step=0.5, conv_bias=False))
    ),
    "state_space beside attention": c.ModelConfig(
        decoder=stack(
            n_layers=2,
            mixer=c.StateSpace(n_heads=2, d_head=3, d_state=3, factors=(0.5, 0.25, 1.5, 0.7, 2.0), beside=True),
            multipliers=c.Multipliers(attn=0.5, mix=0.7, gate=1.5, ffn=0.9),
        )
    ),
    "selective_scan": c.ModelConfig(
        decoder=stack(n_layers=3, mixer=c.SelectiveScan(d_inner=10, d_state=3, rank=2, norms="weight", layers=(0, 2)))
    ),
    "gated_delta": c.ModelConfig(
        decoder=stack(n_layers=3, mixer=c.GatedDelta(layers=(0, 2), n_heads=4, n_key_heads=2, d_key=4, d_value=5))
    ),
    "time_mixing": c.ModelConfig(
        decoder=stack(n_layers=3, mixer=c.TimeMixing(d_inner=10, layers=(0, 2)), activation="squared_relu", **DROPOUTS)
    ),
    "layers of one part": c.ModelConfig(
        decoder=stack(
            n_layers=6,
            mixer=c.StateSpace(n_heads=2, d_head=3, d_state=3, layers=(0, 4)),
            mixing_layers=(0, 2, 4),
            ffn_layers=(1, 3, 4, 5),
        )
    ),
    "encoder-decoder": both(),
    "encoder-decoder, post, dropout": both(norm_place="post", **DROPOUTS),
    "encoder-decoder, grouped, capped": both(n_kv_heads=2, soft_cap=2.0, qk_norm=True, norm="rms"),
    "encoder-decoder, states": both(c.NoHead()),
    "two sizes": c.ModelConfig(encoder=stack(n_layers=3, n_heads=2), decoder=stack(d_ff=20)),
    "captions": c.ModelConfig(encoder=stack(input=IMAGE), decoder=stack()),
    "transcripts": c.ModelConfig(encoder=stack(input=SOUND, key_bias=False, **DROPOUTS), decoder=stack(key_bias=False)),
    "masked words": c.ModelConfig(
        encoder=stack(input=c.TokenInput(vocab_size=13, n_types=2, norm=True), activation="gelu", **DROPOUTS),
        head=c.LanguageHead(bias=True, transform=True, soft_cap=3.0, scale=0.5),
    ),
    "relu head": c.ModelConfig(encoder=stack(), head=c.LanguageHead(tied=False, transform=True)),
    "gated, dropout": c.ModelConfig(decoder=stack(gated=True, **DROPOUTS)),
    "gated gelu, dropout": c.ModelConfig(decoder=stack(gated=True, activation="gelu_tanh", **DROPOUTS)),
    "tags": c.ModelConfig(encoder=stack(), head=c.TaggingHead(n_labels=3)),
    "spans": c.ModelConfig(encoder=stack(), head=c.SpanHead()),
    "class of a text": c.ModelConfig(encoder=stack(), head=c.ClassificationHead(n_labels=3, pooler=True)),
    "embedding dropout": both(dropout=0.5, embed_dropout=0.0, n_layers=1),
    "embedding dropout alone": c.ModelConfig(decoder=stack(embed_dropout=0.5)),
    "one layer without first norm": c.ModelConfig(decoder=stack(n_layers=1, first_norm=False)),
    "tags, transformed": c.ModelConfig(
        encoder=stack(activation="gelu"), head=c.TaggingHead(n_labels=3, transform=True, dropout=0.5)
    ),
    "spans, dropout": c.ModelConfig(encoder=stack(), head=c.SpanHead(bias=False, dropout=0.5)),
    "class of a text, dropout": c.ModelConfig(
        encoder=stack(), head=c.ClassificationHead(n_labels=3, pooler=True, dropout=0.5)
    ),
    "class of a text, transformed": c.ModelConfig(
        encoder=stack(norm="rms", activation="silu"),
        head=c.ClassificationHead(n_labels=3, pool="last", transform=True, transform_bias=False, dropout=0.5),
    ),
    "states and their pooler": c.ModelConfig(encoder=stack(), head=c.NoHead(pooler=True)),
    "class of an image": image(c.ClassificationHead(n_labels=3), **DROPOUTS),
    "image, same grid": image(JOINED, input=REGISTERS, positions=c.LearnedGrid(side=3), layer_scale=0.1),
    "image, distilled": image(c.ClassificationHead(n_labels=3, distilled=True)),
    "image, turned": image(c.VectorHead(norm=True, width=5), positions=c.RotaryGrid(), activation="quick_gelu"),
    "image, read": image(c.VectorHead(pool="attention"), key_bias=False),
    "text, vector": c.ModelConfig(decoder=stack(), head=c.VectorHead(pool="last", width=5)),
    "image, finer grid": image(JOINED, input=REGISTERS, positions=c.LearnedGrid(side=2, first=3), layer_scale=0.5),
    "image, coarser grid": image(JOINED, input=REGISTERS, positions=c.LearnedGrid(side=7, antialias=True)),
    "masks are left out": c.ModelConfig(encoder=stack(input=c.TokenInput(vocab_size=13, mask_id=2))),
    "tokens alone": c.ModelConfig(
        encoder=stack(input=c.TokenInput(vocab_size=13, width=6, n_types=2, tokens_alone=True), norm_place="post"),
        head=c.LanguageHead(transform=True, transform_alone=True, transform_bias=False),
    ),
    "narrow table": c.ModelConfig(
        encoder=stack(input=NARROW, activation="gelu"), head=c.LanguageHead(transform=True, bias=True)
    ),
    "spellings": c.ModelConfig(
        encoder=stack(input=NARROW, activation="gelu"),
        head=c.TaggingHead(n_labels=1, transform=True, transform_norm=False),
    ),
    "pooler of every state": c.ModelConfig(
        encoder=stack(),
        head=c.ClassificationHead(n_labels=3, pooler=True, pooler_activation="gelu", pool="mean", pools_last=True),
    ),
    "image, mean": image(c.ClassificationHead(n_labels=3, pool="mean"), positions=c.Learned(max_length=10)),
}


def lengths(config: c.ModelConfig) -> dict[str, int]:
    """Tiny lengths for the stacks that a config has; an image or a sound brings its own."""
    found = {}
    if config.encoder and isinstance(config.encoder.input, c.TokenInput):
        found["source_length"] = SOURCE
    if config.decoder:
        found["target_length"] = TARGET
    return found


def inputs(config: c.ModelConfig) -> list[Tensor]:
    found: list[Tensor] = []
    if config.encoder:
        reads = config.encoder.input
        found.append(torch.randn(BATCH, *reads.shape) if isinstance(reads, c.Continuous) else ids(BATCH, SOURCE))
    return found + ([ids(BATCH, TARGET)] if config.decoder else [])


def small_summary(config: c.ModelConfig) -> Summary:
    return summarize(config, batch=BATCH, **lengths(config))


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_and_shapes_are_the_networks(name: str):
    summary, network = small_summary(CONFIGS[name]), Transformer(CONFIGS[name])
    assert summary.parameters == sum(parameter.numel() for parameter in network.parameters())
    named = dict(network.named_parameters(remove_duplicate=False))
    counted = 0
    for row in summary.rows:
        for weight in row.weights:
            if "*_norm" in row.path:
                continue
            is_some, at = row.path.endswith(("*.attn", "*.mix", "*.ffn")), f"{row.path}.{weight.name}"
            there = [i for i in range(9) if at.replace("*", str(i)) in named][: row.count]
            for layer in there if is_some else range(row.count):
                path = row.path.replace("*", str(layer))
                parameter = named.pop(f"{path}.{weight.name}".rstrip("."))
                assert tuple(parameter.shape) == weight.shape
                counted += 0 if weight.tied_to else parameter.numel()
    norms = [row for row in summary.rows if "*_norm" in row.path]
    assert all("_norm." in name for name in named), f"in no row: {list(named)}"
    assert sum(row.count * len(row.weights) for row in norms) == len(named)
    assert counted + sum(row.parameters for row in norms) == summary.parameters


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in PAIRS])
def test_every_value_follows_from_its_op(name: str):
    config = CONFIGS[name]
    assert_values_follow(shaken(Transformer(config)), *(x[:1] for x in inputs(config)))


@pytest.mark.parametrize("name", CONFIGS)
def test_flops_are_those_of_the_operators(name: str):
    config = CONFIGS[name]
    network = Transformer(config).eval()
    with FlopCounterMode(display=False) as counter:
        network(*inputs(config))
    summary = small_summary(config)
    assert summary.flops == counter.get_total_flops() > 0
    assert all(row.flops_per_token * row.tokens == pytest.approx(row.flops) for row in summary.rows)


@pytest.mark.parametrize("name", CONFIGS)
def test_activation_bytes_are_what_autograd_keeps(name: str, monkeypatch):
    config = CONFIGS[name]
    counted, network = small_summary(config).activation_bytes, Transformer(config).train()
    assert kept_bytes(network, inputs(config)) <= counted  # A head that reads one state leaves out the others.
    monkeypatch.setattr(Stack, "last_layout", lambda *_: None)
    assert kept_bytes(network, inputs(config)) == counted


@pytest.mark.parametrize(
    "name",
    ["encoder-decoder", "tags", *FUSED],
)
def test_activation_bytes_of_the_fused_kernel(name: str, monkeypatch):
    explicit = small_summary(CONFIGS[name])
    monkeypatch.setattr(attention, "EXPLICIT_UP_TO", 0)
    fused = small_summary(CONFIGS[name])
    kept = kept_bytes(Transformer(CONFIGS[name]).train(), inputs(CONFIGS[name]))
    assert fused.activation_bytes == kept
    assert (kept == explicit.activation_bytes) == name.startswith("relative")
    assert fused.flops == explicit.flops


@pytest.mark.parametrize("name", [name for name, config in CONFIGS.items() if config.is_causal])
def test_cache_bytes_are_the_caches(name: str):
    config = CONFIGS[name]
    network = Transformer(config).eval()
    given = [Tokens(x) for x in inputs(config)]
    memory = network.encode(given[0]) if config.encoder else None
    cache = network.new_cache()
    network.decode(given[-1], memory, cache)
    pairs = [pair for block in cache.blocks for pair in (block.attn, block.cross)]
    sides = [side for pair in pairs for side in (pair.k, pair.v) if side is not None]
    held = sum(x.nbytes for x in [*sides, *(value for block in cache.blocks for value in block.mix.values)])
    assert small_summary(config).cache_bytes == held > 0


def test_bytes_grow_with_batch_and_number_and_flops_a_token_do_not():
    one = summarize(CONFIGS["encoder-decoder"], source_length=SOURCE, target_length=TARGET)
    more = summarize(
        CONFIGS["encoder-decoder"], batch=6, source_length=SOURCE, target_length=TARGET, bytes_per_number=2
    )
    assert more.activation_bytes == 3 * one.activation_bytes
    assert more.cache_bytes == 3 * one.cache_bytes
    assert more.weight_bytes * 2 == one.weight_bytes
    assert more.flops == 6 * one.flops
    assert more.flops_per_token == one.flops_per_token


def document(*, tied: bool) -> Summary:
    """The model that the first document counts: V=30000, T=512, d=512, 8 heads, d_ff=2048, 6 layers."""
    decoder = c.StackConfig(
        input=c.TokenInput(vocab_size=30_000),
        d_model=512,
        n_layers=6,
        n_heads=8,
        d_ff=2048,
        positions=c.Learned(max_length=512),
    )
    return summarize(c.ModelConfig(decoder=decoder, head=c.LanguageHead(tied=tied)))


def test_the_documents_table():
    rows = {row.component: row for row in document(tied=False).rows}
    assert [(row.count, row.parameters_each, row.parameters) for row in rows.values()] == [
        (1, 15_360_000, 15_360_000),
        (1, 262_144, 262_144),
        (6, 1_050_624, 6_303_744),
        (6, 2_099_712, 12_598_272),
        (12, 1_024, 12_288),
        (1, 1_024, 1_024),  # the table leaves out the last norm, which its listing has
        (1, 15_360_000, 15_360_000),
    ]
    block = sum(rows[name].parameters_each for name in ("attention Q K V O", "feed-forward"))
    assert block + 2 * rows["norms"].parameters_each == 3_152_384
    assert document(tied=False).parameters == 49_897_472
    assert document(tied=True).parameters == 34_537_472


def test_size_costs_no_memory_and_draws_no_numbers():
    config = c.ModelConfig(
        decoder=stack(
            input=c.TokenInput(vocab_size=10**9),
            d_model=16_384,
            n_heads=128,
            d_ff=65_536,
            positions=c.Rotary(),
        )
    )
    state = torch.get_rng_state()
    assert summarize(config).weight_bytes > 60e12
    assert torch.equal(torch.get_rng_state(), state)


def test_tied_weights_say_to_what():
    text = "\n".join(small_summary(CONFIGS["masked words"]).lines())
    assert "(13), (13, 16) tied to encoder.embed.tokens.weight" in text


def test_json_holds_totals_and_components():
    summary = small_summary(CONFIGS["encoder-decoder"])
    plain = json.loads(json.dumps(summary.to_json()))
    assert plain["parameters"] == summary.parameters == sum(row["parameters"] for row in plain["components"])
    by_path = {row["path"]: row for row in plain["components"]}
    assert by_path["decoder.blocks.*.cross"]["shapes"]["k.weight"] == [16, 16]
    assert by_path["decoder.embed.tokens"]["tied"] == {"weight": "encoder.embed.tokens.weight"}
    assert (plain["source_length"], plain["target_length"], plain["batch"]) == (SOURCE, TARGET, BATCH)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("tags", {"batch": 0}, "batch: expected 1 or more, got 0; try 1"),
        ("tags", {"bytes_per_number": -1}, "bytes_per_number: expected 1 or more, got -1; try 1"),
        ("tags", {"source_length": 0}, "source_length: expected 1 or more, got 0; try 512"),
        (
            "tags",
            {"target_length": 3},
            "target_length: expected none, as there is no such stack, got 3; try source_length",
        ),
        (
            "learned-post-soft_cap",
            {"target_length": 25},
            "target_length: expected 1 to 24, got 25; try 24",
        ),
        (
            "class of an image",
            {"source_length": 9},
            "source_length: expected the input's 10 positions, got 9; try leaving it out",
        ),
    ],
)
def test_impossible_sizes_are_refused(name: str, arguments: dict[str, int], message: str):
    with pytest.raises(UserError) as error:
        summarize(CONFIGS[name], **arguments)
    assert str(error.value) == message
