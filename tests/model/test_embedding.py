"""From ids and pixels to vectors."""

import pytest
import torch

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, ids

EMBED = "encoder.embed."


def test_sum_of_tokens_positions_and_types() -> None:
    network = small.encoder(
        input=c.TokenInput(vocab_size=small.VOCAB, scale=True, n_types=2, norm=True),
        positions=c.Learned(max_length=9),
    )
    tokens, types = ids(2, 5), torch.tensor([[0, 0, 1, 1, 1], [0, 1, 0, 1, 0]])
    with trace(network) as t:
        network(Tokens(tokens, types=types))
    looked_up = network.get_parameter(EMBED + "tokens.weight")[tokens] * 4.0  # sqrt(16)
    looked_up = looked_up + network.get_parameter(EMBED + "types.weight")[types]
    assert_close(t[EMBED + "tokens"], looked_up)
    assert_close(t[EMBED + "sum"], looked_up + network.get_parameter("encoder.positions.table.weight")[:5])
    assert_close(t["encoder.blocks.0.resid_pre"], t[EMBED + "norm.out"])


def test_no_types_is_type_zero() -> None:
    network = small.encoder(input=c.TokenInput(vocab_size=small.VOCAB, n_types=2))
    tokens = ids(2, 5)
    assert torch.equal(network(tokens), network(Tokens(tokens, types=torch.zeros_like(tokens))))


@pytest.mark.parametrize("class_token", [True, False])
def test_patches_are_a_strided_convolution(class_token: bool) -> None:
    vit = c.PatchInput(image_size=8, patch_size=4, n_channels=2, class_token=class_token)
    stack = small.stack(input=vit, positions=c.Learned(max_length=vit.length))
    network = small.shaken(
        Transformer(c.ModelConfig(encoder=stack, head=c.ClassificationHead(n_labels=3, pool="first")))
    )
    images = torch.randn(2, 2, 8, 8)
    with trace(network) as t:
        assert network(images).shape == (2, 3)
    patches = network.encoder.embed.get_submodule("patches") if network.encoder else None
    assert isinstance(patches, torch.nn.Linear)
    kernel = patches.weight.view(16, 2, 4, 4)
    expected = torch.nn.functional.conv2d(images, kernel, patches.bias, stride=4).flatten(2).mT
    assert_close(t[EMBED + "tokens"][:, class_token:], expected)
    if class_token:
        assert torch.equal(t[EMBED + "tokens"][0, 0], network.get_parameter(EMBED + "class_token"))


def test_an_image_of_another_size_is_refused() -> None:
    stack = small.stack(input=c.PatchInput(image_size=8, patch_size=4), positions=c.Learned(max_length=5))
    network = Transformer(c.ModelConfig(encoder=stack, head=c.NoHead()))
    with pytest.raises(UserError, match=r"expected shape \(3, 8, 8\), got \(3, 8, 12\)"):
        network(torch.zeros(1, 3, 8, 12))
