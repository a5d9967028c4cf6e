"""The block from which every family is built."""

from torch import Tensor

from clearhead.config import StackConfig
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias, BiasSteps
from clearhead.model.cache import BlockCache
from clearhead.model.experts import Mixture
from clearhead.model.feedforward import FeedForward
from clearhead.model.layout import Layout
from clearhead.model.mixers.mixer import Mixer
from clearhead.model.mode import Part
from clearhead.model.ops import Steps
from clearhead.model.residual import LayerScale, Residual
from clearhead.trace import tap

Memory = tuple[Tensor, Layout]
"""An encoder's last states and their layout."""


class Block(Part):
    """x -> +attention -> (+cross-attention ->) +feed-forward, each in its residual (Vaswani et al. 2017, figure 1).

    In layers that the config names, a mixer with a state takes the place of attention, or comes before it and reads the
    same, or one of the parts is left out.
    """

    def __init__(self, config: StackConfig, layer: int, *, cross: bool) -> None:
        super().__init__()
        config = config.at_layer(layer)
        self.config, self.parallel = config, config.parallel
        self.residual = residual = Residual(config)
        attn_norm, self.attn_out_norm = residual.norms() if config.mixes(layer) else (None, None)
        self.attn_norm = attn_norm if config.first_norm or layer else None
        mixer = config.mixer if config.has_mixer(layer) else None
        self.attn = Attention(config) if config.has_attention(layer) else None
        self.mix: Mixer | None = None if mixer is None else mixer.build(config)
        self.shares_norm = config.parallel == "one_norm" or (self.attn is not None and self.mix is not None)
        """More than one part reads what the first norm makes."""
        self.attn_scale = residual.layer_scale() if config.mixes(layer) else None
        self.cross_norm, self.cross_out_norm = residual.norms() if cross else (None, None)
        self.cross = Attention(config, cross=True) if cross else None
        self.cross_scale = residual.layer_scale() if cross else None
        ffn_norm, self.ffn_out_norm = residual.norms() if config.has_ffn(layer) else (None, None)
        self.ffn_norm = ffn_norm if config.parallel != "one_norm" else None
        experts = config.experts if config.has_experts(layer) else None
        self.ffn = None if experts is None else Mixture(config, experts)
        if experts is None and config.has_ffn(layer):
            self.ffn = FeedForward(config) if config.mixer is None else config.mixer.build_ffn(config)
        self.ffn_scale = residual.layer_scale() if config.has_ffn(layer) else None

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        attn_bias: AttentionBias,
        *,
        memory: Memory | None = None,
        memory_bias: AttentionBias | None = None,
        cache: BlockCache | None = None,
        onto: Layout | None = None,
    ) -> Tensor:
        """b t d (or packed m d) -> the same shape; with `onto`, made by `layout.only`, the cells of that layout."""
        whole, (early, late) = layout, (None, onto) if isinstance(self.ffn, Mixer) else (onto, None)

        def attend(x: Tensor) -> Tensor:
            assert self.attn is not None
            return _scaled(self.attn(x, whole, attn_bias, cache=cache and cache.attn, onto=early), self.attn_scale)

        def mix(x: Tensor) -> Tensor:
            assert self.mix is not None
            return _scaled(self.mix(x, whole, state=cache and cache.mix, onto=early), self.attn_scale)

        def attend_memory(x: Tensor) -> Tensor:
            assert self.cross is not None
            assert memory_bias is not None
            read = self.cross(x, layout, memory_bias, memory=memory, cache=cache and cache.cross)
            return _scaled(read, self.cross_scale)

        def feed_forward(x: Tensor) -> Tensor:
            assert self.ffn is not None
            if isinstance(self.ffn, Mixer):
                return _scaled(self.ffn(x, whole, state=cache and cache.mix, onto=onto), self.ffn_scale)
            return _scaled(self.ffn(x), self.ffn_scale)

        x = pre = tap(self, "resid_pre", x, "b t d")
        norms, scale = (self.attn_norm, self.attn_out_norm), self.config.scale_of
        if self.shares_norm:
            pre, norms = (pre if norms[0] is None else norms[0](pre)), (None, norms[1])
        x = _picked(x, early, whole)
        if self.mix is not None:
            x = self.residual(x, mix, norms, self.training, reads=pre, scale=scale("mix"))
            x = x if self.attn is None else tap(self, "resid_mix", x, "b t d")
        if self.attn is not None:
            x = self.residual(x, attend, norms, self.training, reads=pre, scale=scale("attn"))
        if early is not None:
            layout, pre = early, early.pick(pre, whole) if self.parallel else pre
        x = tap(self, "resid_attn", x, "b t d")
        if self.cross is not None:
            cross = self.cross_norm, self.cross_out_norm
            x = self.residual(x, attend_memory, cross, self.training, scale=scale("cross"))
            x = tap(self, "resid_cross", x, "b t d")
        reads = pre if self.parallel else x
        x = _picked(x, late, whole)
        if self.ffn is not None:
            norms = self.ffn_norm, self.ffn_out_norm
            x = self.residual(x, feed_forward, norms, self.training, reads=reads, scale=scale("ffn"))
        return tap(self, "resid_post", x, "b t d")

    def steps(
        self,
        to: Steps,
        path: str,
        x: str,
        attn_bias: BiasSteps,
        *,
        memory: tuple[str, BiasSteps] | None,
    ) -> str:
        """Lists the ops of `forward`; returns the address of the result."""

        def attend(x: str) -> str:
            assert self.attn is not None
            mixed = self.attn.steps(to, f"{path}.attn", x, attn_bias)
            return _scale_steps(to, f"{path}.attn_scale", mixed, self.attn_scale)

        def mix(x: str) -> str:
            assert self.mix is not None
            return _scale_steps(to, f"{path}.attn_scale", self.mix.steps(to, f"{path}.mix", x), self.attn_scale)

        def attend_memory(x: str) -> str:
            assert self.cross is not None
            assert memory is not None
            read = self.cross.steps(to, f"{path}.cross", x, memory[1], memory=memory[0])
            return _scale_steps(to, f"{path}.cross_scale", read, self.cross_scale)

        def feed_forward(x: str) -> str:
            assert self.ffn is not None
            return _scale_steps(to, f"{path}.ffn_scale", self.ffn.steps(to, f"{path}.ffn", x), self.ffn_scale)

        residual, scale = self.residual, self.config.scale_of
        x = pre = to.do(f"{path}.resid_pre", "copy", x)
        norms = self.attn_norm, self.attn_out_norm
        if self.shares_norm:
            pre = pre if norms[0] is None else norms[0].steps(to, f"{path}.attn_norm", pre)
            norms = None, norms[1]
        after, at = f"{path}.resid_attn", f"{path}.attn"
        if self.attn is None and self.mix is None:
            x = to.do(after, "copy", x)
        if self.mix is not None:
            out, own = (after, at) if self.attn is None else (f"{path}.resid_mix", f"{path}.mix")
            x = residual.steps(to, out, own, x, mix, norms, reads=pre, scale=scale("mix"))
        if self.attn is not None:
            x = residual.steps(to, after, at, x, attend, norms, reads=pre, scale=scale("attn"))
        if self.cross is not None:
            after, norms = f"{path}.resid_cross", (self.cross_norm, self.cross_out_norm)
            x = residual.steps(to, after, f"{path}.cross", x, attend_memory, norms, scale=scale("cross"))
        if self.ffn is None:
            return to.do(f"{path}.resid_post", "copy", x)
        norms, reads = (self.ffn_norm, self.ffn_out_norm), pre if self.parallel else x
        after = f"{path}.resid_post"
        return residual.steps(to, after, f"{path}.ffn", x, feed_forward, norms, reads=reads, scale=scale("ffn"))


def _picked(x: Tensor, onto: Layout | None, whole: Layout) -> Tensor:
    return x if onto is None else onto.pick(x, whole)


def _scaled(branch: Tensor, scale: LayerScale | None) -> Tensor:
    return branch if scale is None else scale(branch)


def _scale_steps(to: Steps, path: str, branch: str, scale: LayerScale | None) -> str:
    return branch if scale is None else scale.steps(to, path, branch)
