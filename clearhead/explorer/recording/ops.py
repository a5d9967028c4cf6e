"""How each value in a network comes from others, by address: from its config alone."""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from clearhead import config as c
from clearhead.config import Config
from clearhead.model.positions import ALiBiEncoding, RotaryEncoding

Kind = Literal[
    "lookup", "unfold", "prepend", "sinusoid", "copy", "add", "scale", "soft_cap", "multiply", "activation",
    "linear", "split", "repeat", "mean", "rstd", "norm", "rotate", "relative_bias", "alibi", "matmul_nt", "matmul",
    "mask", "softmax", "project", "sum_heads", "pool",
]  # fmt: skip


class Op(Config):
    """out = op(inputs, weights): one step. What is made and not tapped has an address too, but is not stored."""

    out: str
    op: Kind
    inputs: tuple[str, ...] = ()
    """Addresses; and `STACK.ids`, `.types` and `.positions`, the whole numbers that a stack reads."""
    weights: tuple[str, ...] = ()
    """Names of parameters, a matrix before its bias."""
    by: dict[str, float] = Field(default_factory=dict[str, float])
    """Settings by name, such as a norm's eps."""
    how: str = ""
    """The function of an activation, the name of a mask, how states are pooled, the layout of sines."""
    numbers: tuple[float, ...] = ()
    """Frequencies of a rotation, slopes of ALiBi."""


class Mask(Config):
    """Which cells are open: all; with `causal` keys up to the query; with `window` those less than that far away."""

    causal: bool = False
    window: int | None = None


def masks_of(config: c.ModelConfig) -> dict[str, Mask]:
    """By the names that the ops use."""
    masks: dict[str, Mask] = {}
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if stack is not None:
            causal = name == "decoder"
            masks[f"{name}.attn"] = Mask(causal=causal)
            if stack.window is not None:
                masks[f"{name}.attn.window"] = Mask(causal=causal, window=stack.window)
    if config.encoder and config.decoder:
        masks["decoder.cross"] = Mask()
    return masks


def ops_of(config: c.ModelConfig) -> tuple[Op, ...]:
    """Every step from ids or pixels to logits, in the order in which they run."""
    made = _Ops()
    states, memory = "", None
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if stack is not None:
            states = _Stack(made, stack, name, memory).run()
            memory = states
    _head(made, config, states)
    return tuple(made.ops)


@dataclass
class _Ops:
    ops: list[Op] = field(default_factory=list)

    def do(
        self, out: str, op: Kind, *inputs: str, weights: tuple[str, ...] = (), how: str = "",
        numbers: tuple[float, ...] = (), by: dict[str, float] | None = None,
    ) -> str:  # fmt: skip
        self.ops.append(Op(out=out, op=op, inputs=inputs, weights=weights, how=how, numbers=numbers, by=by or {}))
        return out

    def named(self, out: str) -> str:
        """The last step's result, under the address where it is tapped."""
        self.ops[-1] = self.ops[-1].model_copy(update={"out": out})
        return out

    def linear(self, out: str, x: str, module: str, *, bias: bool) -> str:
        return self.do(out, "linear", x, weights=_parameters(module, bias))

    def norm(self, x: str, module: str, stack: c.StackConfig) -> str:
        layer = stack.norm == "layer"
        centre = (self.do(f"{module}.mean", "mean", x),) if layer else ()
        rstd = self.do(f"{module}.rstd", "rstd", x, *centre, by={"eps": stack.norm_eps})
        return self.do(f"{module}.out", "norm", x, *centre, rstd, weights=_parameters(module, stack.has_norm_bias))


