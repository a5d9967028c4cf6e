"""The terms of an attention score sum to it in a model of every family."""

import pytest
import torch

from clearhead.analysis.scores import split_score
from clearhead.analysis.shares import Shares
from clearhead.config import Continuous
from clearhead.model import Tokens
from tests.later import later
from tests.model import small
from tests.parity.cases import ONE_EACH
from tests.parity.harness import Case, inputs, kept

later("transformers")


@pytest.mark.slow
@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_the_terms_of_every_score_sum_to_it(case: Case):
    theirs, model = kept(case)[:2]
    stacks, given = model.network.stacks().values(), inputs(case, theirs).ours
    pairs = zip(stacks, given, strict=True)
    alone = [Tokens(x.ids[:1] if isinstance(stack.config.input, Continuous) else x.ids[:1, :3]) for stack, x in pairs]
    shares = Shares.traced(model.network, alone)
    paths = [path for path in shares.ops if path.endswith(".scores")]
    assert paths or model.network.keeps_states
    for path in paths:
        scores = shares.value(path)
        heads, t, s = scores.shape
        cells = {(0, 0, 0), (heads - 1, t - 1, s - 1), (heads - 1, t - 1, 0), (0, 0, s - 1)}
        found = {cell: split_score(shares, f"{path}[h={cell[0]},t={cell[1]},s={cell[2]}]") for cell in cells}
        totals, expected = (torch.tensor(x) for x in ([one.total for one in found.values()], scores.tolist()))
        small.assert_close(totals, torch.stack([expected[cell] for cell in found]))
