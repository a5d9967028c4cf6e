"""From ids, pixels and frames to vectors."""

import pytest
import torch

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.embedding import build_embedding
from clearhead.model.layout import Layout
from clearhead.model.summary import summarize
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


def test_masks_are_left_out() -> None:
    network = small.encoder(input=c.TokenInput(vocab_size=small.VOCAB, mask_id=2))
    tokens = ids(2, 7)
    tokens[0, :3], tokens[1, tokens[1] == 2] = 2, 3
    with trace(network) as t:
        network(tokens)
    looked_up = network.get_parameter(EMBED + "tokens.weight")[tokens]
    assert_close(t[EMBED + "tokens"][1], 0.88 * looked_up[1])
    assert not t[EMBED + "tokens"][0, :3].any()
    others = [i for i in range(7) if tokens[0, i] != 2]
    assert_close(t[EMBED + "tokens"][0, others], 0.88 * 7 / len(others) * looked_up[0, others])
    kept = small.kept_bytes(network.train(), [tokens])
    assert summarize(network.config, batch=2, source_length=7).activation_bytes == kept


def test_embedding_dropout_is_its_own() -> None:
    tokens = ids(8, 16)
    for changes, share in (({"dropout": 0.5, "embed_dropout": 0.0}, 0.0), ({"embed_dropout": 0.25}, 0.25)):
        network = small.encoder(**changes).train()
        with trace(network) as t:
            network(tokens)
        dropped = (t["encoder.blocks.0.resid_pre"] == 0).float().mean().item()
        assert dropped == pytest.approx(share, abs=0.04)


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


def test_frames_are_two_convolutions() -> None:
    reads = c.FrameInput(n_frames=10, n_bins=3)
    config = small.stack(input=reads, positions=c.NoPositions())
    embed, d = build_embedding(config), config.d_model
    frames = torch.randn(2, 10, 3)
    first, second = torch.nn.Conv1d(3, d, 3, padding=1), torch.nn.Conv1d(d, d, 3, stride=2, padding=1)
    for name, convolution in (("conv1", first), ("conv2", second)):
        linear = embed.get_submodule(name)
        assert isinstance(linear, torch.nn.Linear)
        with torch.no_grad():
            linear.weight.copy_(convolution.weight.flatten(1))
            assert convolution.bias is not None
            linear.bias.copy_(convolution.bias)
    gelu = torch.nn.functional.gelu
    expected = gelu(second(gelu(first(frames.mT)))).mT
    tokens = Tokens(frames)
    found = embed.vectors(tokens, Layout.of(tokens, length=reads.length))
    assert found.shape == (2, 5, d)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (torch.zeros(1, 8, 3), r"sound: expected shape \(10, 3\), got \(8, 3\); pad or cut it"),
        (torch.zeros(1, 10, 4), r"sound: expected shape \(10, 3\), got \(10, 4\)"),
        (torch.zeros(1, 10, 3, dtype=torch.long), "sound: expected floats of batch x frames x bins, got int64"),
        (torch.zeros(10, 3), "sound: expected floats of batch x frames x bins, got float32"),
    ],
)
def test_a_sound_of_another_shape_is_refused(frames: torch.Tensor, expected: str) -> None:
    stack = small.stack(input=c.FrameInput(n_frames=10, n_bins=3), positions=c.Learned(max_length=5))
    network = Transformer(c.ModelConfig(encoder=stack, head=c.NoHead()))
    with pytest.raises(UserError, match=expected):
        network(frames)
