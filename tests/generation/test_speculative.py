"""With a draft, the same text is written in fewer passes, whatever the settings and however good the guesses."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead import config as c
from clearhead.errors import UserError
from clearhead.generation import Draft, Drafts, Finished, History, Step, generate, speculation
from clearhead.generation.speculation import LookupDrafter, Pace
from clearhead.model import Tokens, Transformer
from clearhead.trace import trace
from tests.generation.networks import EOS, all_logits, network
from tests.model import small
from tests.model.small import visits

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "controlled": {"repetition_penalty": 1.3, "no_repeat_ngram": 3, "min_new_tokens": 12},
    "banned": {"banned_ids": (3, 4), "first_banned_ids": (5,), "forced_last_id": 7},
    "sampled": {"temperature": 1.0, "seed": 4},
    "narrowed": {"temperature": 0.8, "top_k": 6, "top_p": 0.9, "min_p": 0.01, "seed": 1},
}
MECHANISMS: dict[str, dict[str, Any]] = {
    "learned": {"positions": c.Learned(max_length=44)},
    "rotary_window": {"positions": c.Rotary(), "window": 5, "n_kv_heads": 2},
    "relative": {"positions": c.RelativeBias(n_buckets=8), "window": 3, "window_layers": (1,)},
    "alibi": {"positions": c.ALiBi()},
}


class Steady(Pace):
    """The same number of guesses in every pass, whatever they take."""

    n = 3

    def begins(self) -> bool:
        self.left = self.n
        return True

    def pays(self, chance: float) -> bool:
        self.left -= 1
        return self.left >= 0


@pytest.fixture(params=[1, 5])
def guessing(request, monkeypatch) -> None:
    """This many guesses in every pass."""
    monkeypatch.setattr(Steady, "n", request.param)
    monkeypatch.setattr(speculation, "Pace", Steady)


def near(net: Transformer, noise: float = 0.05, seed: int = 0) -> Transformer:
    """A network that often chooses the same token."""
    other, generator = copy.deepcopy(net), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype) * noise * p.std())
    return other


def sharp(**changes: Any) -> Transformer:
    return small.decoder(input=c.TokenInput(vocab_size=19), **changes).double()


def written(net: Transformer, draft: Draft | None = None, **settings: Any) -> tuple[list[Step], Finished]:
    settings: dict[str, Any] = {"max_new_tokens": 40, "eos_id": EOS} | settings
    prompt = settings.pop("prompt", [1, 7, 5, 9])
    *steps, last = generate(net, Tokens(torch.tensor([prompt])), draft=draft, **settings)
    assert isinstance(last, Finished)
    return [step for step in steps if isinstance(step, Step)], last


def assert_same(net: Transformer, *drafts: Draft, **settings: Any) -> list[Drafts]:
    """Each draft's, after comparing its text with the plain one."""
    plain = written(net, **settings)
    return [_same(plain, written(net, draft, **settings)) for draft in drafts]


def _same(plain: tuple[list[Step], Finished], fast: tuple[list[Step], Finished]) -> Drafts:
    [[expected]], [[found]] = plain[1].hypotheses, fast[1].hypotheses
    assert found.tokens == expected.tokens
    assert (found.reason, found.end_id) == (expected.reason, expected.end_id)
    assert found.log_prob == pytest.approx(expected.log_prob, rel=1e-9, abs=1e-12)
    assert [int(step.tokens) for step in fast[0]] == [int(step.tokens) for step in plain[0]]
    assert fast[1].drafts is not None
    return fast[1].drafts


@pytest.mark.usefixtures("guessing")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_text_is_the_same(mechanism: str):
    """All settings with one mechanism; what positions a cache goes back to hangs on no setting."""
    net = sharp(**MECHANISMS[mechanism])
    networks: list[Draft] = [near(net), near(net, 1.0)]
    right = wrong = 0
    for settings in SETTINGS.values() if mechanism == "rotary_window" else [*SETTINGS.values()][:2]:
        # A network's guesses settle what is drawn, so that the text is another one ("distribution", below).
        drafts: list[Draft] = ["lookup"] if "temperature" in settings else [*networks, "lookup"]
        for done in assert_same(net, *drafts, max_new_tokens=24, **settings):
            right, wrong = right + done.n_right, wrong + done.n_guessed - done.n_right
            assert done.n_passes + done.n_right == done.n_tokens
    assert min(right, wrong) > 10


