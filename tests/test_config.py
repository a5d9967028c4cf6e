"""Configurations: what is wrong is named with its value and remedy, and text brings the same one back."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from clearhead import config as c
from clearhead.config import mechanism
from clearhead.model.feedforward import activation_function
from tests.model import small

IMAGE = {"kind": "patches", "image_size": 32, "patch_size": 8}
SQUARE = {"kind": "wavelength", "factor": 2.0, "low_factor": 4.0, "high_factor": 4.0, "original_length": 8}
ROTARY = {"kind": "rotary"}
TOKENS = {"kind": "tokens", "vocab_size": 5}
NARROW = TOKENS | {"width": 6}
WAVES = {"kind": "samples", "convolutions": [{"width": 5, "step": 3, "channels": 6}], "position_groups": 5}
LONG = {"kind": "long", "divisors": [1.5, 2.5], "original_length": 20}
DISENTANGLED = {"kind": "disentangled"}
TOGETHER = {"kind": "together", "added": {"kind": "sinusoidal"}, "scored": {"kind": "alibi"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 7, "d_model": 512}, "n_heads=7 must divide d_model=512; or give d_head"),
        ({"n_heads": 6, "n_kv_heads": 4, "d_head": 4}, "n_kv_heads=4 must divide n_heads=6"),
        ({"n_kv_heads": 8}, "n_kv_heads=8 must divide n_heads=4"),
        ({"d_model": 15, "n_heads": 3}, "d_model=15 must be even for sinusoidal"),
        ({"d_head": 5, "positions": {"kind": "rotary"}}, "d_head=5 .*must be even"),
        ({"positions": {"kind": "rotary", "fraction": 0.75}}, "d_head=4 .*fraction=0.75 must be even"),
        ({"positions": {"kind": "rotary", "fraction": 0.1}}, "fraction=0.1.*must be"),
        ({"d_head": 80, "positions": ROTARY | {"fraction": 0.37}}, "d_head=80 .*fraction=0.37 must be even"),
        (
            {"input": IMAGE, "positions": {"kind": "learned", "max_length": 16}},
            "max_length=16 .*at least the 17",
        ),
        ({"input": IMAGE | {"patch_size": 7}}, "patch_size=7 must divide image_size=32"),
        ({"norm": "rms", "norm_bias": True}, "norm_bias"),
        ({"positions": {"kind": "relative", "n_buckets": 2}}, "n_buckets.*(=2|greater than)"),
        ({"positions": {"kind": "relative", "n_buckets": 32, "max_distance": 8}}, "max_distance=8"),
        ({"positions": {"kind": "rotary", "scaling": SQUARE}}, "low_factor=4.0.*high_factor=4.0"),
        ({"window_layers": (0,)}, r"window_layers=\(0,\) needs window"),
        ({"window": 3, "window_layers": ()}, r"window_layers=\(\) limits no layer; leave"),
        ({"window": 3, "window_layers": (1, 0)}, r"window_layers=\(1, 0\) must be in order and different"),
        ({"window": 3, "window_layers": (1, 1)}, r"window_layers=\(1, 1\) must be in order and different"),
        ({"window": 3, "window_layers": (1, 2)}, r"window_layers=\(1, 2\) must be less than n_layers=2"),
        ({"window": 3, "window_layers": (-1,)}, "window_layers.0.*greater than or equal to 0"),
        ({"positions": ROTARY, "window": 3, "window_positions": ROTARY}, "window_positions needs window_layers"),
        (
            {"window": 3, "window_layers": (1,), "window_positions": ROTARY},
            "window_positions needs rotary positions, got 'sinusoidal'",
        ),
        (
            {
                "positions": ROTARY,
                "window": 3,
                "window_layers": (1,),
                "window_positions": ROTARY | {"fraction": 0.8},
            },
            "fraction=0.8 must be even",
        ),
        ({"first_norm": False, "norm_place": "post"}, "first_norm=False needs norm_place='pre', got 'post'"),
        ({"first_norm": False, "norm_place": "sandwich"}, "first_norm=False needs norm_place='pre'"),
        ({"embed_dropout": 1.0}, "embed_dropout.*less than 1"),
        ({"positions": ROTARY | {"base": 1.0}}, "base.*greater than 1"),
        ({"d_model": 10**9}, "d_model.*less than or equal to 1048576"),
        ({"input": {"kind": "tokens", "vocab_size": 10**30}}, "vocab_size.*less than or equal to 4294967296"),
        ({"d_model": 0}, "d_model.*greater than 0"),
        ({"n_layers": 0}, "n_layers.*greater than or equal to 1"),
        ({"dropout": 1.0}, "dropout.*less than 1"),
        ({"norm": "batch"}, "norm.*'layer' or 'rms'"),
        ({"activation": "tanh"}, "activation.*'relu', 'gelu', 'gelu_tanh'"),
        ({"positions": {"kind": "roatry"}}, "positions.*'roatry'.*'rotary'"),
        (
            {"positions": {"kind": "rotary", "bsae": 1e4}},
            "positions.rotary.bsae.*Extra inputs are not permitted",
        ),
        ({"n_head": 4}, "n_head.*Extra inputs are not permitted"),
        ({"parallel": "one_norm", "norm_place": "post"}, "parallel='one_norm' needs norm_place='pre'"),
        ({"layer_scale": 1.0, "norm_place": "post"}, "layer_scale=1.0 needs norm_place='pre', got 'post'"),
        ({"n_groups": 4}, "n_groups=4 must divide n_layers=2"),
        ({"clamp": {}}, "clamp needs gated=True"),
        ({"positions": c.ALiBi(), "rotary_layers": (0,)}, "needs rotary positions"),
        ({"positions": ROTARY, "rotary_layers": ()}, "rotates in no layer"),
        ({"positions": ROTARY, "rotary_layers": (2,)}, "must be less than n_layers=2"),
        ({"positions": ROTARY, "rotary_layers": (1, 0)}, "must be in order"),
        ({"positions": ROTARY | {"fraction": 0.5, "scaling": LONG}}, "scaling.divisors: expected 1, half .*, got 2"),
        ({"positions": TOGETHER, "d_model": 15, "n_heads": 1}, "d_model=15 must be even"),
        ({"positions": {"kind": "learned_grid", "side": 3}}, "'learned_grid' need an input of patches, got tokens"),
        (
            {"input": IMAGE, "positions": {"kind": "learned_grid", "side": 4, "first": 2}},
            "positions.first=2 must be at most 1, the cells before the patches",
        ),
        ({"input": IMAGE, "positions": {"kind": "rotary_grid"}, "d_head": 6}, "d_head=6 must be a multiple of 4"),
        (
            {"positions": DISENTANGLED | {"content_to_position": False, "position_to_content": False}},
            "content_to_position=False needs position_to_content=True",
        ),
        ({"positions": DISENTANGLED | {"n_buckets": 4, "max_distance": 3}}, "max_distance=3 must exceed .*n_buckets=4"),
        ({"positions": DISENTANGLED, "qk_norm": True}, "qk_norm=True has no meaning for vectors of distances"),
        ({"input": TOKENS | {"tokens_alone": True}}, "tokens_alone=True needs width"),
        ({"input": {"kind": "frames", "n_frames": 9}}, "n_frames=9 must be even"),
        ({"input": WAVES, "positions": c.NoPositions()}, "position_groups=5 must divide d_model=16"),
        ({"experts": {"n": 2, "n_chosen": 3}}, "n_chosen=3 must be at most n=2"),
        ({"experts": {"n": 4, "n_groups": 3}}, "n_groups=3 must divide n=4"),
        ({"experts": {"n": 4, "n_groups": 2, "n_groups_chosen": 3}}, "n_groups_chosen=3 must be at most n_groups=2"),
        (
            {"experts": {"n": 4, "n_groups": 2, "n_groups_chosen": 1, "n_chosen": 3}},
            "n_chosen=3 must be at most the experts of",
        ),
        ({"experts": {"n": 4, "shared_gate": True}}, "shared_gate=True needs shared"),
        ({"experts": {"n": 2, "layers": (2,)}}, "must be less than n_layers=2"),
    ],
)
def test_a_wrong_stack_names_field_value_and_remedy(changes: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=f"(?s){message}"):
        small.stack(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "encoder and decoder are both missing: give at least one"),
        (
            {"encoder": small.stack(), "decoder": small.stack(d_model=8)},
            "encoder.d_model=16 must equal decoder.d_model=8",
        ),
        ({"decoder": small.stack(input=IMAGE)}, "decoder.input must be tokens"),
        ({"encoder": small.stack(input=IMAGE)}, "language head needs a stack that reads tokens"),
        (
            {"decoder": small.stack(), "share_embeddings": True},
            r"share_embeddings needs two token stacks.*\[13\]",
        ),
        (
            {"encoder": small.stack(input=TOKENS), "decoder": small.stack(), "share_embeddings": True},
            r"one vocab_size, got \[5, 13\]",
        ),
        ({"encoder": small.stack(), "head": {"kind": "classification"}}, "n_labels.*required"),
        (
            {"encoder": small.stack(), "head": {"kind": "tagging", "n_labels": 3, "labels": ("a", "b")}},
            "labels: expected one for each of n_labels=3, got 2",
        ),
        (
            {
                "encoder": small.stack(),
                "head": {"kind": "classification", "n_labels": 2, "pooler": True, "transform": True},
            },
            "pooler=True and transform=True exclude each other",
        ),
        ({"encoder": small.stack(), "init": {"std": -1.0}}, "init.std.*greater than 0"),
        (
            {"decoder": small.stack(input=TOKENS | {"mask_id": 2})},
            "decoder.input.mask_id: its factor depends on the whole text",
        ),
        ({"encoder": small.stack(input=NARROW)}, "head.transform=False needs input.width=6 to be d_model=16"),
        (
            {
                "encoder": small.stack(input=NARROW),
                "decoder": small.stack(input=TOKENS),
                "head": {"kind": "language", "transform": True},
                "share_embeddings": True,
            },
            r"share_embeddings needs one width of the tables, got \[6, 16\]",
        ),
        (
            {"encoder": small.stack(), "head": {"kind": "classification", "n_labels": 2, "pools_last": True}},
            "pools_last=True needs pooler=True",
        ),
        (
            {"encoder": small.stack(), "head": {"kind": "tagging", "n_labels": 5, "blank": 5}},
            "blank=5 must be less than n_labels=5",
        ),
    ],
)
def test_a_wrong_model_names_field_value_and_remedy(changes: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=f"(?s){message}"):
        c.ModelConfig(**changes)


HEADS = [
    c.LanguageHead(tied=False, bias=True, transform=True, scale=2.0, soft_cap=3.0),
    c.ClassificationHead(n_labels=3, pool="mean", pooler=True, labels=("a", "b", "c")),
    c.ClassificationHead(n_labels=3, transform=True, transform_bias=False, bias=False, dropout=0.1),
    c.TaggingHead(n_labels=3, labels=("a", "b", "c")),
    c.SpanHead(),
    c.NoHead(pooler=True),
]


@pytest.mark.parametrize("changes", small.PAIRS.values(), ids=small.PAIRS.keys())
def test_json_round_trip(changes: dict[str, Any]):
    for head in HEADS:
        model = c.ModelConfig(encoder=small.stack(**changes), head=head, init=c.Init(matrices="xavier"))
        text = model.model_dump_json()
        assert c.ModelConfig.model_validate_json(text) == model
        assert c.ModelConfig.model_validate_json(text).model_dump_json() == text


def test_configs_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        small.stack().d_model = 3  # pyrefly: ignore


def test_derived_values_follow_a_copy():
    stack = small.stack(positions=c.Rotary())
    assert stack.head_width == 4
    assert stack.model_copy(update={"d_model": 32}).head_width == 8
    assert stack.model_copy(update={"d_model": 32}) == small.stack(positions=c.Rotary(), d_model=32)


def test_derived_values():
    assert small.stack().score_scale == pytest.approx(0.5)
    assert small.stack(attn_scale=0.3).score_scale == 0.3
    assert (small.stack().kv_heads, small.stack(n_kv_heads=1).kv_heads) == (4, 1)
    assert [small.stack(norm_place=p).has_final_norm for p in ("pre", "post", "sandwich")] == [
        True,
        False,
        True,
    ]
    assert small.stack(norm_place="post", final_norm=True).has_final_norm
    assert small.stack().max_length is None
    assert (
        small.stack(dropout=0.3).embedding_dropout,
        small.stack(dropout=0.3, embed_dropout=0.0).embedding_dropout,
    ) == (
        0.3,
        0.0,
    )
    layers = small.stack(n_layers=3, window=4, window_layers=(0, 2))
    assert [layers.is_windowed(i) for i in range(3)] == [True, False, True]
    assert small.stack(window=4).is_windowed(1)
    assert not small.stack().is_windowed(1)
    assert small.stack(positions=c.Learned(max_length=7, offset=2)).max_length == 7
    image = c.PatchInput.model_validate(IMAGE)
    assert (image.n_patches, image.length) == (16, 17)
    assert c.ModelConfig(decoder=small.stack()).is_causal
    assert not c.ModelConfig(encoder=small.stack()).is_causal


def test_a_mechanism_that_is_not_installed_is_named_with_its_package():
    for field in ("positions", "norm", "activation"):
        value = "other-package.kind" if field == "activation" else {"kind": "other-package.kind"}
        with pytest.raises(ValidationError, match=r"got other-package\.kind; try pip install other-package"):
            c.StackConfig.model_validate({**small.stack().model_dump(), field: value})


def test_a_kind_of_another_package_must_be_of_the_field(monkeypatch):
    monkeypatch.setattr(mechanism, "extensions", lambda _: {"math.norm": "clearhead.config:NormConfig"})
    with pytest.raises(ValidationError, match=r"positions\n.*expected a kind of Encoding, got math\.norm"):
        c.StackConfig.model_validate({**small.stack().model_dump(), "positions": {"kind": "math.norm"}})


def test_an_activation_of_another_package_is_a_function(monkeypatch):
    monkeypatch.setattr(mechanism, "extensions", lambda _: {"a.softsign": "torch.nn.functional:softsign"})
    config = c.ModelConfig(decoder=small.stack(activation="a.softsign"))
    assert c.ModelConfig.model_validate_json(config.model_dump_json()) == config
    x = torch.randn(2, 3)
    assert torch.equal(activation_function("a.softsign")(x), F.softsign(x))
