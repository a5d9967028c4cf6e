"""Pictures of any size: cached steps, windows, addresses of the tower, sizes of pictures, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from clearhead.api import Model, load
from clearhead.config import ModelConfig
from clearhead.data.images import ImageConfig, ImageProcessor
from clearhead.errors import UserError
from clearhead.explorer.export.contents import is_live
from clearhead.explorer.export.page import rounded_model
from clearhead.explorer.session import Session
from clearhead.generation import Finished, generate
from clearhead.model import Tokens, Transformer
from clearhead.model.cache import FixedCache
from clearhead.model.layout import axes_of
from clearhead.trace import trace, tracing
from tests.checkpoints.families.test_pictures import arguments, batch
from tests.explorer.answering.test_pictures import url
from tests.explorer.asking import GENERATE, ask, start
from tests.later import later
from tests.parity.cases import of
from tests.small_pictures import MARKS, pictured

transformers = later("transformers")
FAMILY = "qwen2_5_vl"
MARK = MARKS[FAMILY]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Model]:
    """The reference and ours."""
    folder = tmp_path_factory.mktemp(FAMILY)
    theirs, _ = pictured(folder, FAMILY)
    return theirs, load(folder)


def longer(tokens: Tokens, ids: torch.Tensor) -> Tokens:
    """The batch with more tokens."""
    assert tokens.valid is not None
    valid = torch.cat([tokens.valid, torch.ones_like(ids, dtype=torch.bool)], 1)
    return replace(tokens, ids=torch.cat([tokens.ids, ids], 1), valid=valid)


def test_steps_go_on_where_the_pictures_end(opened):
    """A place counts a picture by its longer side, so that cached steps know it only from the prompt."""
    theirs, ours = opened
    prompt, ids, network = batch(ours), torch.tensor([[7, 8, 9, 10], [11, 12, 13, 14]]), ours.network
    with torch.no_grad():
        whole = network(longer(prompt, ids))
        assert (whole - theirs(**arguments(of(FAMILY)[0], longer(prompt, ids))).logits)[:, -4:].abs().max() < 1e-4
        cache = network.new_cache()
        network.decode(prompt, None, cache)
        assert cache.shift is not None
        assert cache.shift[:, 0].tolist() == [3 - 6 + 5 - 10, 0]
        fixed = FixedCache.of(cache, prompt.grid[1] + 4)
        for i in range(2):
            for past in (cache, fixed):
                step = network.decode(Tokens(ids[:, i : i + 1]), None, past)
                assert (step[:, 0] - whole[:, i - 4]).abs().max() < 1e-4
        cache = fixed.growing()
        cache.cut(cache.length - 1)
        rest = network.decode(Tokens(ids[:, 1:]), None, cache)
        assert (rest - whole[:, -3:]).abs().max() < 1e-4
        cache.shift = None
        cache.cut(cache.length - 3)
        assert (network.decode(Tokens(ids[:, 1:]), None, cache) - whole[:, -3:])[0].abs().max() > 1e-2


def test_a_batch_and_beams_write_what_the_reference_writes(opened):
    theirs, ours = opened
    prompt, case = batch(ours), of(FAMILY)[0]
    *_, last = generate(ours.network, prompt, max_new_tokens=8)
    assert isinstance(last, Finished)
    told = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    expected = theirs.generate(**arguments(case, prompt), **told)[:, prompt.grid[1] :].tolist()
    assert [list(some[0].tokens) for some in last.hypotheses] == expected
    *_, last = generate(ours.network, prompt, max_new_tokens=5, beams=3)
    assert isinstance(last, Finished)
    told = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "num_beams": 3}
    expected = theirs.generate(**arguments(case, prompt), **told)[:, prompt.grid[1] :].tolist()
    assert [list(some[0].tokens) for some in last.hypotheses] == expected


def test_a_patch_reaches_its_window_and_beyond_in_full_layers(opened):
    _, ours = opened
    whole = batch(ours)
    assert whole.pictures is not None
    assert whole.grids is not None
    tokens = Tokens(whole.ids[:1], pictures=whole.pictures[: 24 + 40], grids=whole.grids[:2])
    edit = {"pictures.tower.blocks.{i}.resid_pre": lambda x: x + (torch.arange(x.shape[1]) == 24)[:, None]}

    def reached(i: int) -> list[int]:
        """The patches of the second picture whose states after block i a change of its first patch before it moves."""
        at = f"pictures.tower.blocks.{i}.resid_post"
        with torch.no_grad(), trace(ours.network) as plain:
            ours.network(tokens)
        edits = {name.format(i=i): change for name, change in edit.items()}
        with torch.no_grad(), trace(ours.network, edit=edits) as seen:
            ours.network(tokens)
        return ((seen[at] - plain[at])[0].abs().amax(-1).nonzero().flatten() - 24).tolist()

    assert reached(1) == [*range(40)]  # The full layer: 10 x 4 patches.
    # The others: 4 x 4 patches, which are the first four squares of 2 x 2.
    assert reached(0) == [*range(16)]


def test_windows_have_positions_of_their_own_traced_or_not(opened):
    _, ours = opened
    config = ours.config.model_dump(mode="json")
    tower = config["pictures"]["tower"]
    tower["window_positions"] = tower["positions"] | {"base": 7.0}
    torch.manual_seed(0)
    network, tokens = Transformer(ModelConfig.model_validate(config)).eval(), batch(ours)
    with torch.no_grad():
        plain = network(tokens)
        with trace(network):
            torch.testing.assert_close(plain, network(tokens), atol=1e-6, rtol=1e-6)


def test_rows_and_columns_are_counted_within_a_picture(opened):
    _, ours = opened
    seen = ours.network.see(batch(ours))
    assert seen.positions is not None
    place, row, column = (axis[0].tolist() for axis in axes_of(seen.positions))
    assert place == [0, 1, 2, *[3] * 6, 6, 7, 8, *[9] * 10, 14, 15, 16]
    assert row[3:9] == [3, 3, 3, 4, 4, 4]
    assert column[3:9] == [3, 4, 5, 3, 4, 5]
    assert row[12:22] == [9, 9, 10, 10, 11, 11, 12, 12, 13, 13]
    assert (row[22:], column[22:]) == (place[22:], place[22:])


def test_it_is_one_network_in_edits_training_files_and_packed_rows(opened, tmp_path: Path):
    _, ours = opened
    picture, text = np.arange(31 * 20 * 3).reshape(31, 20, 3) % 255, f"what is {MARK} ?"
    seen, logits = ours.trace(text, image=picture)
    assert (logits - ours.logits(text, image=picture)).abs().max() < 1e-5
    _, changed = ours.trace(text, image=picture, edit={"pictures.projector.out[t=4]": 0.0})
    first = ours.inputs(text, image=picture)[0].ids[0].tolist().index(59)
    moved = (changed - logits).abs().amax(-1)
    assert moved[: first + 4].max() == 0 < moved[first + 4 :].min()
    assert seen["pictures.tower.blocks.1.attn.weights"].shape[1:] == (2, 32, 32)
    tokens = batch(ours)
    ours.network(tokens).sum().backward()
    assert all(one.grad is not None and one.grad.any() for one in ours.network.pictures.parameters() if one.ndim > 1)
    ours.network.zero_grad()
    ours.save(tmp_path / "saved")
    back = load(tmp_path / "saved")
    assert back.images.config == ours.images.config
    theirs = transformers.AutoImageProcessor.from_pretrained(tmp_path / "saved")
    assert theirs(images=[Image.new("RGB", (31, 20))])["image_grid_thw"].tolist() == [[1, 4, 8]]
    assert torch.equal(back.logits(text, image=picture), ours.logits(text, image=picture))
    assert tokens.valid is not None
    packed = Tokens.pad([tokens.ids[0].tolist(), tokens.ids[1][tokens.valid[1]].tolist()], packed=True)
    with torch.no_grad():
        found = ours.network(replace(packed, pictures=tokens.pictures, grids=tokens.grids))
        assert (found - tokens.real(ours.network(tokens))).abs().max() < 1e-5


SIZES = ((31, 20), (5, 400), (200, 3), (77, 77), (1, 1), (300, 401))


@pytest.mark.parametrize(
    "fields",
    [
        {"merge_size": 2},
        {"size": {"shortest_edge": 64, "longest_edge": 1600}, "patch_size": 4, "merge_size": 2},
        {"max_pixels": 4096, "merge_size": 3},
        {"size": {"min_pixels": 64, "max_pixels": 9}, "min_pixels": 1024, "max_pixels": 4096, "merge_size": 2},
    ],
)
def test_pictures_are_resized_and_cut_as_the_reference_does(fields: dict[str, Any]):
    config = ImageConfig.of({"image_processor_type": "Qwen2VLImageProcessor", **fields}, where="here")
    theirs = transformers.Qwen2VLImageProcessorPil(**fields)  # It changes them.
    ours, rng = ImageProcessor(config), np.random.default_rng(0)
    assert ImageConfig.of(theirs.to_dict(), where="there") == config == ImageConfig.of(config.to_document(), where="")
    for size in SIZES:
        picture = Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8))
        told, (found, grids) = theirs(images=[picture], return_tensors="np"), ours.framed([picture])
        assert told["image_grid_thw"].tolist() == [[1, *grids[0]]]
        still = told["pixel_values"].reshape(len(found), 3, 2, -1)
        assert (still[:, :, 0].reshape(found.shape) == found).all()
        assert (still[:, :, 0] == still[:, :, 1]).all()


def test_what_does_not_fit_is_refused_in_one_line(opened, tmp_path: Path):
    _, ours = opened
    tokens = batch(ours)
    assert tokens.grids is not None
    assert tokens.pictures is not None
    wrong = {
        "grids, rows and columns": replace(tokens, grids=None),
        "multiples of 2": replace(tokens, grids=tokens.grids + 1),
        "expected tokens.grids": replace(tokens, grids=tokens.grids[0]),
        "expected 0 marks": replace(tokens, grids=tokens.grids[:0]),
        "expected 17 marks": replace(tokens, ids=tokens.ids.clamp(max=58)),
        r"of shape \(68, 48\), got 17 and \(67, 48\)": replace(tokens, pictures=tokens.pictures[1:]),
        r"got 17 and \(68, 47\)": replace(tokens, pictures=tokens.pictures[:, 1:]),
        r"got 17 and \(1, 68, 48\)": replace(tokens, pictures=tokens.pictures[None]),
    }
    for message, one in wrong.items():
        with pytest.raises(UserError, match=message) as found:
            ours.network(one)
        assert "\n" not in str(found.value)
    with pytest.raises(UserError, match=r"text: expected no video, got its mark <\|video_pad\|>"):
        ours.generate("what <|video_pad|>")
    with pytest.raises(UserError, match="a side at most 200 times as long as the other, got 1 x 300"):
        ours.logits("what", image=Image.new("RGB", (1, 300)))
    with pytest.raises(UserError, match=r"expected 2 pictures, one for each <\|vision_start\|>"):
        ours.logits(f"{MARK}{MARK}", image=Image.new("RGB", (9, 9)))
    large = Image.new("RGB", (400, 400))
    with pytest.raises(UserError, match=r"images\[0\]: expected at most 9 tokens in all pictures, got"):
        ours.reader.with_images(f"{MARK}{MARK}", [large, large], most=9)
    with pytest.raises(UserError, match="images: expected a list of at least one image, got none"):
        ours.images.framed([])
    sizes: dict[str, Any] = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 16}}
    squares: dict[str, Any] = {"size": {"height": 32, "width": 32}, "patch_size": 8}
    for fields in (sizes, squares):
        framed = ImageProcessor(ImageConfig.of({**fields, "image_mean": 0.5, "image_std": 0.5}, where="x")).framed
        assert framed([large], most=1)[1] == framed([large])[1]
    for change in ({"positions": {"kind": "rotary"}}, {"window": 4}):
        config = ours.config.model_dump(mode="json")
        config["decoder"] |= change
        with pytest.raises(ValueError, match="pictures of any size need"):
            ModelConfig.model_validate(config)


def test_the_page_shows_a_picture_and_switches_each_of_its_vectors_off(opened):
    _, ours = opened
    session = Session(ours, name="small", text="what is this", image=np.arange(30 * 17 * 3).reshape(30, 17, 3) % 251)
    run, picture = start(session), np.full((24, 16, 3), 90, np.uint8)
    for given, image in ((run, session.passes.examples[0]), ({**run, "image": url(picture)}, picture)):
        reply, tensors = ask(session, "run", run=given)
        seen, logits = ours.trace("what is this", image=image)
        (tokens,) = ours.inputs("what is this", image=image)
        assert tokens.grids is not None
        assert reply["grid"] == (tokens.grids[0] // 2).tolist()
        torch.testing.assert_close(tensors["output.values"], logits.topk(20, -1).values)
        at = "decoder.blocks.1.attn.weights[h=1]"
        values = ask(session, "values", run=given, at=[at, "decoder.embed.pixels"])[1]
        torch.testing.assert_close(values[at], seen["decoder.blocks.1.attn.weights"][0, 1])
        pixels = ours.images.values(ours.images.resized(image, where="")[None])[0]
        assert (values["decoder.embed.pixels"].numpy() == pixels).all()
        assert ask(session, "check", run=given)[0]["check"]["recompute_max_abs"] < 1e-4
        assert "turn by row and column" in reply["notes"][-1]
        first = [token["id"] for token in reply["tokens"]["decoder"]].index(59)
        where = f"decoder.embed.tokens[t={first + 3}]"
        off = ask(session, "run", run={**given, "edits": [{"at": where, "do": "zero"}]})[1]["output.values"]
        expected = ours.trace("what is this", image=image, edit={where: 0.0})[1].topk(20, -1).values
        torch.testing.assert_close(off, expected)
        assert not torch.allclose(off, tensors["output.values"])
    assert not is_live(session)
    traced = list[bool]()
    assert ours.network.pictures is not None
    hook = ours.network.pictures.tower.register_forward_hook(lambda *_: traced.append(tracing()))
    edited = {**run, "edits": [{"at": "decoder.blocks.0.attn.z[h=0]", "do": "zero"}]}
    ask(session, "generate", run=edited, settings={**GENERATE, "max_new_tokens": 2})
    hook.remove()
    assert traced
    assert not any(traced)  # The maps of a large picture would fill the memory.
    other = {**run, "text": "what is red"}
    circuits = ask(session, "circuits", run=run, corrupt=other, position=-1, answer=17, minus=6)[0]
    assert circuits["clean"] != circuits["corrupt"]
    with pytest.raises(UserError, match="live: expected a model of texts alone"):
        rounded_model(ours, "int8")
    # The same patches, in other rows and columns.
    turned = ask(session, "run", run={**run, "image": url(picture.transpose(1, 0, 2))})
    assert turned[0]["grid"] == [2, 3]
    assert not torch.allclose(turned[1]["output.values"], tensors["output.values"])
