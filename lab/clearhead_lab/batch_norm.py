"""BatchNorm in place of LayerNorm, which the engine does not have."""

from torch import Tensor, nn

from clearhead.model import Transformer
from clearhead.model.norm import LayerNorm


class BatchNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, each feature over all cells of the batch (Ioffe and Szegedy 2015)

    Outside training it takes the running mean and variance of training.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d."""
        return self.norm(x.flatten(0, -2)).view_as(x)


def with_batch_norm(network: Transformer) -> Transformer:
    """Puts a BatchNorm in place of each LayerNorm, in place; returns the network."""
    for name, module in list(network.named_modules()):
        if isinstance(module, LayerNorm):
            network.set_submodule(name, BatchNorm(len(module.weight)))
    return network
