"""Records in words on attention and networks: each is a check that finds the statement true or false."""

from typing import Any

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.checkpoints.families import preset
from clearhead.model import Layout, Tokens, Transformer, cost
from clearhead.model.attention import Attention
from clearhead.model.feedforward import FeedForward
from clearhead.model.norm import LayerNorm
from clearhead_lab.examples.parts import (
    Compute,
    Statement,
    attend,
    count,
    f64,
    mixed,
    on_meta,
    residual,
    scores_of,
    set_weight,
    small_decoder,
    stack,
    weights_of,
)
from clearhead_lab.examples.products import chain
from clearhead_lab.examples.records import Inputs


def random_matrices(d: int) -> dict[str, Tensor]:
    """Queries', keys' and values' matrices drawn at random."""
    return {name: torch.randn(d, d, dtype=torch.float64) for name in "qkv"}


def attention_flops(n: int, h: int) -> int:
    """FLOPs of one attention of width 512 over n positions."""
    network = on_meta(lambda: Transformer(c.ModelConfig(encoder=stack(512, n_heads=h), head=c.NoHead())))
    return next(part.cost.flops for part in cost.parts(network, n, 0) if part.component.startswith("attention"))


# --- attention --------------------------------------------------------------------------------------------------------


def _s0_04(i: Inputs) -> Statement:
    attention, x = Attention(stack(512, d_head=64)), torch.randn(3, 512)
    stored = list(attention.q.weight.shape)
    same = torch.allclose(attention.q(x), x @ attention.q.weight.mT, atol=1e-5)
    return Statement(stored == i["W_Q_eq14"] or not same, f"the matrix that is transposed is stored as {stored}")


def _s0_07(i: Inputs) -> Statement:
    q, k = torch.randn(2, 450, i["d_k"], dtype=torch.float64)
    variance = scores_of(q, k, attn_scale=1.0).var().item()
    return Statement(abs(variance / 64 - 1) < 0.05, f"{variance:.1f} over 202,500 products")


def _s0_18(i: Inputs) -> Statement:
    rows = mixed(i["W"], torch.eye(3))
    where = {value: divmod(int((rows - value / 100).abs().argmin()), 3)[0] for value in (42, 28, 31, 36)}
    words = ["money", "bank", "grows"]
    told = f'42% and 28% are weights of "{words[where[42]]}", 31% and 36% of "{words[where[31]]}"'
    return Statement(where[42] == where[28] == 0 and where[31] == where[36] == 1, told)


def _little(difference: float) -> str:
    """A difference in float64; rounding, which is each processor's own, has no digits."""
    return "less than 1e-12" if difference < 1e-12 else f"{difference:.0e}"


def _s0_24(i: Inputs) -> Statement:
    x, order = torch.randn(i["n"], i["d"], dtype=torch.float64), i["perm"]
    matrices = random_matrices(i["d"])
    plain, permuted = (attend(rows, weights=matrices)["z"][0, 0] for rows in (x, x[order]))
    invariant, equivariant = ((permuted - other).abs().max().item() for other in (plain, plain[order]))
    pooled = (permuted.mean(0) - plain.mean(0)).abs().max().item()
    told = f"outputs differ by {invariant:.2f}; by {_little(equivariant)} after the same permutation"
    told += f", by {_little(pooled)} pooled"
    return Statement(invariant < 1e-9, told)


def _s0_40(_: Inputs) -> Statement:
    weights = weights_of([[0.0, 0.0, 9.0], [0.0, 0.0, 9.0], [0.0, 0.0, 0.0]])[:2, 2]
    return Statement(weights.sum().item() <= 1.0, f"two queries can both have weight {weights.min():.4f} on one key")


def _s0_41(_: Inputs) -> Statement:
    attention = Attention(stack(8, n_heads=2)).double()
    joined = torch.randn(5, 8, dtype=torch.float64)
    apart = (attention.out(joined) - (attention.out.weight @ joined.mT).mT).abs().max().item()
    return Statement(apart < 1e-12, f"they differ by {_little(apart)}")


