"""What a layer's state forgets: how much of each position is left in it later."""

import torch
from torch import Tensor

from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.mixers.delta import GatedDeltaRule
from clearhead.model.mixers.mixer import kept_shares
from clearhead.model.mixers.selective_scan import ChannelStates
from clearhead.model.mixers.state_space import SelectiveStateSpace
from clearhead.model.mixers.time_mixing import AgeingMean
from clearhead.trace import Trace


@torch.no_grad()
def kept(network: Transformer, seen: Trace, at: str) -> Tensor:
    """b h t s: the share of what position s wrote to the state at `at` that is left at t, by its length; 0 if s > t.

    `at` is a layer with a state, such as `decoder.blocks.3.mix`, and `seen` a trace of texts without padding between
    their tokens. A head of `SelectiveScan` or `TimeMixing` is a channel. The gated delta rule forgets by its decay, and
    by what later positions write over keys like that of s. Raises UserError for a layer without such a state.
    """
    mix = dict(network.named_modules()).get(at)
    if isinstance(mix, SelectiveStateSpace):
        return kept_shares(seen[f"{at}.decay"].mT)
    if isinstance(mix, AgeingMean):
        return kept_shares(mix.rate.expand_as(seen[f"{at}.k"]).mT)
    if isinstance(mix, ChannelStates):
        squares, step = seen[f"{at}.b"].mT.square()[:, :, None, None], seen[f"{at}.step"].mT
        each = zip(squares.unbind(1), mix.rate.unbind(1), strict=True)
        left = torch.stack([square * kept_shares(2 * step * rate[:, None]) for square, rate in each]).sum(0)
        return (left / squares.sum(1).clamp(min=torch.finfo(left.dtype).tiny)).sqrt()
    if not isinstance(mix, GatedDeltaRule):
        raise UserError(f"{at}: expected a layer with a state that decays, such as decoder.blocks.0.mix")
    keys, decay, rate = seen[f"{at}.k"], seen[f"{at}.decay"].mT.exp(), seen[f"{at}.rate"].mT
    left, rows = torch.zeros_like(keys), list[Tensor]()
    for t in range(keys.shape[2]):
        k = keys[:, :, t, None]
        left = decay[:, :, t, None, None] * (left - rate[:, :, t, None, None] * (left @ k.mT) * k)
        left = torch.cat([left[:, :, :t], k, left[:, :, t + 1 :]], 2)
        rows.append(left.norm(dim=-1))
    return torch.stack(rows, 2) / keys.norm(dim=-1).clamp(min=torch.finfo(keys.dtype).tiny)[:, :, None]
