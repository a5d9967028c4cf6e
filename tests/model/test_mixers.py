"""Layers with a state in place of attention: steps, padding, documents, edits, ops and refusals."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.analysis.states import kept
from clearhead.config import (
    GatedDelta,
    ModelConfig,
    Rotary,
    SelectiveScan,
    ShortConvolution,
    StackConfig,
    StateSpace,
    TimeMixing,
    TokenInput,
)
from clearhead.errors import UserError
from clearhead.generation import complete, generate
from clearhead.model import Tokens, Transformer
from clearhead.model.loss import IGNORED
from clearhead.model.mixers.delta import delta_by_chunks, delta_by_steps
from clearhead.model.mixers.selective_scan import implied_weights
from clearhead.model.mixers.selective_scan import scan as selective_scan
from clearhead.model.mixers.state_space import scan
from clearhead.model.mixers.time_mixing import log_weights, wkv
from clearhead.model.transformer import Stack
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import recording, scale, trace, zero
from tests.model.small import gradients

VOCABULARY = 23


def network(mixer: Any, *, seed: int = 0, n_layers: int = 3, **more: Any) -> Transformer:
    """A network in float64 with drawn weights."""
    torch.manual_seed(seed)
    stack = StackConfig(
        input=TokenInput(vocab_size=VOCABULARY),
        d_model=16,
        n_layers=n_layers,
        n_heads=2,
        d_ff=20,
        positions=Rotary(),
        norm="rms",
        mixer=mixer,
        **more,
    )
    found = Transformer(ModelConfig(decoder=stack)).double().eval()
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return found


VALUES = {"gated_delta": "v", "state_space": "x", "selective_scan": "x", "time_mixing": "v"}
"""What the weights of each weigh."""
LAYERS = st.sampled_from([None, (0,), (1,), (0, 2), (1, 2)])
WIDTHS = st.integers(2, 5)
MIXERS = st.one_of(
    st.builds(ShortConvolution, width=WIDTHS, bias=st.booleans(), layers=LAYERS),
    st.builds(
        StateSpace,
        n_heads=st.just(4),
        d_head=WIDTHS,
        d_state=WIDTHS,
        n_groups=st.sampled_from([1, 2, 4]),
        width=WIDTHS,
        conv_bias=st.booleans(),
        most_step=st.sampled_from([None, 0.5]),
        norm=st.sampled_from(["gated", "before_gate", None]),
        factors=st.sampled_from([None, (0.5, 0.25, 1.5, 0.7, 2.0)]),
        beside=st.booleans(),
        layers=LAYERS,
    ),
    st.builds(
        SelectiveScan,
        d_inner=WIDTHS,
        d_state=WIDTHS,
        rank=WIDTHS,
        width=WIDTHS,
        conv_bias=st.booleans(),
        norms=st.sampled_from([None, "none", "weight"]),
        beside=st.booleans(),
        layers=LAYERS,
    ),
    st.builds(
        GatedDelta, n_heads=st.just(4), n_key_heads=st.sampled_from([None, 1, 2]),
        d_key=WIDTHS, d_value=WIDTHS, width=WIDTHS, layers=LAYERS,
    ),
    st.builds(TimeMixing, d_inner=st.sampled_from([None, 5]), beside=st.booleans(), layers=LAYERS),
)  # fmt: skip


def apart(one: Transformer, texts: list[list[int]]) -> torch.Tensor:
    """The logits of texts read one by one."""
    return torch.cat([one(torch.tensor([text]))[0] for text in texts])


@settings(max_examples=25, deadline=None)
@given(mixer=MIXERS, seed=st.integers(0, 99), data=st.data())
def test_steps_padding_and_documents_change_nothing(mixer: Any, seed: int, data: st.DataObject):
    some: dict[str, Any] = data.draw(
        st.sampled_from([{}, {"ffn_layers": ()}, {"ffn_layers": (2,), "mixing_layers": (0, 1)}])
    )
    one = network(mixer, seed=seed, **some)
    ids = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)
    texts: list[list[int]] = data.draw(st.lists(ids, min_size=2, max_size=3))
    with torch.no_grad():
        expected = apart(one, texts)
        for left, packed in ((False, False), (True, False), (False, True)):
            tokens = Tokens.pad(texts, left=left, packed=packed)
            found = one(tokens)
            found = found[: len(expected)] if found.dim() == 2 else tokens.real(found)
            torch.testing.assert_close(found, expected)
        row = torch.tensor([[i for text in texts for i in text]])
        documents = torch.tensor([[i for i, text in enumerate(texts) for _ in text]])
        positions = torch.tensor([[i for text in texts for i in range(len(text))]])
        torch.testing.assert_close(one(Tokens(row, documents=documents, positions=positions))[0], expected)
        # Padded prompts, then steps: in pieces, and after the rows have moved.
        for left in (False, True):
            cache, prompts = one.new_cache(), Tokens.pad(texts, left=left)
            one.decode(prompts, None, cache)
            cache.select(torch.arange(len(texts)).flip(0))
            more = torch.randint(0, VOCABULARY, (len(texts), 4))
            found = torch.cat([one.decode(Tokens(piece), None, cache) for piece in more.split([1, 2, 1], 1)], 1)
            for text, new, own in zip(texts[::-1], more, found, strict=True):
                torch.testing.assert_close(own, one(torch.tensor([[*text, *new.tolist()]]))[0, len(text) :])


def drawer(seed: int) -> Callable[..., torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=random, dtype=torch.float64, requires_grad=True)


def assert_alike(expected: Any, inputs: Sequence[torch.Tensor | None], ways: Iterable[Any], draw: Any) -> None:
    """Values, and gradients for the inputs, of each way."""
    given, outer = [each for each in inputs if each is not None], [draw(*each.shape).detach() for each in expected]
    right = torch.autograd.grad(expected, given, outer, retain_graph=True)
    for found in ways:
        slopes = torch.autograd.grad(found, given, outer, retain_graph=True)
        for own, its in zip((*found, *slopes), (*expected, *right), strict=True):
            torch.testing.assert_close(own, its, rtol=1e-10, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(t=st.integers(1, 11), groups=st.sampled_from([1, 2, 4]), packed=st.booleans(), seed=st.integers(0, 99))
def test_chunks_are_the_recurrence(t: int, groups: int, packed: bool, seed: int):
    """Forward and gradients in float64: chunks of one position, of three, of all; S_t and y_t as the paper says."""
    draw, (b, h, k, n) = drawer(seed), (2, 4, 3, 5)
    x, write, read, skip = draw(b, h, t, k), draw(b, groups, t, n), draw(b, groups, t, n), draw(h)
    step, decay = draw(b, h, t), draw(b, h, t)
    first = None if packed else draw(b, h, k, n)
    documents = torch.arange(t)[None] // 4 if packed else None
    state, ys = torch.zeros(b, h, k, n, dtype=torch.float64) if first is None else first, list[torch.Tensor]()
    for i in range(t):
        if packed and i % 4 == 0:
            state = torch.zeros_like(state)
        written, asked = (each[:, :, i].repeat_interleave(h // groups, 1) for each in (write, read))
        new = step[:, :, i, None, None] * x[:, :, i, :, None] * written[:, :, None]
        state = (-decay[:, :, i].exp()).exp()[..., None, None] * state + new
        ys.append((state @ asked[..., None])[..., 0] + skip[:, None] * x[:, :, i])
    given = x, write, read, step, -decay.exp(), skip
    ways = (scan(given, first, documents, keep=True, chunk=chunk) for chunk in (1, 3, t))
    assert_alike((torch.stack(ys, 2), state), (x, write, read, step, decay, skip, first), ways, draw)


@settings(max_examples=25, deadline=None)
@given(t=st.integers(1, 11), packed=st.booleans(), seed=st.integers(0, 99))
def test_chunks_of_channels_are_the_recurrence(t: int, packed: bool, seed: int):
    """Forward and gradients in float64: chunks of one position, of three, of all; S_t and y_t as the paper says."""
    draw, (b, d, n) = drawer(seed), (2, 4, 3)
    x, step, write, read, rate = draw(b, t, d), draw(b, t, d), draw(b, t, n), draw(b, t, n), draw(d, n)
    first = None if packed else draw(b, d, n)
    documents = torch.arange(t)[None].expand(b, t) // 4 if packed else None
    state, ys = torch.zeros(b, d, n, dtype=torch.float64) if first is None else first, list[torch.Tensor]()
    for i in range(t):
        state = torch.zeros_like(state) if packed and i % 4 == 0 else state
        decay = (step[:, i].exp()[..., None] * -rate.exp()).exp()
        state = decay * state + (step[:, i].exp() * x[:, i])[..., None] * write[:, i, None]
        ys.append((state @ read[:, i, :, None])[..., 0])
    given, expected = (x, step.exp(), write, read, -rate.exp()), (torch.stack(ys, 1), state)
    ways = (selective_scan(given, first, documents, size=size) for size in (1, 3, t, None))
    assert_alike(expected, (x, step, write, read, rate, first), ways, draw)
    if first is None and t < 5:  # One document: what is read is an attention to what was written.
        weights = implied_weights(read, write, step.exp(), -rate.exp())
        read_back = (weights @ x.mT[..., None])[..., 0].mT
        torch.testing.assert_close(read_back, expected[0], rtol=1e-10, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(t=st.integers(1, 11), packed=st.booleans(), seed=st.integers(0, 99), size=st.sampled_from([1.0, 300.0]))
def test_means_of_spans_are_the_recurrence(t: int, packed: bool, seed: int, size: float):
    """Forward and gradients in float64, against the paper's sums, each over its largest term so far."""
    draw, (b, d) = drawer(seed), (2, 4)
    key, value, rate, bonus = draw(b, t, d), draw(b, t, d), draw(d), draw(d)
    first = () if packed else (draw(b, d), draw(b, d))
    documents = torch.arange(t)[None] // 4 if packed else None
    never, ys, k = torch.full((b, d), -1e30, dtype=torch.float64), list[torch.Tensor](), size * key
    most, sums, weights = (first[0], first[1], torch.ones_like(never)) if first else (never, 0 * never, 0 * never)
    for i in range(t):
        if packed and i % 4 == 0:
            most, sums, weights = never, 0 * never, 0 * never
        now = torch.maximum(most, bonus + k[:, i])
        past, new = (most - now).exp(), (bonus + k[:, i] - now).exp()
        ys.append((past * sums + new * value[:, i]) / (past * weights + new))
        now = torch.maximum(most - rate.exp(), k[:, i])
        past, new = (most - rate.exp() - now).exp(), (k[:, i] - now).exp()
        most, sums, weights = now, past * sums + new * value[:, i], past * weights + new
    given = k, value, -rate.exp().expand(1, t, d), bonus
    y, _, *last = wkv(given, first, documents)
    expected = torch.stack(ys, 1), most + weights.log(), sums / weights
    assert_alike(expected, (key, value, rate, bonus, *first), [(y, *last)], draw)
    if not first and t < 5:
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = log_weights(k, given[2], bonus).masked_fill(later, -torch.inf).softmax(-1)
        read_back = weights @ value.mT[..., None]
        torch.testing.assert_close(read_back[..., 0].mT, expected[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "mixer",
    [
        StateSpace(n_heads=4, d_head=3, d_state=5, n_groups=2),
        SelectiveScan(d_inner=6, d_state=3, rank=2),
        TimeMixing(d_inner=6),
    ],
    ids=lambda mixer: mixer.kind,
)
def test_training_computes_chunks_again(mixer: Any):
    """The backward pass, for which inputs alone are kept, has the gradients of one that keeps everything."""
    one = network(mixer)
    tokens, found = Tokens.pad([[*range(20)] * 8, [1, 2, 3]]), list[dict[str, torch.Tensor]]()
    for logits in (lambda: one(tokens), lambda: one.decode(tokens, None, one.new_cache())):
        found.append(gradients(one, tokens.real(logits()).square().mean()))
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-10, atol=1e-10)