def _s0_54(_: Inputs) -> Statement:
    q, k = torch.randn(2, 5, 64, dtype=torch.float64)
    ratio = (scores_of(q, k, attn_scale=1.0) / scores_of(q, k)).mean().item()
    return Statement(abs(ratio - 1) < 1e-9, f"the scores of a head of width 64 are q·k / {ratio:.0f}")


def cost_of_heads(_: Inputs) -> tuple[int, int]:
    """FLOPs of one head and of eight, 100 positions of width 512."""
    return attention_flops(100, 1), attention_flops(100, 8)


def _s0_60(i: Inputs) -> Statement:
    one, eight = cost_of_heads(i)
    return Statement(eight > one, f"{eight // 2:,} multiply-adds for 8 heads, {one // 2:,} for one")


def _s3_09b(i: Inputs) -> Statement:
    one, eight = cost_of_heads(i)
    return Statement(eight * 8 == one, f"{eight // 2:,} multiply-adds for 8 heads, {one // 2:,} for one")


def _s1_28(i: Inputs) -> Any:
    """Largest change of a logit before the changed tokens; and whether those after change."""
    n, start = i["T"], i["change_from"]
    config = stack(32, n_heads=4, input=c.TokenInput(vocab_size=50), positions=c.Learned(max_length=n))
    network = Transformer(c.ModelConfig(decoder=config)).eval()
    first = torch.randint(0, 50, (2, n))
    second = torch.where(torch.arange(n) >= start, (first + 1) % 50, first)
    with torch.no_grad():
        change = (network(first) - network(second)).abs()
    return [change[:, :start].max(), (change[:, start:].max() > 0).double(), *change.shape]


def _s2_17(i: Inputs) -> Statement:
    words, row = ["I", "love", "apple", "phones"], chain(i)["weights"][0, 0, 2]
    order = row.argsort(descending=True).tolist()
    told = ", ".join(f"{words[j]} {row[j]:.3f}" for j in order)
    return Statement(words[order[0]] == "phones", told)


def _s2_19(i: Inputs) -> Statement:
    scores = scores_of([i["q"]] * 2, i["k"])[0]
    cosines = torch.cosine_similarity(f64([i["q"]]), f64(i["k"]))
    told = "; ".join(f"cosine {a:.2f}, score {b:.2f}" for a, b in zip(cosines, scores, strict=True))
    return Statement(bool((cosines.argsort() == scores.argsort()).all()), told)


def _s2_18(i: Inputs) -> Any:
    """Standard deviation of a product of independent vectors, and +500 in units of it."""
    deviation = 1 / stack(i["d"], n_heads=1).score_scale
    return [deviation, 500 / deviation]


def _s3_03(_: Inputs) -> Statement:
    q, k = torch.randn(2, 40, 8, dtype=torch.float64)
    ratio = (scores_of(q, k, attn_scale=3.0).var() / scores_of(q, k, attn_scale=1.0).var()).item()
    return Statement(abs(ratio - 9) < 1e-9, f"three times the scores have {ratio:.1f} times the variance")


def _s3_28(_: Inputs) -> Statement:
    bank, river, money, loan = torch.randn(4, 8, dtype=torch.float64)
    matrices = random_matrices(8)

    def read(*words: Tensor) -> Tensor:
        return attend(torch.stack(words), weights=matrices)["z"][0, 0, 0]

    other = (read(bank, river, loan) - read(bank, money, loan)).abs().max().item()
    order = (read(bank, money, loan) - read(bank, loan, money)).abs().max().item()
    told = f"changed by {other:.2f} with another neighbour, by {_little(order)} with another order"
    return Statement(other < 1e-9, told)


