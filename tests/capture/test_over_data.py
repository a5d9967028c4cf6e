"""Effects and examples over a data set, against the same measured text by text."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.analysis import ablation, lens
from clearhead.api import Model
from clearhead.capture import Example, Examples, capture, drawn, effects
from clearhead.capture.examples import spelled
from clearhead.errors import UserError
from clearhead.tasks.scores import intervals_of_means
from clearhead.trace import recording
from tests.explorer.traced import CONFIGS, model_of

TEXTS = ["one two three", "four", "", "two two one four three one", "three one", "one", "two four one", "one two"]
KNOWN = [i for i, text in enumerate(TEXTS) if text]


def inputs(model: Model, text: str) -> list[torch.Tensor]:
    return [tokens.ids for tokens in model.reader.inputs(text, None, model.generation)]


@pytest.mark.parametrize("name", ["decoder_rotary_grouped", "encoder_classifier", "encoder_tagger_no_first_norm"])
def test_effects_are_means_over_texts(name: str) -> None:
    model = model_of(CONFIGS[name])
    found = effects(model, TEXTS)
    stack = next(iter(model.config.stacks))
    sites = [f"{stack}.blocks.{i}.attn.z[h={h}]" for i in range(2) for h in range(4)]
    assert {one.site for one in found} == {*sites}
    assert [one.mean for one in found] == sorted((one.mean for one in found), reverse=True)
    each = [ablation.effects(model.network, inputs(model, TEXTS[i]), sites) for i in KNOWN]
    values = np.array([[one[site] for site in sites] for one in each])
    bounds = intervals_of_means(values)
    for one in found:
        i = sites.index(one.site)
        assert one.mean == pytest.approx(values[:, i].mean(), rel=1e-3, abs=1e-6)
        assert one.interval == pytest.approx(tuple(bounds[i]), rel=1e-3, abs=1e-6)
        assert one.interval[0] <= one.mean <= one.interval[1]
        assert one.n_texts == len(KNOWN)


def test_sites_of_all_kinds() -> None:
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    assert len(effects(model, TEXTS[:2], "neurons")) == 2 * 24
    some = effects(model, TEXTS[:2], ["decoder.blocks.1.ffn.post[f=3]", "decoder.blocks.0.attn.z"])
    assert len(some) == 1 + 4
    with pytest.raises(UserError, match=r"^decoder.embed.sum: expected heads"):
        effects(model, TEXTS, "decoder.embed.sum")
    with pytest.raises(UserError, match=r"^effects: expected texts, got none"):
        effects(model, ["", " "])


def test_layers_are_those_of_the_lens() -> None:
    model = model_of(CONFIGS["decoder_pre_learned"])
    found = effects(model, TEXTS, "layers")
    each: list[list[float]] = []
    for i in KNOWN:
        seen, logits = model.trace(TEXTS[i])
        final = logits.log_softmax(-1)
        states = [seen[f"decoder.blocks.{layer}.resid_post"] for layer in range(2)]
        logs = [lens.read(model.network, x)[0].log_softmax(-1) for x in states]
        each.append([float((final.exp() * (final - one)).sum(-1).mean().detach()) for one in logs])
    assert [one.mean for one in found] == pytest.approx(np.mean(each, 0).tolist(), rel=1e-3, abs=1e-5)
    assert found[0].mean > 0.1


@pytest.mark.parametrize(
    "at",
    [
        "decoder.blocks.1.ffn.post[f=3]",
        "decoder.blocks.0.attn.z[h=1]",
        "decoder.blocks.1.attn.weights[h=2]",
    ],
)
def test_examples_are_the_strongest_texts(at: str, tmp_path: Path) -> None:
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    found = Examples(model, [*TEXTS, TEXTS[0]], at, top=3)
    best = found.all()
    assert found.n_read == len(TEXTS) + 1
    expected: dict[int, list[float]] = {}
    for row in KNOWN:
        seen, _ = model.trace(TEXTS[row])
        value = seen[at][0]
        if at.endswith("weights[h=2]"):
            value = value.clone()
            value[:, 0] = 0.0
            value = value.amax(-1)
        elif value.ndim == 2:
            value = value.norm(dim=-1)
        expected[row] = value.tolist()
    # Texts that begin alike are equally strong, so that the values are compared.
    assert [one.value for one in best] == pytest.approx(sorted(map(max, expected.values()))[:-4:-1], rel=1e-4)
    for one in best:
        assert one.values == pytest.approx(expected[one.row], rel=1e-3, abs=1e-5)
        assert one.values[one.position] == one.value
        assert one.tokens == tuple(model.tokenizer.tokens(model.reader.ids([TEXTS[one.row]])[0]))
        assert "[" in one.marked()
    if "weights" in at:
        assert {one.key for one in best} - {0, None}
        return
    folder = capture(model, TEXTS, [at.partition("[")[0]], tmp_path / "out", shard_bytes=2000)
    again = Examples(model, folder, at, top=3).all()
    assert [one.value for one in again] == pytest.approx([one.value for one in best], rel=1e-4)
    some = capture(model, TEXTS, [at], tmp_path / "some", sample=0.5)
    with pytest.raises(UserError, match="expected a capture of all positions"):
        Examples(model, some, at).all()


def test_the_key_of_cross_attention_is_a_token_of_the_source() -> None:
    model = model_of(CONFIGS["encoder_decoder_post"])
    texts = [("one two four three one", "two one"), ("three four one two", "four")]
    at = "decoder.blocks.1.cross.weights[h=1]"
    for one in Examples(model, texts, at).all():
        source, target = one.text or ("", "")
        seen, _ = model.trace(source, target)
        weights = seen[at][0, one.position].tolist()
        assert one.key is not None
        assert one.source is not None
        assert weights[one.key] == pytest.approx(one.value, rel=1e-4)
        assert one.source == tuple(
            model.tokenizer.tokens(model.reader.inputs(source, target, model.generation)[0].ids[0].tolist())
        )
        assert [token for token in spelled(one.source) if "<" not in token] == [f" {word}" for word in source.split()]
        assert len(one.tokens) == seen[at].shape[1]


def test_a_direction_and_wrong_ones() -> None:
    model, at = model_of(CONFIGS["decoder_rotary_grouped"]), "decoder.blocks.0.resid_post"
    direction = torch.randn(16, generator=torch.Generator().manual_seed(1))
    best = Examples(model, TEXTS, at, top=1, direction=direction).all()[0]
    seen, _ = model.trace(str(best.text))
    assert best.value == pytest.approx(float((seen[at][0] @ direction).max()), rel=1e-4)
    with pytest.raises(UserError, match=r"^direction: expected the shape"):
        Examples(model, TEXTS, at, direction=direction[:3])
    with pytest.raises(UserError, match="expected one address with a value at each position"):
        Examples(model, TEXTS, "decoder.blocks.*.resid_post")


def test_texts_are_drawn_from_everywhere() -> None:
    texts = [f"text {i}" if i % 3 else "" for i in range(3000)]
    some = drawn(texts, 100, seed=1)
    rows = [row for row, _ in some]
    assert rows == sorted(rows)
    assert len({*rows}) == 100
    assert all(texts[row] == text != "" for row, text in some)
    assert min(rows) < 300 < 2700 < max(rows)
    assert rows != [row for row, _ in drawn(texts, 100, seed=2)]
    assert len(drawn(texts[:7], 100)) == 4


@pytest.mark.parametrize(("path", "explicit"), [("0.resid_post", False), ("1.attn.weights", True), ("0.none", False)])
def test_a_trace_of_a_few_paths_ends_with_them(path: str, explicit: bool) -> None:
    model, at = model_of(CONFIGS["decoder_pre_learned"]), f"decoder.blocks.{path}"
    (ids,) = inputs(model, TEXTS[0])
    ran: list[str] = []
    model.network.head.register_forward_hook(lambda *_: ran.append("head"))
    with torch.no_grad(), recording(model.network, {at}, explicit=explicit) as seen:
        model.network(ids)
    assert (not ran) == (at in seen)
    if at in seen:
        torch.testing.assert_close(seen[at], model.trace(TEXTS[0])[0][at])


@pytest.mark.parametrize(
    ("tokens", "marked"),
    [
        (("[CLS]", "un", "##able", "to"), "[CLS] un[able] to"),
        (("<s>", "▁un", "able", "▁to"), "<s> un[able] to"),
        (("one", "two", "three", "four"), "one two [three] four"),
    ],
)
def test_a_marked_text_has_its_own_spaces(tokens: tuple[str, ...], marked: str) -> None:
    example = Example(0, None, 1.0, 2, None, tokens, (0.0,) * 4)
    assert example.marked() == marked
    assert replace(example, key=1).marked() == f"{marked} <- {marked.split()[1].partition('[')[0]}"
    assert replace(example, key=1, source=("Le", "Chat")).marked() == f"{marked} <- Chat"