def test_an_edit_of_the_state():
    """An edit of the state changes what comes after it, and nothing before."""
    one, ids = network(ShortConvolution(width=3, layers=(0, 2))), torch.arange(8)[None]
    with torch.no_grad(), trace(one) as plain:
        one(ids)
    with torch.no_grad(), trace(one, edit={"decoder.blocks.0.mix.input[t=5]": zero}) as edited:
        one(ids)
    at = "decoder.blocks.0.mix.conv"
    changed = (plain[at] != edited[at]).any(-1)[0]
    assert changed.tolist() == [False] * 5 + [True] * 3


def test_generation():
    """Cached texts are those of passes over the whole text, alone or in a batch, greedy or by beams. No draft."""
    one, prompts = network(ShortConvolution(layers=(1,))), [[1, 2, 3, 4], [5]]
    whole = [list(prompt) for prompt in prompts]
    with torch.no_grad():
        for text in whole:
            for _ in range(12):
                text.append(int(one(torch.tensor([text]))[0, -1].argmax()))
    for beams in (1, 3):
        given = GenerationConfig(max_new_tokens=12, beams=beams)
        together = complete(one, prompts, config=given)
        alone = [complete(one, [prompt], config=given)[0] for prompt in prompts]
        assert [row[0].tokens for row in together] == [row[0].tokens for row in alone]
        if beams == 1:
            assert [[*row[0].tokens] for row in alone] == [text[-12:] for text in whole]
    with pytest.raises(UserError, match="attention alone"):
        generate(one, Tokens.pad([[1]]), config=GenerationConfig(max_new_tokens=2), draft="lookup")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mixer": {"kind": "short_convolution", "layers": (3,)}}, "less than n_layers=3"),
        ({"mixer": {"kind": "short_convolution", "layers": (1,)}, "n_groups": 1}, "different blocks"),
        ({"mixer": {"kind": "short", "layers": (1,)}}, "short_convolution"),
        ({"mixer": {"kind": "state_space", "n_heads": 4, "n_groups": 3}}, "n_groups=3 must divide n_heads=4"),
        ({"mixing_layers": (0, 2), "ffn_layers": (0,)}, "layer 1 must be in mixing_layers or in ffn_layers"),
        (
            {"mixer": {"kind": "short_convolution", "beside": True}, "norm_place": "post"},
            "beside=True needs norm_place",
        ),
        ({"ffn_layers": (0,), "parallel": "one_norm"}, "leave out ffn_layers"),
    ],
)
def test_refusals(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        network(change.pop("mixer", ShortConvolution()), **change)


def test_an_encoder_has_no_state():
    stack = network(ShortConvolution()).config.decoder
    with pytest.raises(ValueError, match="move it to a decoder"):
        ModelConfig(encoder=stack)


@pytest.mark.parametrize("size", [1, 4, 64])
def test_the_delta_rule_by_chunks_is_that_by_steps(size: int):
    """Forward and gradients, in float64; each document as alone, in chunks that hold several or a part of one."""
    torch.manual_seed(size)
    q, k, v, state = (torch.randn(2, 3, *shape, dtype=torch.float64) for shape in ((11, 4), (11, 4), (11, 5), (4, 5)))
    decay, rate = -3 * torch.rand(2, 3, 11, dtype=torch.float64), torch.rand(2, 3, 11, dtype=torch.float64)
    given = [x.requires_grad_() for x in (q, k / k.norm(dim=-1, keepdim=True), v, decay, rate, state)]
    documents = torch.tensor([[0] * 3 + [1] * 6 + [2] * 2, [0] * 11])

    def alone(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = delta_by_steps([x[:1, :, :3] for x in given[:5]], given[5][:1])[0]
        parts = [[x[:1, :, at] for x in given[:5]] for at in (slice(3, 9), slice(9, 11))]
        second, third = (delta_by_steps(part, torch.zeros_like(given[5][:1])) for part in parts)
        y, last = delta_by_steps([x[1:] for x in given[:5]], given[5][1:])
        row = torch.cat([first, second[0], third[0]], 2)
        return torch.cat([row, y]), torch.cat([third[1], last])

    made = []
    for y, last in (
        delta_by_steps(given[:5], given[5]), delta_by_chunks(given[:5], given[5], size=size),
        alone(*given), delta_by_chunks(given[:5], given[5], documents=documents, size=size),
    ):  # fmt: skip
        loss = (y * torch.arange(y.numel()).view(y.shape).sin()).sum() + last.square().sum()
        made.append([y, last, *torch.autograd.grad(loss, given, retain_graph=True)])
    torch.testing.assert_close(made[1], made[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(made[3], made[2], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "mixer",
    [
        GatedDelta(n_heads=2, n_key_heads=1, d_key=4, d_value=5, layers=(0,)),
        SelectiveScan(d_inner=4, d_state=3, rank=2, layers=(0,)),
        TimeMixing(d_inner=4, layers=(0,)),
    ],
    ids=lambda mixer: mixer.kind,
)
def test_an_edit_of_what_is_read(mixer: Any):
    """The implied attention is recorded and edited where it is named; an edit of one weight acts on what is read."""
    one, ids, at = network(mixer), torch.arange(9)[None], "decoder.blocks.0.mix"
    with torch.no_grad(), trace(one) as plain:
        logits = one(ids)
    torch.testing.assert_close(logits, one(ids))
    of_delta = mixer.kind == "gated_delta"
    found = plain
    if not of_delta:
        assert f"{at}.weights" not in plain
        with torch.no_grad(), recording(one, [f"{at}.weights"]) as found:
            one(ids)
    with torch.no_grad(), trace(one, edit={f"{at}.weights[h=1,t=5,s=2]": zero}) as edited:
        one(ids)
    read, place = ("read", (0, 1, 5)) if of_delta else ("y", (0, 5, 1))
    written = plain[f"{at}.v"][0, 1, 2] if of_delta else plain[f"{at}.{VALUES[mixer.kind]}"][0, 2, 1]
    change = edited[f"{at}.{read}"] - plain[f"{at}.{read}"]
    torch.testing.assert_close(change[place], -found[f"{at}.weights"][0, 1, 5, 2] * written)
    assert change.count_nonzero() == change[place].numel()


STATES = [
    GatedDelta(n_heads=2, n_key_heads=1, d_key=4, d_value=5, layers=(0,)),
    StateSpace(n_heads=4, d_head=3, d_state=5, n_groups=2, most_step=0.5, layers=(0,)),
    SelectiveScan(d_inner=6, d_state=3, rank=2, layers=(0,)),
    TimeMixing(d_inner=6, layers=(0,)),
]


@pytest.mark.parametrize("mixer", STATES, ids=lambda mixer: mixer.kind)
def test_what_a_layer_reads_and_what_it_forgets(mixer: Any):
    """Weights times values are what the fast pass reads. What is left of s is its length in a state of it alone."""
    one, ids, at = network(mixer), torch.arange(9)[None], "decoder.blocks.0.mix"
    with torch.no_grad(), trace(one, large=True) as seen:
        one(ids)
    of_delta = mixer.kind == "gated_delta"
    with torch.no_grad(), recording(one, [f"{at}.{'read' if of_delta else 'y'}"]) as fast:
        one(ids)
    weights, (read,) = seen[f"{at}.weights"], (fast[name] for name in fast)
    values = seen[f"{at}.{VALUES[mixer.kind]}"]
    values = values if of_delta else values.unflatten(2, (weights.shape[1], -1)).transpose(1, 2)
    found = weights @ values
    if not of_delta:
        past = 0 if mixer.kind == "time_mixing" else values * one.get_parameter(f"{at}.skip")[:, None, None]
        found = (found + past).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, read, rtol=1e-10, atol=1e-10)
    assert not weights.triu(1).any()

    def state(s: int, t: int) -> torch.Tensor:
        """b h ...: the state after t of a text in which s alone writes something."""
        alone = torch.zeros_like(values)
        alone[:, :, s] = values[:, :, s]
        side = {
            name: seen[f"{at}.{name}"][:, : t + 1]
            for name in ("b", "c", "decay", "rate", "step")
            if f"{at}.{name}" in seen
        }
        alone = alone[:, :, : t + 1]
        if of_delta:
            given = [seen[f"{at}.{name}"][:, :, : t + 1] for name in "qk"]
            given += [alone, side["decay"].mT, side["rate"].mT]
            return delta_by_steps(given, torch.zeros(1, 2, 4, 5, dtype=torch.float64))[1]
        if mixer.kind == "time_mixing":
            key, rate = seen[f"{at}.k"][:, : t + 1], -one.get_parameter(f"{at}.log_rate").exp()
            key = torch.where(torch.arange(t + 1)[:, None] == s, key, -1e30)
            given = key, alone[..., 0].mT, rate.expand_as(key), torch.zeros(6, dtype=torch.float64)
            return wkv(given, (), None)[2].exp()[..., None]
        if mixer.kind == "selective_scan":
            rate = -one.get_parameter(f"{at}.log_rate").exp()
            return selective_scan((alone[..., 0].mT, side["step"], side["b"], side["c"], rate), None, None)[1]
        b, c = (side[name].unflatten(2, (2, -1)).transpose(1, 2) for name in "bc")
        given = alone, b, c, side["step"].mT, side["decay"].mT, torch.zeros(4, dtype=torch.float64)
        last = scan(given, None, None, keep=True, chunk=1)[1]
        assert last is not None
        return last

    left = kept(one, seen, at)
    for s in range(9):
        lengths = torch.stack([state(s, t).flatten(2).norm(dim=-1) for t in range(s, 9)], 2)
        torch.testing.assert_close(left[:, :, s:, s], lengths / lengths[:, :, :1], rtol=1e-10, atol=1e-10)
    assert not left.triu(1).any()
    assert (left.diff(dim=2).tril(-1) <= 1e-12).all()
    with pytest.raises(UserError, match=r"blocks\.1: expected a layer with a state"):
        kept(one, seen, "decoder.blocks.1")


def test_an_edit_of_the_matrix():
    """States are recorded if they are asked for; an edit of some acts on all that follow, as if it were the past."""
    one = network(GatedDelta(n_heads=2, d_key=4, d_value=5, layers=(0, 1)), n_layers=2)
    ids, at = torch.arange(9)[None], "decoder.blocks.0.mix"
    cache = one.new_cache()
    one.decode(Tokens(ids), None, cache)
    with torch.no_grad(), recording(one, [f"{at}.state"]) as found:
        one(ids)
    torch.testing.assert_close(found[f"{at}.state[t=8]"], cache.blocks[0].mix.values[3])
    with torch.no_grad(), trace(one) as plain:
        one(ids)
    assert f"{at}.state" not in plain
    for edit in ({f"{at}.state[t=3]": scale(0.5), f"{at}.state[t=6,h=1]": zero}, {f"{at}.state": scale(0.5)}):
        with torch.no_grad(), trace(one, edit=edit) as edited:
            one(ids)
        state = torch.zeros(1, 2, 4, 5, dtype=torch.float64)
        given = [plain[f"{at}.{name}"] for name in ("q", "k", "v")]
        given += [plain[f"{at}.{name}"].mT for name in ("decay", "rate")]
        for t in range(9):
            state = delta_by_steps([x[:, :, t : t + 1] for x in given], state)[1]
            if len(edit) == 1 or t == 3:
                state = 0.5 * state
            elif t == 6:
                state = state * torch.tensor([1.0, 0.0])[:, None, None]
            torch.testing.assert_close(edited[f"{at}.state[t={t}]"], state)
            torch.testing.assert_close(edited[f"{at}.read[t={t}]"][..., None, :], given[0][:, :, t, None] @ state)


def test_an_edit_of_the_sums():
    """The state of time mixing is recorded if it is asked for; edits act on all that follow, in a stream too."""
    one = network(TimeMixing(d_inner=5), n_layers=2)
    ids, at = torch.arange(9)[None], "decoder.blocks.1.mix"
    cache = one.new_cache()
    one.decode(Tokens(ids), None, cache)
    with torch.no_grad(), recording(one, [f"{at}.state"]) as found:
        one(ids)
    log, mean = cache.blocks[1].mix.values[1:3]
    torch.testing.assert_close(found[f"{at}.state[t=8]"], torch.stack([mean * log.exp(), log.exp()], -1))
    with torch.no_grad(), trace(one, large=True) as plain:
        torch.testing.assert_close(one(ids), one(ids), rtol=0, atol=0)
    changes: dict[str, Any] = {f"{at}.state[t=3]": scale(0.5), f"{at}.state[t=6,h=1]": zero}
    with torch.no_grad(), trace(one, edit=changes) as edited:
        logits = one(ids)
    k, v, bonus = plain[f"{at}.k"][0], plain[f"{at}.v"][0], one.get_parameter(f"{at}.bonus")
    state, rate = torch.zeros(5, 2, dtype=torch.float64), -one.get_parameter(f"{at}.log_rate").exp()
    for t in range(9):
        now = (bonus + k[t]).exp()
        torch.testing.assert_close(edited[f"{at}.y[t={t}]"][0], (state[:, 0] + now * v[t]) / (state[:, 1] + now))
        state = rate.exp()[:, None] * state + k[t].exp()[:, None] * torch.stack([v[t], torch.ones(5)], -1)
        state = 0.5 * state if t == 3 else state * (torch.arange(5) != 1)[:, None] if t == 6 else state
        torch.testing.assert_close(edited[f"{at}.state[t={t}]"][0], state)
    # The same edits of a text that comes in pieces.
    cache = one.new_cache()
    with torch.no_grad(), trace(one, edit={f"{at}.state[t=3]": scale(0.5)}):
        one.decode(Tokens(ids[:, :5]), None, cache)
    with torch.no_grad(), trace(one, edit={f"{at}.state[t=1,h=1]": zero}):
        torch.testing.assert_close(one.decode(Tokens(ids[:, 5:]), None, cache), logits[:, 5:])


@pytest.mark.parametrize("mixer", [ShortConvolution(layers=(0,)), *STATES, TimeMixing(layers=())], ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_the_last_block_computes_what_the_loss_reads(mixer: Any, packed: bool, monkeypatch: pytest.MonkeyPatch):
    one = network(mixer.model_copy(update={"layers": (0, 2)}) if mixer.layers else mixer).train()
    tokens = Tokens.pad([[*range(20)], [*range(9)], [*range(20)]], packed=packed)
    labels = torch.where(torch.arange(49) % 4 == 1, torch.arange(49) % VOCABULARY, IGNORED)
    found = gradients(one, one(tokens, labels=labels))
    monkeypatch.setattr(Stack, "last_layout", lambda *_: None)
    for name, gradient in gradients(one, one(tokens, labels=labels)).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-10)
