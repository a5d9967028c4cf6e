"""Tables narrower than the network, blocks that run several times, and layers of heads."""

import pytest
import torch

from clearhead import config as c
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.adapter import adapt
from clearhead.model.summary import summarize
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids, sequences

NARROW = c.TokenInput(vocab_size=small.VOCAB, width=6, norm=True)
MASKED = c.LanguageHead(transform=True, bias=True)

test_properties = properties_of(
    {
        "input": c.TokenInput(vocab_size=small.VOCAB, width=16, norm=True),
        "positions": c.Sinusoidal(offset=3, base=50.0),
        "gated": True,
        "down_bias": False,
        "n_groups": 1,
    }
)


ALONE = c.TokenInput(vocab_size=small.VOCAB, width=6, n_types=2, tokens_alone=True)
LINEAR = c.LanguageHead(transform=True, transform_alone=True, transform_bias=False)


def test_tokens_alone_are_widened_before_the_rest_is_added() -> None:
    network = small.with_head(LINEAR, input=ALONE, positions=c.Learned(max_length=9), norm_place="post")
    tokens, w = ids(2, 5), dict(network.named_parameters())
    x = w["encoder.embed.tokens.weight"][tokens] @ w["encoder.embed.widen.weight"].T
    x = x + w["encoder.embed.types.weight"][0] + w["encoder.positions.table.weight"][:5]
    with trace(network) as seen:
        logits = network(tokens)
    assert_close(seen["encoder.blocks.0.resid_pre"], x)
    y = seen["encoder.blocks.1.resid_post"] @ w["head.dense.weight"].T
    assert_close(logits, y @ w["encoder.embed.tokens.weight"].T)
    small.assert_values_follow(network, ids(1, 5))
    kept = small.kept_bytes(network.train(), [ids(2, 5)])
    assert summarize(network.config, batch=2, source_length=5).activation_bytes == kept


def test_narrow_tables_step_by_step() -> None:
    network = small.with_head(MASKED, input=NARROW, positions=c.Learned(max_length=9))
    tokens, w = ids(2, 5), dict(network.named_parameters())
    x = w["encoder.embed.tokens.weight"][tokens] + w["encoder.positions.table.weight"][:5]
    x = torch.nn.functional.layer_norm(x, [6], w["encoder.embed.norm.weight"], w["encoder.embed.norm.bias"])
    x = x @ w["encoder.embed.project.weight"].T + w["encoder.embed.project.bias"]
    with trace(network) as seen:
        logits = network(tokens)
    assert_close(seen["encoder.blocks.0.resid_pre"], x)
    y = torch.relu(seen["encoder.final_norm.out"] @ w["head.dense.weight"].T + w["head.dense.bias"])
    y = torch.nn.functional.layer_norm(y, [6], w["head.norm.weight"], w["head.norm.bias"])
    assert_close(logits, y @ w["encoder.embed.tokens.weight"].T + w["head.output.bias"])


HEADS: list[c.Head] = [
    MASKED,
    c.TaggingHead(n_labels=1, transform=True, transform_norm=False),
    c.ClassificationHead(n_labels=3, pooler=True, pooler_activation="relu"),
    c.ClassificationHead(n_labels=3, pooler=True, pooler_activation="gelu", pool="mean", pools_last=True),
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)
@torch.no_grad()
def test_every_value_follows_from_its_op_and_padding_counts_nowhere(head: c.Head) -> None:
    network = small.with_head(head, input=NARROW, activation="gelu")
    small.assert_values_follow(network, ids(1, 6))
    assert summarize(network.config, source_length=6).parameters == sum(p.numel() for p in network.parameters())
    batch = sequences(5, 2, 7)
    alone = torch.cat([network(torch.tensor([sequence])).flatten(0, -2) for sequence in batch])
    for tokens in (Tokens.pad(batch), Tokens.pad(batch, left=True), Tokens.pad(batch, packed=True)):
        logits = network(tokens)
        assert_close(tokens.real(logits) if logits.ndim == 3 else logits, alone)


def test_a_mean_before_or_after_the_layer() -> None:
    after = c.ClassificationHead(n_labels=2, pooler=True, pool="mean", pools_last=True)
    network = small.with_head(after)
    w = dict(network.head.named_parameters())
    states, _ = network.states(ids(1, 4))
    made = torch.tanh(states @ w["pooler.weight"].T + w["pooler.bias"])
    assert_close(network(ids(1, 4)), made.mean(1) @ w["output.weight"].T + w["output.bias"])


def test_blocks_of_a_group_are_one() -> None:
    network = small.encoder(n_layers=6, n_groups=2)
    blocks = network.last_stack.blocks
    found = [block.get_parameter("attn.q.weight") for block in blocks]
    assert [weight is found[0] for weight in found] == [True] * 3 + [False] * 3
    assert summarize(network.config).parameters == sum(p.numel() for p in network.parameters())
    assert network.config.output.repeats == 3
    with pytest.raises(UserError, match="adapter: expected blocks with weights of their own, got n_groups=2"):
        adapt(network, AdapterConfig())
