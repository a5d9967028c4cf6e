import re
from dataclasses import replace

import pytest
import torch

from clearhead import config as c
from clearhead.analysis.scores import ov_attribution, qk_attribution, split_score
from clearhead.analysis.shares import Shares
from clearhead.checkpoints.families import preset, presets
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.trace import Edit, zero
from tests.analysis.kinds import traced
from tests.explorer.traced import CONFIGS
from tests.model import small


def shrunk(name: str) -> c.ModelConfig:
    """A preset with two blocks of width 24."""
    config = preset(name)
    changes: dict[str, object] = {}
    for side, stack in config.stacks.items():
        words = {"vocab_size": 11} if isinstance(stack.input, c.TokenInput) else {}
        sizes = {"d_model": 24, "n_layers": 2, "n_heads": 3, "d_ff": 8}
        changes[side] = stack.model_copy(update=sizes | {"input": stack.input.model_copy(update=words)})
    return config.model_copy(update=changes)


ALL = CONFIGS | {name: shrunk(name) for name in presets()}


def shaken(config: c.ModelConfig) -> Transformer:
    return small.shaken(Transformer(config))


def inputs(network: Transformer) -> list[Tokens]:
    """One text of six tokens, or one picture or sound, for each stack."""
    found: list[Tokens] = []
    for i, stack in enumerate(network.stacks().values()):
        reads, generator = stack.config.input, torch.Generator().manual_seed(i)
        if isinstance(reads, c.TokenInput):
            found.append(Tokens(torch.randint(reads.vocab_size, (1, 6), generator=generator)))
        else:
            found.append(Tokens(torch.randn(1, *reads.shape, generator=generator)))
    return found


