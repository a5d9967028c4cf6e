import pytest
import torch

from clearhead import config as c
from clearhead.analysis.sweep import PARTS, PatchingSweep, aligned
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.trace import Edit
from tests.analysis.kinds import traced
from tests.analysis.test_scores import inputs, shaken
from tests.explorer.traced import CONFIGS
from tests.model import small

WITH_HEADS = [name for name, config in CONFIGS.items() if not isinstance(config.head, c.NoHead)]


@pytest.mark.parametrize(
    ("clean", "corrupt", "expected"),
    [
        ("abcd", "axyd", "00 11 22 33"),
        ("ab cd ef", "abcd ef", "00 11 32 43 54 65 76"),
        ("abcd", "axbcyd", "00 12 23 35"),
        ("tcs", "tbds", "00 12 23"),
        ("abc", "ab", "00 11"),
        ("a", "bcd", "02"),
    ],
)
def test_alignment(clean: str, corrupt: str, expected: str):
    """The last of what differs is aligned: in `tbds` the d, as c in `tcs`."""
    assert aligned([*map(ord, clean)], [*map(ord, corrupt)]) == [(int(a), int(b)) for a, b in expected.split()]


def other(network: Transformer, given: list[Tokens], *, cut: int) -> list[Tokens]:
    """Another input for the first stack, and the same for the others."""
    first, *rest = given
    if first.ids.ndim > 2:
        return [Tokens(first.ids.flip(-1)), *rest]
    ids = first.ids.clone()
    ids[0, 1:3] = (ids[0, 1:3] + 1) % 11
    return [Tokens(ids[:, : ids.shape[1] - cut]), *rest]


@pytest.mark.parametrize("name", WITH_HEADS)
def test_a_cell_is_what_the_patched_network_answers(name: str):
    """Against the same patches made one at a time by edits of a trace."""
    network = shaken(CONFIGS[name])
    clean = inputs(network)
    corrupt = other(network, clean, cut=0)
    sweep = PatchingSweep(network, clean, corrupt, 0, minus=1, position=2, budget=30, least=0.0)
    seen, _ = traced(network, clean)

    def answer(edit: dict[str, Edit], given: list[Tokens]) -> float:
        _, logits = traced(network, given, edit)
        logits = logits[0] if logits.ndim == 2 else logits[0, 2]
        return float(logits[0] - logits[1])

    small.assert_close(sweep.clean.float(), torch.tensor([answer({}, clean)]))
    small.assert_close(sweep.corrupt.float(), torch.tensor([answer({}, corrupt)]))
    rows = list(sweep.rows())
    assert [row.at for row in rows] == [at for part in PARTS for at in sweep.sites(part)]
    scale = abs(float(sweep.clean - sweep.corrupt))
    for row in rows:
        for i in (0, 2, -1):
            i = i % len(row.restored)
            edit: dict[str, Edit] = {f"{row.at}[{row.axis}={i}]": seen[f"{row.at}[{row.axis}={i}]"]}
            expected = float((answer(edit, corrupt) - sweep.corrupt) / (sweep.clean - sweep.corrupt))
            assert abs(float(row.restored[i]) - expected) <= 2e-5 * max(1.0, 1 / scale), (row.at, i)


@pytest.mark.parametrize("name", WITH_HEADS[::2])
def test_a_batch_is_its_pairs_alone(name: str):
    network = shaken(CONFIGS[name]).double()
    given = [inputs(network), inputs(network)]
    if given[0][0].ids.is_floating_point():
        given = [[Tokens(one.ids.double()) for one in some] for some in given]
    given[1][0] = Tokens(given[1][0].ids.roll(1, -1))
    pairs = [(clean, other(network, clean, cut=0)) for clean in given]
    alone = [PatchingSweep(network, *pair, 0, minus=i, position=3, least=0.0) for i, pair in enumerate(pairs, 1)]
    clean, corrupt = (
        [Tokens(torch.cat([one.ids for one in stack])) for stack in zip(*side, strict=True)]
        for side in zip(*pairs, strict=True)
    )
    both = PatchingSweep(network, clean, corrupt, [0, 0], minus=[1, 2], position=3, budget=40, least=0.0)
    for row in both.rows():
        for i, one in enumerate(alone):
            torch.testing.assert_close(row.each[i], one.row(row.at).each[0], atol=1e-6, rtol=1e-6)


