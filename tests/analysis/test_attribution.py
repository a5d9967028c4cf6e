from collections.abc import Callable

import pytest
import torch

from clearhead import config as c
from clearhead.analysis.attribution import attribute, attribute_each
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.trace import Edit, trace, zero
from tests.analysis.kinds import CASES, Case, pictures, traced
from tests.model import small


def narrow() -> Case:
    stack = small.stack(input=c.TokenInput(vocab_size=13, width=6), norm_place="post")
    config = c.ModelConfig(encoder=stack, head=c.ClassificationHead(n_labels=6))
    return small.shaken(Transformer(config)), [Tokens(small.ids(1, 4))]


def scaled() -> Case:
    config = c.ModelConfig(decoder=small.stack(), head=c.LanguageHead(tied=False, bias=True, scale=0.5))
    return small.shaken(Transformer(config)), [Tokens(small.ids(1, 4))]


MORE: dict[str, Callable[[], Case]] = {
    **CASES, "last": lambda: pictures(pool="last"), "mean": lambda: pictures(pool="mean"), "narrow": narrow,
    "scaled": scaled,
}  # fmt: skip


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("minus", [None, 1])
@pytest.mark.parametrize("name", MORE)
def test_shares_sum_to_the_logit(name: str, minus: int | None, edited: bool):
    network, inputs = MORE[name]()
    edit: dict[str, Edit] = {f"{next(iter(network.stacks()))}.blocks.0.ffn.out": zero} if edited else {}
    found = attribute(network, inputs, 2, minus=minus, position=3, edit=edit)
    with torch.no_grad(), trace(network, edit):
        logits = network(*(x.padded() for x in inputs))
    logits = logits if logits.ndim == 2 else logits[:, 3]
    expected = logits[:, 2] if minus is None else logits[:, 2] - logits[:, minus]
    small.assert_close(found.logit, expected)
    total = torch.stack(list(found.shares.values())).sum(0)
    torch.testing.assert_close(total, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
def test_several_logits_at_once_have_the_shares_of_each(name: str):
    network, inputs = CASES[name]()
    first = [Tokens(x.padded().ids[:1, :5]) for x in inputs]
    logits = torch.tensor([[1, 4], [0, 2], [3, 3], [2, 5], [4, 0]])
    each = attribute_each(network, first, logits)
    for t, k in ((0, 0), (3, 1), (4, 0)):
        one = attribute(network, first, int(logits[t, k]), position=t)
        assert each.keys() == one.shares.keys()
        for part, share in one.shares.items():
            torch.testing.assert_close(each[part][t, k], share[0], atol=1e-5, rtol=1e-4)


def test_parts_have_addresses_and_parameter_names():
    network, inputs = CASES["encoder_decoder"]()
    shares = attribute(network, inputs, 0, position=3).shares
    seen, _ = traced(network, inputs)
    parameters = dict(network.named_parameters())
    for part in shares:
        assert part in (parameters if part.endswith(".bias") else seen), part
    assert len(shares) == 2 + 2 * (4 + 1 + 4 + 1 + 1) + 1, "embedding, positions; heads, biases, FFN; final norm's bias"


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_share_is_what_goes_with_its_part_when_the_scales_stay(place: str):
    """The norms that it passes keep their scale, and the later branches their values."""
    stacks = {"encoder": small.stack(norm_place=place), "decoder": small.stack(norm_place=place)}
    network = small.shaken(Transformer(c.ModelConfig(**stacks)))
    inputs, part = [small.ids(1, 5), small.ids(1, 4, seed=1)], "decoder.blocks.0.cross.heads[h=2]"
    seen, plain = traced(network, inputs)
    norms = ["decoder.final_norm.rstd"]
    if place == "post":
        norms = [f"decoder.blocks.{i}.{n}_norm.rstd" for i in (0, 1) for n in ("attn", "cross", "ffn")]
    outs = ["decoder.blocks.0.ffn.out", *(f"decoder.blocks.1.{part}.out" for part in ("attn", "cross", "ffn"))]
    _, gone = traced(network, inputs, {address: seen[address] for address in (*norms, *outs)} | {part: zero})
    share = attribute(network, inputs, 5, position=-1).shares[part]
    torch.testing.assert_close(share, (plain - gone)[:, -1, 5], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "head",
    [
        c.LanguageHead(transform=True), c.LanguageHead(soft_cap=5.0), c.ClassificationHead(n_labels=6, pooler=True),
        c.NoHead(),
    ],
)  # fmt: skip
def test_refusals(head: c.Head):
    network = Transformer(c.ModelConfig(encoder=small.stack(), head=head))
    with pytest.raises(UserError, match="attribution: expected"):
        attribute(network, [small.ids(1, 4)], 0)
    with pytest.raises(UserError, match="logit 13: expected a number below 13"):
        attribute(small.decoder(), [small.ids(1, 4)], 13)
    for position, tokens in ((4, small.ids(1, 4)), (-5, small.ids(1, 4)), (-1, Tokens.pad(small.sequences(2, 4)))):
        with pytest.raises(UserError, match="real position"):
            attribute(small.decoder(), [tokens], 0, position=position)
