"""A network whose matrices are rounded to 8 or 4 bits while its arithmetic stays float32."""

from dataclasses import dataclass

from torch import Tensor, nn

from clearhead.brief import brief
from clearhead.config.adapter import Bits
from clearhead.model import linear
from clearhead.model.assign import assemble, merged
from clearhead.model.fast import grouped
from clearhead.model.meta import ops_of
from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class RoundedMatrix:
    """W = s n: 8 bits with one scale a row (`model.linear`), or 4 bits with one a group (`fast.grouped`)."""

    __repr__ = brief

    bits: Bits
    integers: Tensor
    """f d of int8, or two numbers of four bits in a byte, rows padded to groups."""
    scale: Tensor
    """f, or f g."""
    width: int

    @classmethod
    def of(cls, weight: Tensor, bits: Bits) -> "RoundedMatrix":
        """Rounds a matrix, f d, to 8 bits as `load(…, int8=True)` does, or to 4 bits in groups around 0."""
        weight = weight.detach().float().cpu()
        integers, scale = linear.rounded(weight) if bits == 8 else grouped.rounded(weight, bits)
        return cls(bits, integers, scale, weight.shape[1])

    def restored(self) -> Tensor:
        """f d, float32: the values of the integers."""
        if self.bits == 8:
            return self.integers * self.scale[:, None]
        return grouped.restored(self.integers, self.scale, self.width)


def rounded(network: Transformer, bits: Bits) -> tuple[Transformer, dict[str, RoundedMatrix]]:
    """A float32 copy whose linear maps and token tables are rounded, and these matrices by name, tied ones once.

    It differs from an int8 network in that activations are not rounded.
    """
    whole = merged(network)
    state = whole.state_dict(keep_vars=True)
    tensors = dict(whole.named_parameters()) | {n: b for n, b in whole.named_buffers() if n in state}
    matrices = {name: RoundedMatrix.of(tensors[name], bits) for name in _names(whole) if name in tensors}
    made = {name: tensor.detach().float() for name, tensor in tensors.items()}
    made |= {name: matrix.restored() for name, matrix in matrices.items()}
    return assemble(whole.config, made, where="rounded").eval().requires_grad_(False), matrices


def _names(network: Transformer) -> set[str]:
    """The weights of plain linear maps, and the tables that ids of tokens are looked up in."""
    tables = {op.weights[0] for op in ops_of(network.config) if op.op == "lookup" and op.inputs[0].endswith(".ids")}
    return tables | {f"{path}.weight" for path, module in network.named_modules() if type(module) is nn.Linear}