def test_cells_of_several_positions():
    """A cell of all positions restores all, and one without positions has no number."""
    network, clean = small.decoder(), small.ids(2, 6)
    corrupt = clean.clone()
    corrupt[0, 3], corrupt[1, 4] = (corrupt[0, 3] + 1) % small.VOCAB, (corrupt[1, 4] + 1) % small.VOCAB
    columns = torch.zeros(3, 2, 6, dtype=torch.bool)
    columns[0], columns[1, 0, 3], columns[1, 1, 4], columns[2, 0, 3:5] = True, True, True, True
    sweep = PatchingSweep(network, [clean], [corrupt], [2, 2], columns={"decoder": columns}, least=0.0)
    expected = torch.tensor([[1.0, 1, 1], [1, 1, float("nan")]])
    found = sweep.row("decoder.blocks.0.resid_pre").each
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0, equal_nan=True)


def test_what_the_cells_say():
    network = small.decoder()
    clean, corrupt = small.ids(1, 6), small.ids(1, 6).clone()
    corrupt[0, 3] = (corrupt[0, 3] + 1) % small.VOCAB
    sweep = PatchingSweep(network, [clean], [corrupt], 2)
    first = sweep.row("decoder.blocks.0.resid_pre").restored
    torch.testing.assert_close(first, torch.tensor([0.0, 0, 0, 1, 0, 0]), atol=1e-4, rtol=0)
    assert first[:3].tolist() == [0.0, 0.0, 0.0], "states that no run changes are exactly 0"
    last = sweep.row("decoder.blocks.1.ffn.out")
    assert last.restored[:5].abs().max() < 1e-5, "in the last block, only the last position reaches the answer"


def test_other_lengths():
    network = shaken(CONFIGS["encoder_decoder_post"])
    clean = inputs(network)
    corrupt = other(network, clean, cut=2)
    sweep = PatchingSweep(network, clean, corrupt, 3, minus=4)
    assert sweep.alignment["decoder"] == [(i, i) for i in range(6)]
    assert {(0, 0), (3, 3)} < set(sweep.alignment["encoder"]), "the tokens before and after those that differ"
    shorter = PatchingSweep(network, clean, [clean[0], Tokens(clean[1].ids[:, :4])], 3, minus=4)
    assert shorter.position == (5, 3), "the last positions answer"
    back = PatchingSweep(network, corrupt, clean, 3, minus=4)
    row = back.row("encoder.blocks.0.resid_pre").restored
    assert row.isnan().tolist() == [i not in dict(back.alignment["encoder"]).values() for i in range(6)]
    heads = back.row("encoder.blocks.1.attn.z").restored
    assert heads.isfinite().all()


def test_what_is_refused():
    network, one, two = small.decoder(), small.ids(1, 4), small.ids(1, 4, seed=1)
    states = shaken(CONFIGS["encoder_states"])
    every = [PatchingSweep(network, [one], [two], answer, least=0.0) for answer in range(small.VOCAB)]
    answer, near = next((i, sweep) for i, sweep in enumerate(every) if abs(float(sweep.clean - sweep.corrupt)) < 0.1)
    assert near.row("decoder.blocks.0.resid_pre").restored.isfinite().all(), "whoever asks for it gets it"
    for given, message in (
        (([one], [one], 0), r"expected texts that answer differently here, got .* at most"),
        (([one], [two], answer), r"at most 0\.1 apart, and shares of that mean little; choose another text"),
        (([one], [two], 99), "answer 99: expected a number below 13"),
        (([one.repeat(2, 1)], [two], 0), "decoder: expected pairs of one length without padding, got"),
    ):
        with pytest.raises(UserError, match=message):
            PatchingSweep(network, *given)
    with pytest.raises(UserError, match="position 4: expected a position of the clean text, whose length is 4"):
        PatchingSweep(network, [one], [two], 0, position=4)
    for at in ("0.attn.q", "0.cross.out", "2.resid_pre"):
        with pytest.raises(UserError, match="expected the address of resid_pre"):
            near.row(f"decoder.blocks.{at}")
    with pytest.raises(UserError, match="patching: expected a head"):
        PatchingSweep(states, inputs(states), inputs(states), 0)