def _s3_30(_: Inputs) -> Statement:
    def block(n: int) -> int:
        config = stack(512, n_heads=8)
        network = on_meta(lambda: Transformer(c.ModelConfig(encoder=config, head=c.NoHead())))
        return sum(part.cost.flops for part in cost.parts(network, n, 0))

    ratio = block(1024) / block(512)
    return Statement(abs(ratio - 4) < 0.05, f"{ratio:.2f} times the FLOPs of a block of width 512 at 512 -> 1,024")


def _s3_31(_: Inputs) -> Statement:
    def flops(n: int, *, explicit: bool) -> int:
        network = on_meta(lambda: Transformer(c.ModelConfig(encoder=stack(64), head=c.NoHead())))
        parts = cost.parts(network, n, 0, explicit=explicit)
        return sum(part.cost.flops for part in parts if part.component.startswith("attention"))

    ratio = flops(65_536, explicit=False) / flops(32_768, explicit=False)
    same = flops(32_768, explicit=False) == flops(32_768, explicit=True)
    told = (
        f"{ratio:.2f} times the FLOPs at twice the length, {'as many' if same else 'not as many'} as explicit attention"
    )
    return Statement(ratio < 2.1, told)


def _s4_29(_: Inputs) -> Any:
    """For statements a to d, whether they hold: 1 or 0."""
    q, k = torch.randn(2, 4, 16, dtype=torch.float64) * 8
    raw, divided = scores_of(q, k, attn_scale=1.0), scores_of(q, k)
    weights = weights_of(divided)
    by_query = weights_of(scores_of(q[1:2].expand(4, -1), k))[0]  # query 2 with all keys
    by_key = weights_of(scores_of(q, k[1:2].expand(4, -1)))[1]  # all queries with key 2
    in_range = bool((divided.min() >= 0) & (divided.max() <= 1))  # by division alone
    steadier = bool(weights_of(raw).amax(-1).mean() > weights.amax(-1).mean())
    a, b = (bool(torch.allclose(one, weights[1])) for one in (by_key, by_query))
    return [float(one) for one in (a, b, in_range, steadier)]


# --- networks ---------------------------------------------------------------------------------------------------------


def bottleneck(_: Inputs) -> Statement:
    """True if the hidden layer is narrower than the model."""
    config = preset("transformer-base").output
    told = f"the hidden layer is {config.d_ff} wide, the model {config.d_model}"
    return Statement(config.d_ff < config.d_model, told)


def _s0_49(_: Inputs) -> Statement:
    x, norm = torch.randn(2, 8, dtype=torch.float64), LayerNorm(8, eps=1e-12, bias=False).double()
    forms = {"x + f(Norm(x))": x + norm(x).sin(), "Norm(x + f(x))": norm(x + x.sin())}
    found = {
        place: next(name for name, value in forms.items() if torch.allclose(residual(x, torch.sin, place), value))
        for place in ("post", "pre")
    }
    return Statement(found["post"] == "x + f(Norm(x))", f"post-norm is {found['post']}, pre-norm {found['pre']}")


def _s0_61(i: Inputs) -> Statement:
    places = {name: preset(name).output.norm_place for name in i["presets"]}
    told = ", ".join(f"{name} is {place}-norm" for name, place in places.items())
    return Statement(all(place == "pre" for place in places.values()), told)


def _s0_62(i: Inputs) -> Statement:
    kinds = {name: preset(name).output.positions.kind for name in i["presets"]}
    told = ", ".join(f"the positions of {name} are {kind}" for name, kind in kinds.items())
    return Statement(all(kind == "sinusoidal" for kind in kinds.values()), told)


def _s0_56(_: Inputs) -> Statement:
    corpus = Tokens.pad([[1] * 40, [1] * 25, [1] * 60])
    highest, total = int(Layout.of(corpus).positions.max()), 125
    return Statement(highest + 1 == total, f"three texts with {total} tokens have positions 0 to {highest}")