@pytest.mark.parametrize("name", ALL)
def test_the_terms_of_a_score_sum_to_it(name: str):
    network = shaken(ALL[name])
    shares = Shares.traced(network, inputs(network))
    paths = [path for path in shares.ops if path.endswith(".scores")]
    assert len(paths) == sum(len(s.blocks) * (2 if s.cross else 1) for s in network.stacks().values())
    for path in paths:
        heads, t, s = shares.value(path).shape
        cells = [(h, i, j) for h in range(heads) for i, j in ((0, 0), (t - 1, s // 2), (1, s - 1))]
        found = [split_score(shares, f"{path}[h={h},t={i},s={j}]") for h, i, j in cells]
        scores = shares.value(path)[tuple(torch.tensor(cells).mT)]
        assert [one.score for one in found] == scores.tolist()
        small.assert_close(torch.tensor([one.total for one in found]), scores)


def test_what_the_terms_are():
    network = shaken(CONFIGS["encoder_decoder_relative"])
    found = qk_attribution(network, inputs(network), "decoder.blocks.1.cross.scores[h=1,t=4,s=2]")
    assert "decoder.blocks.1.attn.heads[h=3]" in found.queries, "what the same block's self-attention wrote"
    assert "decoder.blocks.1.ffn.out" not in found.queries
    assert set(found.keys) == {
        "encoder.embed.tokens",
        *(f"encoder.blocks.{i}.attn.heads[h={h}]" for i in range(2) for h in range(4)),
        *(f"encoder.blocks.{i}.ffn.out" for i in range(2)),
    }
    (query, key, term), *_ = found.top(3)
    assert abs(term) == found.pairs.abs().max()
    assert found.pairs[found.queries.index(query), found.keys.index(key)] == term
    biased = qk_attribution(network, inputs(network), "decoder.blocks.1.attn.scores[h=1,t=4,s=2]")
    assert list(biased.others) == ["decoder.blocks.1.attn.distance.bias"]


def test_a_pair_is_what_goes_with_its_query_part_when_the_scale_stays():
    network = shaken(CONFIGS["encoder_decoder_post"])
    given, part, at = inputs(network), "encoder.blocks.0.ffn.out", "encoder.blocks.1.attn.scores[h=2,t=3,s=1]"
    seen, _ = traced(network, given)
    held: dict[str, Edit] = {"encoder.blocks.0.ffn_norm.rstd": seen["encoder.blocks.0.ffn_norm.rstd"]}
    without, _ = traced(network, given, {**held, f"{part}[t=3]": zero})
    found = qk_attribution(network, given, at)
    went = found.pairs[found.queries.index(part)].sum()
    torch.testing.assert_close(went.float(), (seen[at] - without[at])[0], atol=1e-5, rtol=1e-5)


LINEAR = [name for name in ALL if not re.search("capped|masked|classifier|tagger|states|vision|bert", name)]


@pytest.mark.parametrize("name", LINEAR)
def test_a_value_adds_to_a_logit_what_goes_with_it(name: str):
    network = shaken(ALL[name])
    given = inputs(network)
    stack, n = next(reversed(network.stacks().items()))
    seen, plain = traced(network, given)
    for part in [f"{stack}.blocks.0.{kind}" for kind in ("attn", "cross") if f"{stack}.blocks.0.{kind}.z" in seen]:
        h, t, s = 1, 0 if plain.ndim == 2 else 5, 2
        v = seen[f"{part}.v"]
        gone = seen[f"{part}.weights[h={h},t={t},s={s}]"] * v[:, h * v.shape[1] // n.config.n_heads, s]
        # What the head writes passes later parts and norms that stay as they were.
        late = rf"{stack}\.(blocks\..*\.)?\w*norm\.rstd|.*\.(attn|cross|ffn)\.out"
        after = list(seen)[list(seen).index(f"{part}.out") + 1 :]
        held: dict[str, Edit] = {at: seen[at] for at in after if re.fullmatch(late, at)}
        _, without = traced(network, given, {**held, f"{part}.z[h={h},t={t}]": lambda z, gone=gone: z - gone})
        went = (plain - without).reshape(-1, plain.shape[-1])[t]
        found = ov_attribution(network, given, f"{part}.weights[h={h},t={t},s={s}]", 3, minus=1)
        largest = max(abs(one) for one in (*found.shares.values(), plain.abs().max().item(), 1.0))
        assert abs(found.contribution - float(went[3] - went[1])) <= 1e-5 * largest
        assert abs(sum(found.shares.values()) - found.contribution) <= 1e-5 * largest
        assert any(name.endswith("embed.tokens") for name in found.shares)


def test_an_edit_is_a_part_of_its_own():
    network = shaken(CONFIGS["decoder_rotary_grouped"])
    given, at = inputs(network), "decoder.blocks.1.attn.scores[h=0,t=5,s=2]"
    edit: dict[str, Edit] = {"decoder.blocks.0.resid_attn": 0.5, "decoder.blocks.1.attn.k[h=0]": 0.1}
    found = qk_attribution(network, given, at, edit=edit)
    assert found.keys == ("decoder.blocks.1.attn.k",)
    assert found.queries[:2] == ("decoder.blocks.0.resid_attn", "decoder.blocks.0.ffn.out")
    small.assert_close(torch.tensor(found.total), torch.tensor(found.score))
    whole = qk_attribution(network, given, at, edit={at: 3.0})
    assert whole.others == {"decoder.blocks.1.attn.scores": 3.0}
    weights = at.replace("scores", "weights")
    stopped = ov_attribution(network, given, weights, 0, edit={"decoder.blocks.1.attn.z": zero})
    assert stopped.contribution == 0


def test_what_is_refused():
    network, capped = (shaken(CONFIGS[name]) for name in ("encoder_decoder_post", "decoder_alibi_capped"))
    given, at = inputs(network), "decoder.blocks.0.attn"
    twice = [replace(x, ids=x.ids.repeat(2, 1)) for x in given]
    cell = r"expected a cell of attention scores of this model, such as decoder\."
    for call, message in (
        (lambda: qk_attribution(network, given, f"{at}.scores[h=0,t=1]"), cell),
        (lambda: qk_attribution(network, given, f"{at}.q[h=0,t=1,s=0]"), cell),
        (lambda: qk_attribution(network, given, "no.scores[h=0,t=1,s=0]"), cell),
        (lambda: qk_attribution(network, given, f"{at}.scores[h=0,t=9,s=0]"), r"t=9 is outside 0\.\.5"),
        (lambda: qk_attribution(network, twice, "x"), "expected one text without padding, got 2 rows"),
        (lambda: ov_attribution(network, given, "encoder.blocks.0.attn.weights[h=0,t=1,s=0]", 0), "of the decoder"),
        (lambda: ov_attribution(network, given, f"{at}.weights[h=0,t=1,s=0]", 99), "logit 99: expected a number"),
        (lambda: ov_attribution(capped, inputs(capped), f"{at}.weights[h=0,t=1,s=0]", 0), "expected a linear head"),
    ):
        with pytest.raises(UserError, match=message):
            call()
    soft = split_score(Shares.traced(capped, inputs(capped)), f"{at}.scores[h=0,t=1,s=0]")
    assert set(soft.others) == {f"{at}.scores.capped", f"{at}.scores.bias"}
