import pytest
import torch

from clearhead.analysis.attention import CrossAttention, aligned, cross_attention
from clearhead.api import architecture
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.recipe import ModelChoice
from clearhead.trace import trace

BOS = 2
SOURCE = [[5, 6, 3], [7, 3], [8, 9, 10, 11, 3], [4, 4, 3]]
TARGET = [[6, 5, 3], [9, 8, 7, 3], [3], [12, 13, 14, 15, 16, 3]]


def network(preset: str = "demo", **stacks: object) -> Transformer:
    torch.manual_seed(0)
    small = {"d_model": 16, "n_layers": 3, "n_heads": 2, "d_ff": 32, "dropout": 0.3, **stacks}
    made = Transformer(architecture(ModelChoice.model_validate({"preset": preset, "stacks": small}), 20))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


@pytest.mark.parametrize("budget", [1, 12, 8192])
def test_batched_is_each_pair_alone(budget: int):
    net = network()
    found = cross_attention(net, SOURCE, TARGET, bos_id=BOS, budget=budget)
    assert len(found) == len(SOURCE)
    net.eval()  # Dropout would blur what it is compared with.
    for source, target, look in zip(SOURCE, TARGET, found, strict=True):
        inputs = [BOS, *target[:-1]]
        with torch.no_grad(), trace(net) as seen:
            logits = net(Tokens(torch.tensor([source])), Tokens(torch.tensor([inputs])))[0]
        assert look.weights.shape == (3, 2, len(target), len(source)), "l h t s"
        for layer in range(3):
            torch.testing.assert_close(look.weights[layer], seen[f"decoder.blocks.{layer}.cross.weights"][0])
        torch.testing.assert_close(look.weights.sum(-1), torch.ones(3, 2, len(target)))
        expected = logits.softmax(-1)[range(len(target)), target]
        torch.testing.assert_close(look.probabilities, expected)


def test_a_step_sees_only_what_was_written_before_it():
    net = network()
    (one,) = cross_attention(net, SOURCE[:1], [[6, 5, 3]], bos_id=BOS)
    (other,) = cross_attention(net, SOURCE[:1], [[6, 9, 3]], bos_id=BOS)
    assert torch.equal(one.weights[:, :, :2], other.weights[:, :, :2])
    assert not torch.allclose(one.weights[:, :, 2], other.weights[:, :, 2])


def test_aligned_is_the_strongest_of_the_mean_over_heads():
    heads = torch.tensor([[[0.6, 0.0, 0.4], [0.1, 0.2, 0.7]], [[0.0, 0.3, 0.7], [0.9, 0.0, 0.1]]])
    weights = torch.stack([heads, heads.flip(-1)])
    look = CrossAttention(weights, torch.ones(2))
    assert aligned(look, 0) == [2, 0]
    assert aligned(look, 1) == [0, 2]


@pytest.mark.parametrize("preset", ["nano", "bert-base"])
def test_a_single_stack_has_none(preset: str):
    with pytest.raises(UserError, match="expected an encoder-decoder"):
        cross_attention(network(preset), SOURCE, TARGET, bos_id=BOS)


def test_nothing_in_nothing_out():
    assert cross_attention(network(), [], [], bos_id=BOS) == []
    with pytest.raises(ValueError, match="shorter"):
        cross_attention(network(), SOURCE, TARGET[:1], bos_id=BOS)