@pytest.mark.usefixtures("guessing")
def test_right_guesses_spare_passes():
    net = sharp(positions=c.Rotary())
    [done] = assert_same(net, copy.deepcopy(net), max_new_tokens=36, eos_id=None)
    sampled = written(net, copy.deepcopy(net), max_new_tokens=36, eos_id=None, temperature=1.0)[1].drafts
    assert sampled == done, "equal networks agree on every token that one of them drew"
    assert done.n_right == done.n_guessed
    per_pass = min(Steady.n, speculation.MOST) + 1
    assert done.n_tokens == 35
    assert done.n_passes == 1 + -(-34 // per_pass), "the first pass shows the code, and holds no guess"


@pytest.mark.usefixtures("guessing")
def test_it_stops_where_the_text_does():
    net = sharp(positions=c.Rotary())
    seen: list[list[int]] = []

    def stop(tokens: list[int]) -> bool:
        seen.append(tokens)
        return len(tokens) == 7

    assert_same(net, copy.deepcopy(net), eos_id=None, stop=stop)
    assert max(map(len, seen)) == 7, "nothing beyond the end is judged"
    [[whole]] = written(net, eos_id=None)[1].hypotheses
    end = whole.tokens[11]
    assert written(net, eos_id=end)[1].hypotheses[0][0].reason == "eos"
    assert_same(net, near(net), eos_id=end)


@pytest.mark.usefixtures("guessing")
def test_the_draft_may_have_fewer_positions_and_tokens():
    net = sharp(positions=c.Learned(max_length=44))
    short = sharp(positions=c.Learned(max_length=12))
    [done] = assert_same(net, short, eos_id=None)
    assert done.n_guessed > 0
    assert done.n_passes >= 44 - 12 - 1
    assert_same(net, small.decoder(input=c.TokenInput(vocab_size=11)).double(), eos_id=None)
    written(net, small.decoder(input=c.TokenInput(vocab_size=11)).double(), eos_id=None, temperature=1.0)


def test_a_trace_sees_a_pass_for_each_token():
    net = sharp(positions=c.Rotary())
    with trace(net) as seen:
        _, done = written(net, near(net), max_new_tokens=9, eos_id=None)
    assert [v.shape[2] for v in visits(seen, "decoder.blocks.1.attn.q")] == [4, *[1] * 8]
    assert done.drafts is not None
    assert done.drafts.n_guessed == 0


def test_samples_have_the_target_distribution(monkeypatch):
    """The second and the third token, the third beside a guess, over 600 seeds, against the exact probabilities."""
    monkeypatch.setattr(speculation, "Pace", Steady)
    size, n_texts = 4, 600
    net, draft = (network(vocab_size=size, positions=c.Rotary(), seed=seed, sharp=0.8, ending=0.0) for seed in (1, 2))
    exact, counts = torch.zeros(2, size, size, dtype=torch.double)
    first = all_logits(net, [1], None)[-1].softmax(-1)
    for a in range(size):
        second = all_logits(net, [1, a], None)[-1].softmax(-1)
        for b in range(size):
            exact[b] += first[a] * second[b] * all_logits(net, [1, a, b], None)[-1].softmax(-1)
    right = wrong = 0
    for seed in range(n_texts):
        _, done = written(net, draft, prompt=[1], max_new_tokens=4, eos_id=None, temperature=1.0, seed=seed)
        [[text]] = done.hypotheses
        counts[text.tokens[1:3]] += 1
        assert done.drafts is not None
        right, wrong = right + done.drafts.n_right, wrong + done.drafts.n_guessed - done.drafts.n_right
    statistic = float(((counts - n_texts * exact).square() / (n_texts * exact)).sum())
    assert exact.sum() == pytest.approx(1)
    assert statistic < 37.7, "chi-square with 15 degrees of freedom, p = 0.001"
    assert right > 50
    assert wrong > 50


def test_a_seed_and_a_draft_make_one_text(monkeypatch):
    """Whatever the clock says, which decides how many guesses a greedy text has."""
    net = sharp(positions=c.Rotary())
    ticks = iter(range(100_000))
    found = []
    for step in (1, 50):
        monkeypatch.setattr(speculation.time, "perf_counter", lambda step=step: next(ticks) ** step % 1009)
        _, done = written(net, near(net), eos_id=None, temperature=1.0, seed=3)
        found.append((done.hypotheses, done.drafts))
    assert found[0] == found[1]
    assert found[0][1] is not None
    assert found[0][1].n_right > 5
    assert written(net, near(net), eos_id=None, temperature=1.0, seed=4)[1].hypotheses != found[0][0]


def test_a_trained_model_writes_the_same(shared_data: Path, monkeypatch):
    folder = shared_data / "checkpoints" / "stories15M"
    if not folder.is_dir():
        pytest.skip("no checkpoint stories15M in the folder of real data")
    monkeypatch.setattr(speculation, "Pace", Steady)
    net = clearhead.load(folder, dtype="float32").network
    draft = near(net, 0.1)
    for sampling in ({}, {"temperature": 0.9, "seed": 5}):
        settings: dict[str, Any] = {"prompt": [1, 9038, 2501, 263, 931], "max_new_tokens": 24, **sampling}
        _, plain = written(net, **settings)
        for one in ("lookup",) if "temperature" in settings else (draft, "lookup"):
            _, fast = written(net, one, **settings)
            assert [h.tokens for [h] in fast.hypotheses] == [h.tokens for [h] in plain.hypotheses]


def test_lookup_goes_on_as_the_text_did():
    def guessed(*text: int, most: int = 5) -> list[int]:
        ids = torch.tensor([text])
        guesses = drafter.guesses(History(ids, torch.ones_like(ids, dtype=torch.bool), 2))
        return [guess.token for guess, _ in zip(guesses, range(most), strict=False)]

    drafter = LookupDrafter()
    assert guessed(5, 6, 7, 8, 9, 5, 6) == [7, 8, 9, 5, 6]
    assert guessed(5, 6, 7, 8, 9, 5, 6, 1, 6, 7) == [8, 9, 5, 6, 1], "new tokens are added"
    assert guessed(5, 6, 7, 8, 9, 5, 6, 1, 6, 7, 3) == []
    drafter = LookupDrafter()
    assert guessed(1, 2, 3, 9, 2, 3, 4, 1, 2, 3, most=1) == [9], "the longest match counts"
    drafter = LookupDrafter()
    assert guessed(1, 2, 1, 2) == [1, 2, 1, 2, 1], "a repetition goes on"


# --- how many guesses pay ------------------------------------------------------------------------------------


def simulated(right: float, *, guess: float, row: float, n_tokens: int = 2000) -> tuple[float, int]:
    """The gain over single tokens that take 1 second each, and the number of guesses; no clock is read."""
    generator, pace = torch.Generator().manual_seed(0), Pace()
    seconds, n_written, n_guessed = 0.0, 0, 0
    while n_written < n_tokens:
        n = 0
        if pace.begins():
            chance = 1.0
            while n < speculation.MOST and pace.pays(chance):
                pace.guessed(guess)
                chance *= pace.rightness(0)
                n += 1
        took = 1 + n * row
        pace.passed(n + 1, took, took + n * guess)
        seconds, n_guessed, n_written = seconds + took + n * guess, n_guessed + n, n_written + 1
        for _ in range(n):
            is_right = float(torch.rand((), generator=generator)) < right
            pace.judge(0, is_right=is_right)
            if not is_right:
                break
            n_written += 1
    return n_written / seconds, n_guessed


def test_guesses_pay_or_end():
    assert simulated(0.8, guess=0.1, row=0.1)[0] > 1.6
    assert simulated(0.95, guess=0.02, row=0.05)[0] > 4
    assert simulated(0.5, guess=0.05, row=0.05)[0] > 1.3
    for right, guess, row in ((0.0, 0.1, 0.1), (0.3, 0.3, 0.2), (0.7, 0.7, 0.4), (0.0, 1.0, 1.0)):
        gain, n = simulated(right, guess=guess, row=row)
        assert gain > 0.93
        assert n < 200


def test_a_further_row_costs_what_it_took():
    pace = Pace()
    for n in (1, 1, 2, 4, 7):
        pace.passed(n, 1 + 0.25 * (n - 1), 2.0)
    assert (pace.alone, pace.row) == pytest.approx((1, 0.25))


# --- what does not fit ---------------------------------------------------------------------------------------


def test_refusals():
    net, cross = network(), network(cross=True)
    with pytest.raises(UserError, match="draft: expected one text, greedy or sampled, got beams=3"):
        written(net, net, beams=3)
    with pytest.raises(UserError, match="got 4 at once"):
        written(net, net, temperature=1.0, n_best=4)
    with pytest.raises(UserError, match='expected a network or "lookup", got "other"'):
        written(net, "other")  # pyrefly: ignore[bad-argument-type]
    with pytest.raises(UserError, match="without an encoder"):
        list(generate(cross, source=Tokens(torch.tensor([[3, 4]])), bos_id=1, draft="lookup"))
    with pytest.raises(UserError, match="a network that continues texts"):
        written(net, cross)
