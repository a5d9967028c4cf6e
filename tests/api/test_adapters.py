"""A low-rank adapter that no product file names, in the place of every linear map (Hu et al. 2021)."""

import copy
from typing import cast

import pytest
import torch
from torch import Tensor, nn

import clearhead
from clearhead.analysis.ablation import effects
from clearhead.analysis.attention import weighted_norms
from clearhead.analysis.attribution import attribute
from clearhead.analysis.lens import logit_lens
from clearhead.api import Model
from clearhead.config import LanguageHead
from clearhead.explorer.recording import recording as recorded
from clearhead.explorer.session import Session
from clearhead.model import Transformer
from clearhead.model.assign import merged
from clearhead.model.fast.packing import packed
from clearhead.model.linear import LinearMap, effective_weight, replace, shapes
from tests.explorer.asking import ask
from tests.explorer.traced import CONFIGS, inputs, model_of, record

NAMES = ("encoder_decoder_post", "decoder_pre_learned", "decoder_rotary_grouped")
"""Shared and tied tables; a tied one; none."""
RANK = 2


class LowRank(LinearMap):
    """y = x (W + B A)^T + b, with W of any kind."""

    def __init__(self, linear: nn.Linear | LinearMap) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias)
        self.base = linear
        self.down = nn.Parameter(0.3 * torch.randn(RANK, linear.in_features))
        self.up = nn.Parameter(0.3 * torch.randn(linear.out_features, RANK))

    def effective_weight(self) -> Tensor:
        return effective_weight(self.base) + self.up @ self.down

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.down.T) @ self.up.T


def adapted(network: Transformer) -> None:
    """Put adapters around every linear map; only they learn."""
    network.requires_grad_(False)
    torch.manual_seed(1)
    replace(network, LowRank)
    for module in network.modules():
        if isinstance(module, LowRank):
            module.up.requires_grad_(), module.down.requires_grad_()


def by_hand(network: Transformer) -> Transformer:
    """A plain network whose matrices are the sums."""
    config = network.config
    if isinstance(config.head, LanguageHead):
        config = config.model_copy(update={"head": config.head.model_copy(update={"tied": False})})
    plain = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            path, _, last = name.rpartition(".")
            module = network.get_submodule(path)
            if isinstance(module, LowRank) and last == "weight":
                parameter.copy_(effective_weight(module.base) + module.up @ module.down)
            else:
                parameter.copy_(getattr(module, last))
    return plain


@pytest.fixture(params=NAMES)
def both(request) -> tuple[Model, Model]:
    """A model with adapters, and the plain one that it equals."""
    model = model_of(CONFIGS[request.param])
    adapted(model.network)
    assert sum(isinstance(m, LowRank) for m in model.network.modules()) > 10
    return model, Model(by_hand(model.network), model.tokenizer, model.generation)


@torch.no_grad()
def close(a: Tensor, b: Tensor) -> None:
    assert (a - b).abs().max() <= 1e-5 * max(1.0, float(b.abs().max()))


def test_analyses_are_those_of_the_sum(both: tuple[Model, Model]):
    model, plain = both
    texts = inputs(model.config)
    (seen, logits), (expected, known) = model.trace(*texts), plain.trace(*texts)
    close(logits, known)
    assert set(seen) == set(expected)
    for address in seen:
        close(seen[address].nan_to_num(), expected[address].nan_to_num())
    close(logit_lens(model.network, seen).logsumexp, logit_lens(plain.network, expected).logsumexp)
    at = "decoder.blocks.1.attn"
    close(weighted_norms(model.network, seen, at), weighted_norms(plain.network, expected, at))
    tokens = model.inputs(*texts)
    sites = [f"{at}.z[h=1]", "decoder.blocks.0.ffn.post[f=3]"]
    found, wanted = (effects(one.network, tokens, sites) for one in both)
    assert found == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    if model.config.output.norm_place != "post":
        shares, sums = (attribute(one.network, tokens, 3, minus=1) for one in both)
        assert shares.shares.keys() == sums.shares.keys()
        for part in shares.shares:
            close(shares.shares[part], sums.shares[part])


def test_the_explorer_shows_the_sum(both: tuple[Model, Model]):
    model, plain = both
    text, target = inputs(model.config)
    recording = record(model, text, target)
    assert max(one.relative for one in recorded.recomputed(recording).values()) <= 1e-5
    sessions = [Session(one, name="model", text=text, target=target) for one in both]
    name = "decoder.blocks.0.attn.out.weight"
    weights = [ask(session, "weights", at=[name, "head.output.weight"])[1] for session in sessions]
    for at in weights[0]:
        close(weights[0][at], weights[1][at])
    close(weights[0][name], plain.network.get_parameter(name))
    checks = [ask(session, "check", run=session.start.model_dump(mode="json"))[0]["check"] for session in sessions]
    assert checks[0]["recompute_max_relative"] <= 1e-5


def test_what_is_saved_is_the_sum(both: tuple[Model, Model], tmp_path):
    model, plain = both
    text = inputs(model.config)
    loaded = clearhead.load(model.save(tmp_path / "model"))
    assert not any(isinstance(module, LinearMap) for module in loaded.network.modules())
    close(loaded.logits(*text), plain.logits(*text))
    close(model.changed(positions="none").logits(*text), plain.changed(positions="none").logits(*text))
    assert merged(plain.network) is plain.network


def test_generation_and_other_maps_take_adapters(both: tuple[Model, Model], monkeypatch):
    model, plain = both
    text, _ = inputs(model.config)
    if model.is_encoder_decoder:
        assert model.translate([text]) == plain.translate([text])
    else:
        assert model.generate(text) == plain.generate(text)
    monkeypatch.setattr("clearhead.model.fast.packing.WORTH_PACKING", 1)
    tokens = model.inputs(*inputs(model.config))
    close(packed(model.network)(*tokens), plain.network(*tokens))
    twice = copy.deepcopy(model.network)
    path = "decoder.blocks.0.ffn.up"
    twice.set_submodule(path, LowRank(cast("LowRank", twice.get_submodule(path))))
    close(merged(twice)(*tokens), twice(*tokens))
    assert set(shapes(model.network)) == set(shapes(plain.network))