def _s1_25(_: Inputs) -> Statement:
    network = small_decoder()
    blocks = network.last_stack.blocks
    sizes = {kind: sum(count(block.get_submodule(kind)) for block in blocks) for kind in ("ffn", "attn")}
    sizes["embedding"] = count(network, "tokens.weight")
    told = ", ".join(f"{name} {n:,}" for name, n in sizes.items())
    return Statement(max(sizes, key=lambda name: sizes[name]) == "embedding", told)


def _s1_29(i: Inputs) -> Statement:
    """The first loss with a table drawn from N(0, 1), as the listing has it, and with the engine's own draw."""
    table = c.TokenInput(vocab_size=i["V"])
    config = stack(i["d"], n_layers=2, n_heads=8, bias=True, input=table, positions=c.Learned(max_length=64))
    network = Transformer(c.ModelConfig(decoder=config, head=c.LanguageHead(tied=True))).eval()
    text = torch.randint(0, i["V"], (2, 33))

    def loss() -> float:
        with torch.no_grad():
            logits = network(text[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).item()

    small = loss()
    network.last_stack.table.weight.data.normal_()
    large = loss()
    even = torch.tensor(float(i["V"])).log().item()
    return Statement(large < even + 1, f"loss {large:.0f}; {small:.1f} with a small draw; ln V is {even:.1f}")


def _s1_30(_: Inputs) -> Statement:
    x = f64([-1.0])
    outputs = {name: _activated(x, name) for name in ("relu", "gelu")}
    told = f"-1 becomes {outputs['relu']:.3f} under ReLU, {outputs['gelu']:.3f} under GELU"
    return Statement(abs(outputs["relu"] - outputs["gelu"]) < 0.005, told)


def _activated(x: Tensor, activation: str) -> float:
    ffn = FeedForward(stack(1, d_ff=1, activation=activation)).double()
    ffn.up.weight.data.fill_(1.0)
    ffn.down.weight.data.fill_(1.0)
    return ffn(x[None, None]).item()


def _s1_37(i: Inputs) -> Statement:
    """The statement that a unit follows one row of the d x d_ff matrix W_1, not one column."""
    x, w = torch.randn(i["d"], dtype=torch.float64), torch.randn(i["d"], i["d_ff"], dtype=torch.float64)

    def moved(changed: Tensor) -> int:
        ffn = FeedForward(stack(i["d"], d_ff=i["d_ff"])).double()
        outputs: list[Tensor] = []
        for weight in (w, changed):
            set_weight(ffn.up, weight)
            outputs.append(ffn.up(x))
        return int((outputs[0] != outputs[1]).sum())

    row, column = w.clone(), w.clone()
    row[0], column[:, 0] = 0.0, 0.0
    by_row, by_column = moved(row), moved(column)
    return Statement(by_row == 1, f"a row of W_1 changes {by_row} of {i['d_ff']} units, a column {by_column}")


def _s4_30(i: Inputs) -> Statement:
    config = preset(i["preset"])
    return Statement(config.decoder is None, "an encoder" if config.decoder is None else "a decoder without an encoder")


COMPUTED: dict[str, Compute] = {
    "s0-04": _s0_04,
    "s0-07": _s0_07,
    "s0-18": _s0_18,
    "s0-24": _s0_24,
    "s0-40": _s0_40,
    "s0-41": _s0_41,
    "s0-49": _s0_49,
    "s0-54": _s0_54,
    "s0-55": bottleneck,
    "s0-56": _s0_56,
    "s0-60": _s0_60,
    "s0-61": _s0_61,
    "s0-62": _s0_62,
    "s1-25": _s1_25,
    "s1-28": _s1_28,
    "s1-29": _s1_29,
    "s1-30": _s1_30,
    "s1-32": bottleneck,
    "s1-37": _s1_37,
    "s2-17": _s2_17,
    "s2-18": _s2_18,
    "s2-19": _s2_19,
    "s3-03": _s3_03,
    "s3-09b": _s3_09b,
    "s3-28": _s3_28,
    "s3-30": _s3_30,
    "s3-31": _s3_31,
    "s4-29": _s4_29,
    "s4-30": _s4_30,
}
