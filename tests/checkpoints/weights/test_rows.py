"""Rules for rows in another order: what is saved is what was loaded, and each row comes from where the rule says."""

import pytest
import torch

from clearhead.checkpoints.weights.mapping import Rule, fused, paired, rename, turned_first

PLAIN = rename("x", "y")
RULES: dict[str, tuple[Rule, int, list[list[int]]]] = {
    "fused": (fused("x", ["q", "k"], rows=[2, 1], groups=2), 6, [[0, 1, 3, 4], [2, 5]]),
    "turned_first": (turned_first(PLAIN, 0, width=5, turned=2), 10, [[3, 4, 0, 1, 2, 8, 9, 5, 6, 7]]),
    "paired": (paired(PLAIN, 0, width=6, rotated=4), 12, [[0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]]),
    "paired, wider": (paired(PLAIN, 0, width=6, rotated=6), 6, [[0, 2, 4, 1, 3, 5]]),
    "of a part": (
        paired(fused("x", ["q", "v"], rows=[4, 4]), 0, width=4, rotated=4),
        8,
        [[0, 2, 1, 3], [4, 5, 6, 7]],
    ),
}


@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize(("rule", "n", "order"), RULES.values(), ids=RULES)
def test_rows_come_from_where_the_rule_says_and_go_back(rule: Rule, n: int, order: list[list[int]], width: int | None):
    theirs = torch.randn(n) if width is None else torch.randn(n, width)
    ours = rule.load([theirs])
    assert len(ours) == len(order)
    for one, rows in zip(ours, order, strict=True):
        assert torch.equal(one, theirs[rows])
    [saved] = rule.save(ours)
    assert torch.equal(saved, theirs)