@dataclass(frozen=True)
class _Stack:
    made: _Ops
    config: c.StackConfig
    name: str
    memory: str | None

    def run(self) -> str:
        x = self.embed()
        for layer in range(self.config.n_layers):
            x = self.block(x, layer)
        return self.made.norm(x, f"{self.name}.final_norm", self.config) if self.config.has_final_norm else x

    def embed(self) -> str:
        at, made, reads = f"{self.name}.embed", self.made, self.config.input
        if isinstance(reads, c.TokenInput):
            x = made.do(f"{at}.lookup", "lookup", f"{self.name}.ids", weights=(f"{at}.tokens.weight",))
            if reads.scale:
                x = made.do(f"{at}.scaled", "scale", x, by={"factor": self.config.d_model**0.5})
            if reads.n_types:
                types = made.do(f"{at}.types", "lookup", f"{self.name}.types", weights=(f"{at}.types.weight",))
                made.do(f"{at}.tokens", "add", x, types)
        else:
            x = made.do(f"{at}.unfolded", "unfold", f"{at}.pixels", by={"size": reads.patch_size})
            x = made.linear(f"{at}.patches", x, f"{at}.patches", bias=True)
            if reads.class_token:
                made.do(f"{at}.tokens", "prepend", x, weights=(f"{at}.class_token",))
        x = made.named(f"{at}.tokens")
        positions = self.positions()
        x = made.do(f"{at}.sum", "copy", x) if positions is None else made.do(f"{at}.sum", "add", x, positions)
        return made.norm(x, f"{at}.norm", self.config) if isinstance(reads, c.TokenInput) and reads.norm else x

    def positions(self) -> str | None:
        out, numbers = f"{self.name}.embed.positions", f"{self.name}.positions"
        match self.config.positions:
            case c.Sinusoidal() as waves:
                by = {"base": waves.base, "width": self.config.d_model}
                return self.made.do(out, "sinusoid", numbers, by=by, how=waves.layout)
            case c.Learned() as learned:
                table = (f"{self.name}.positions.table.weight",)
                return self.made.do(out, "lookup", numbers, weights=table, by={"offset": learned.offset})
            case _:
                return None

    def block(self, x: str, layer: int) -> str:
        at, made = f"{self.name}.blocks.{layer}", self.made
        x = made.do(f"{at}.resid_pre", "copy", x)
        first = self.config.first_norm or layer > 0
        before = self.before(x, f"{at}.attn_norm") if first else x
        out = self.attention(f"{at}.attn", before, before, layer)
        x = self.join(x, out, f"{at}.attn", f"{at}.resid_attn")
        if self.memory is not None:
            out = self.attention(f"{at}.cross", self.before(x, f"{at}.cross_norm"), self.memory, None)
            x = self.join(x, out, f"{at}.cross", f"{at}.resid_cross")
        out = self.feed_forward(f"{at}.ffn", self.before(x, f"{at}.ffn_norm"))
        return self.join(x, out, f"{at}.ffn", f"{at}.resid_post")

    def before(self, x: str, norm: str) -> str:
        return x if self.config.norm_place == "post" else self.made.norm(x, norm, self.config)

    def join(self, x: str, branch: str, at: str, out: str) -> str:
        """x + branch, and the norms after the one or the other."""
        if self.config.norm_place == "sandwich":
            branch = self.made.norm(branch, f"{at}_out_norm", self.config)
        if self.config.norm_place != "post":
            return self.made.do(out, "add", x, branch)
        total = self.made.do(f"{at}_sum", "add", x, branch)
        return self.made.do(out, "copy", self.made.norm(total, f"{at}_norm", self.config))

    def attention(self, at: str, x: str, source: str, layer: int | None) -> str:
        """`layer` counts self-attentions; None for the one that reads the memory, which knows no positions."""
        made, stack = self.made, self.config
        windowed = layer is not None and stack.is_windowed(layer)
        rotary = stack.window_positions if windowed and stack.window_positions else stack.positions
        turn = rotary if layer is not None else None
        q = self.side(f"{at}.q", x, stack.n_heads, turn, self.name)
        k = self.side(f"{at}.k", source, stack.kv_heads, turn, self.name)
        v = self.side(f"{at}.v", source, stack.kv_heads, None, self.name)
        group = stack.n_heads // stack.kv_heads
        if group > 1:
            k, v = (made.do(f"{side}.repeat", "repeat", side, by={"times": group}) for side in (k, v))
        scores = made.do(f"{at}.scores.product", "matmul_nt", q, k)
        scores = made.do(f"{at}.scores.scaled", "scale", scores, by={"factor": stack.score_scale})
        if stack.soft_cap is not None:
            scores = made.do(f"{at}.scores.capped", "soft_cap", scores, by={"cap": stack.soft_cap})
        # The windowed layers of a stack with two kinds of positions have the second kind alone.
        added = None if layer is None else self.score_bias(at, rotary)
        if added is not None:
            made.do(f"{at}.scores", "add", scores, added)
        scores = made.named(f"{at}.scores")
        mask = f"{self.name}.cross" if layer is None else f"{self.name}.attn"
        masked = made.do(f"{at}.masked", "mask", scores, how=f"{mask}.window" if windowed else mask)
        z = made.do(f"{at}.z", "matmul", made.do(f"{at}.weights", "softmax", masked), v)
        heads = made.do(f"{at}.heads", "project", z, weights=(f"{at}.out.weight",))
        return made.do(f"{at}.out", "sum_heads", heads, weights=(f"{at}.out.bias",) if stack.has_out_bias else ())

    def side(self, at: str, x: str, heads: int, positions: c.Positions | None, stack: str) -> str:
        """Queries, keys or values; `positions` only where they are normalised and turned by them."""
        made = self.made
        made.linear(f"{at}.linear", x, at, bias=self.config.has_qkv_bias)
        split = made.do(f"{at}.split", "split", f"{at}.linear", by={"heads": heads})
        if self.config.qk_norm and not at.endswith(".v"):
            made.norm(split, f"{at}_norm", self.config)
            split = f"{at}_norm.out"
            if not isinstance(positions, c.Rotary):
                return made.do(at, "copy", split)
        if isinstance(positions, c.Rotary):
            turn = RotaryEncoding(positions, self.config.head_width)
            by = {"magnitude": turn.magnitude}
            made.do(at, "rotate", split, f"{stack}.positions", numbers=tuple(turn.frequencies), by=by)
        return made.named(at)

    def score_bias(self, at: str, positions: c.Positions) -> str | None:
        """What positions add to the scores."""
        out, numbers = f"{at}.scores.bias", f"{self.name}.positions"
        match positions:
            case c.RelativeBias() as relative:
                by: dict[str, float] = {"buckets": relative.n_buckets, "distance": relative.max_distance}
                table, how = (f"{self.name}.positions.table.weight",), "past" if self.name == "decoder" else "both"
                return self.made.do(out, "relative_bias", numbers, weights=table, by=by, how=how)
            case c.ALiBi():
                slopes = tuple(ALiBiEncoding(self.config.n_heads).slopes)
                return self.made.do(out, "alibi", numbers, numbers=slopes)
            case _:
                return None

    def feed_forward(self, at: str, x: str) -> str:
        made, stack = self.made, self.config
        bias = stack.has_ffn_bias
        pre = made.linear(f"{at}.pre", x, f"{at}.gate" if stack.gated else f"{at}.up", bias=bias)
        act = made.do(f"{at}.act", "activation", pre, how=stack.activation)
        if stack.gated:
            made.do(f"{at}.post", "multiply", act, made.linear(f"{at}.up", x, f"{at}.up", bias=bias))
        return made.linear(f"{at}.out", made.named(f"{at}.post"), f"{at}.down", bias=bias)


