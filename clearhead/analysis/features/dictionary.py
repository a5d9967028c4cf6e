"""`Features`: a trained sparse autoencoder or transcoder, and its place in a network."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.block import Block
from clearhead.progress import cached
from clearhead.trace import Address

Kind = Literal["sae", "transcoder"]


@dataclass(frozen=True)
class Site:
    """The two values of a network that features read and write."""

    reads: str
    writes: str

    @property
    def kind(self) -> Kind:
        """A sparse autoencoder reads what it writes; a transcoder does not."""
        return "sae" if self.reads == self.writes else "transcoder"

    @classmethod
    def of(cls, network: Transformer, at: str, kind: Kind) -> Self:
        """The site at an address: the value there, or for a transcoder the FFN's input and output.

        A transcoder's address is that of the FFN, such as decoder.blocks.3.ffn. Raises UserError for any other.
        """
        where = Address.parse(at)
        if where.index:
            raise UserError(f"{at}: expected the address of a whole value, got one with an index; leave it out")
        if kind == "sae":
            return cls(where.path, where.path)
        parts = where.path.split(".")
        if len(parts) < 4 or parts[1] != "blocks" or parts[3] not in ("ffn", "ffn_norm") or not parts[2].isdigit():
            raise UserError(f"{at}: expected the address of an FFN for a transcoder, such as decoder.blocks.0.ffn")
        stacks, path = network.stacks(), ".".join(parts[:3])
        if parts[0] not in stacks or int(parts[2]) >= len(stacks[parts[0]].blocks):
            raise UserError(f"{at}: this network has no {path}; see model.summary() for its stacks")
        block = stacks[parts[0]].blocks[int(parts[2])]
        assert isinstance(block, Block)
        if block.ffn is None:
            raise UserError(f"{at}: expected a block with an FFN, got one without; try another block")
        return cls(f"{path}.{read_by_ffn(block)}", f"{path}.ffn.out")


def read_by_ffn(block: Block) -> str:
    """The value that the feed-forward part of a block reads."""
    if block.residual.config.norm_place not in ("post", "branch") and block.ffn_norm is not None:
        return "ffn_norm.out"
    if block.parallel:
        return "resid_pre" if block.attn_norm is None or block.parallel != "one_norm" else "attn_norm.out"
    return "resid_attn" if block.cross is None else "resid_cross"


@dataclass(frozen=True, eq=False)
class Features:
    """f = act(x W_enc + b_enc),  y = f W_dec + b_dec (+ x W_skip)

    A sparse autoencoder (Bricken et al. 2023; Gao et al. 2024) has y close to x, a transcoder (Dunefsky et al. 2024) y
    close to what the FFN makes of x, with W_skip if it has a linear way beside (Paulo et al. 2025). `act` keeps the k
    largest positive numbers of a position, or those above each feature's threshold (0 is ReLU; Rajamanoharan et al.
    2024, JumpReLU).

    Attached to a network, `reads.name` is an address: a trace records f there, b t f, and an edit of it adds
    (f' - f) W_dec to the value at `writes`, so that what the features do not explain stays as it is.
    """

    __repr__ = brief

    site: Site
    w_enc: Tensor
    """d f"""
    b_enc: Tensor
    """f"""
    w_dec: Tensor
    """f d"""
    b_dec: Tensor
    """d"""
    threshold: Tensor | None = None
    """f: what a number must exceed to count, at least 0; None is 0 for all."""
    k: int | None = None
    """How many features of a position are active at most; None for any number."""
    w_skip: Tensor | None = None
    """d d: from what they read to what they write."""
    name: str = "features"
    source: str = ""
    """The arguments of `load_features` that read them, as Python, if they come from files."""

    def __post_init__(self) -> None:
        n, (d_in, d_out) = len(self.b_enc), (self.w_enc.shape[0], len(self.b_dec))
        expected = {"w_enc": (d_in, n), "w_dec": (n, d_out), "b_enc": (n,), "b_dec": (d_out,)}
        expected |= {} if self.threshold is None else {"threshold": (n,)}
        expected |= {} if self.w_skip is None else {"w_skip": (d_in, d_out)}
        for name, shape in expected.items():
            if tuple(getattr(self, name).shape) != shape:
                raise UserError(f"{name}: expected shape {shape}, got {tuple(getattr(self, name).shape)}")
        if self.k is not None and not 0 < self.k <= n:
            raise UserError(f"k: expected 1 to {n}, the number of features, got {self.k}")

    @property
    def reads(self) -> str:
        """The address that the features read."""
        return self.site.reads

    @property
    def writes(self) -> str:
        """The address that they write to."""
        return self.site.writes

    @property
    def address(self) -> str:
        """Their own address in a network that they are attached to."""
        return f"{self.reads}.{self.name}"

    @property
    def n(self) -> int:
        """The number of features."""
        return len(self.b_enc)

    @cached
    def _moved(self) -> dict[tuple[torch.device, torch.dtype], "Features"]:
        return {}

    def like(self, value: Tensor) -> "Features":
        """The same features on the device of a value, and in its type."""
        if (value.device, value.dtype) == (self.w_enc.device, self.w_enc.dtype):
            return self
        key = value.device, value.dtype
        if key not in self._moved:
            tensors = {name: one.to(*key) for name, one in vars(self).items() if isinstance(one, Tensor)}
            self._moved[key] = replace(self, **tensors)
        return self._moved[key]

    def encode(self, value: Tensor) -> Tensor:
        """... d -> ... f: how strongly each feature is active. Raises UserError for values of another width."""
        own = self.like(value)
        if value.shape[-1] != own.w_enc.shape[0]:
            raise UserError(f"{self.reads}: the features read {len(own.w_enc)} numbers, got {value.shape[-1]}")
        before = value @ own.w_enc + own.b_enc
        active = before.relu() if own.threshold is None else before * (before > own.threshold.clamp(min=0))
        if own.k is None or own.k == own.n:
            return active
        largest, at = active.topk(own.k, dim=-1)
        return torch.zeros_like(active).scatter(-1, at, largest)

    def written(self, change: Tensor) -> Tensor:
        """... f -> ... d: the effect of a change of the features on the value at `writes`."""
        return change @ self.like(change).w_dec

    def reconstructed(self, value: Tensor) -> Tensor:
        """... d -> ... d: the value at `writes`, as the features have it from the one at `reads`."""
        own = self.like(value)
        found = own.written(own.encode(value)) + own.b_dec
        return found if own.w_skip is None else found + value @ own.w_skip
