"""Values of networks that read pictures, made again op by op; positions in grids; vectors of pictures."""

from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.model.linear import parameter
from clearhead.model.meta import masks_of, ops_of
from clearhead.model.ops import KINDS, Call
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close

IMAGE = {"image_size": 6, "patch_size": 2, "n_registers": 2}
JOINED = c.ClassificationHead(n_labels=3, pool="first_and_mean", patches_only=True)
NETWORKS: dict[str, tuple[dict[str, Any], c.Head]] = {
    "distilled": ({"positions": c.Learned(max_length=12)}, c.ClassificationHead(n_labels=3, distilled=True)),
    "same grid": ({"positions": c.LearnedGrid(side=3), "layer_scale": 0.5}, JOINED),
    "finer grid": ({"positions": c.LearnedGrid(side=2, first=3), "layer_scale": 0.5}, JOINED),
    "coarser grid": ({"positions": c.LearnedGrid(side=7, antialias=True)}, JOINED),
    "turned": ({"positions": c.RotaryGrid(), "key_bias": False}, c.VectorHead(norm=True, width=5)),
    "read": ({"positions": c.NoPositions(), "activation": "quick_gelu"}, c.VectorHead(pool="attention")),
}


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_every_value_follows_from_its_op(name: str) -> None:
    changes, head = NETWORKS[name]
    stack = small.stack(input=c.PatchInput.model_validate(IMAGE), **changes)
    network = small.shaken(Transformer(c.ModelConfig(encoder=stack, head=head)))
    pixels = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    with trace(network) as seen:
        network(pixels)
    made = {"encoder.embed.pixels": pixels[0], "encoder.positions": torch.arange(12)}
    masks = masks_of(network.config)
    for op in ops_of(network.config):
        weights = [parameter(network, one).detach() for one in op.weights]
        made[op.out] = KINDS[op.op].evaluate(Call(op, [made[one] for one in op.inputs], weights, masks.get(op.how)))
    assert {*seen} <= {*made}
    for address in seen:
        assert_close(made[address], seen[address][0])


def test_registers_have_no_position() -> None:
    stack = small.stack(input=c.PatchInput.model_validate(IMAGE), positions=c.LearnedGrid(side=3))
    network = small.shaken(Transformer(c.ModelConfig(encoder=stack, head=c.NoHead())))
    with torch.no_grad(), trace(network) as seen:
        network(torch.randn(1, 3, 6, 6))
    added = seen["encoder.embed.positions"][0]
    assert (added[1:3] == 0).all()
    table = network.get_parameter("encoder.positions.table.weight")
    assert torch.equal(torch.cat([added[:1], added[3:]]), table)


def test_a_picture_moved_by_a_row_turns_the_same() -> None:
    """The product of a query and a key depends on the distance of their patches, in each direction by itself."""
    stack = small.stack(input=c.PatchInput(image_size=8, patch_size=2), positions=c.RotaryGrid())
    network = Transformer(c.ModelConfig(encoder=stack, head=c.NoHead()))
    assert network.encoder is not None
    rotation = network.encoder.positions.rotation(torch.arange(17)[None])
    assert rotation is not None
    q, k = (torch.randn(stack.head_width).expand(1, 1, 17, -1) for _ in range(2))
    products = (rotation(q) @ rotation(k).mT)[0, 0, 1:, 1:]
    patches = {(row, column): 4 * row + column for row in range(4) for column in range(4)}
    for (row, column), at in patches.items():
        for (other_row, other_column), there in patches.items():
            moved = patches.get((row + 1, column + 1)), patches.get((other_row + 1, other_column + 1))
            if None not in moved:
                torch.testing.assert_close(products[at, there], products[moved], rtol=0, atol=1e-4)
    assert torch.equal(rotation(q)[0, 0, 0], q[0, 0, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": c.LearnedGrid(side=3)}, "positions of kind 'learned_grid' need an input of patches, got tokens"),
        ({"layer_scale": 1.0, "norm_place": "post"}, "layer_scale=1.0 needs norm_place='pre', got 'post'"),
        (
            {"input": c.PatchInput(image_size=4, patch_size=2), "positions": c.LearnedGrid(side=2, first=2)},
            "positions.first=2 must be at most 1, the cells before the patches",
        ),
        (
            {"input": c.PatchInput(image_size=4, patch_size=2), "positions": c.RotaryGrid(), "d_head": 6},
            "d_head=6 must be a multiple of 4",
        ),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small.stack(**changes)