def _head(made: _Ops, config: c.ModelConfig, x: str) -> None:
    match config.head:
        case c.LanguageHead() as head:
            x = _transformed(made, config, x)
            if head.scale is not None:
                x = made.do("head.scaled", "scale", x, by={"factor": head.scale})
            logits = made.linear("head.logits", x, "head.output", bias=head.bias)
            if head.soft_cap is not None:
                logits = made.named("head.uncapped")
                made.do("head.logits", "soft_cap", logits, by={"cap": head.soft_cap})
        case c.ClassificationHead() as head:
            x = _transformed(made, config, made.do("head.pool", "pool", x, how=head.pool))
            if head.pooler:
                x = made.linear("head.pooler", x, "head.pooler", bias=True)
                x = made.do("head.pooled", "activation", x, how="tanh")
            made.linear("head.logits", x, "head.output", bias=head.bias)
        case c.TaggingHead() | c.SpanHead() as head:
            made.linear("head.logits", _transformed(made, config, x), "head.output", bias=head.bias)
        case c.NoHead():
            return


def _transformed(made: _Ops, config: c.ModelConfig, x: str) -> str:
    head = config.head
    if isinstance(head, c.NoHead) or not head.transform:
        return x
    x = made.linear("head.dense", x, "head.dense", bias=head.transform_bias)
    return made.norm(made.do("head.act", "activation", x, how=config.output.activation), "head.norm", config.output)


def _parameters(module: str, bias: bool) -> tuple[str, ...]:
    return (f"{module}.weight", f"{module}.bias") if bias else (f"{module}.weight",)
