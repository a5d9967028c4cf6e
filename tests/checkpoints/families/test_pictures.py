"""Models of pictures within texts: logits, greedy text and pixels are the reference's, and wrong inputs are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from clearhead.analysis.comparison import CLOSE
from clearhead.api import Model, load
from clearhead.config import PictureInput
from clearhead.errors import UserError
from clearhead.generation import Finished, generate
from clearhead.model import Tokens
from tests.parity.cases import PICTURED, mostly_slow, of
from tests.parity.harness import Case, both, gaps
from tests.small_pictures import MARKS, pictured

MARK = 59


def batch(ours: Model, *, seed: int = 3) -> Tokens:
    """Two texts, padded on the left: one with two pictures, one with one."""
    generator, seen = torch.Generator().manual_seed(seed), ours.config.pictures
    assert seen is not None
    if seen.any_size:
        return _of_any_size(seen, generator)
    marks = [seen.mark_id] * seen.n_marks
    rows = [[1, 5, *marks, 7, *marks, 8, 9], [6, *marks, 11]]
    pixels = torch.randn(3, *seen.reads.shape, generator=generator)
    tokens = Tokens.pad(rows, left=True)
    return Tokens(tokens.ids, tokens.valid, pictures=pixels)


def _of_any_size(seen: PictureInput, generator: torch.Generator) -> Tokens:
    """The same with pictures of different proportions."""
    join, sizes = seen.projector.join, [(2, 3), (5, 2), (1, 1)]
    a, b, c = ([55, *[seen.mark_id] * (rows * columns), 56] for rows, columns in sizes)
    tokens, grids = Tokens.pad([[1, 5, *a, 7, *b, 8, 9], [6, *c, 11]], left=True), join * torch.tensor(sizes)
    patches = torch.randn(int(grids.prod(1).sum()), seen.reads.shape[-1], generator=generator)
    return Tokens(tokens.ids, tokens.valid, pictures=patches, grids=grids)


def arguments(case: Case, tokens: Tokens) -> dict[str, Any]:
    """The same batch for the reference."""
    mask, marks = torch.ones_like(tokens.ids) if tokens.valid is None else tokens.valid.long(), tokens.ids == MARK
    groups = {"gemma3": marks.long(), "paligemma": torch.zeros_like(tokens.ids)}
    more = {"token_type_ids": groups[case.family]} if case.family in groups else {}
    pixels = tokens.pictures
    if pixels is not None and (grids := tokens.grids) is not None:  # A film of each, that stands still.
        told = case.config["vision_config"]
        shape = told.get("in_channels", 3), told.get("temporal_patch_size", 2)
        pixels = pixels.unflatten(1, (shape[0], 1, -1)).expand(-1, *shape, -1).flatten(1)
        times = torch.ones(len(grids), 1, dtype=torch.long)
        more = {"image_grid_thw": torch.cat([times, grids], 1), "mm_token_type_ids": marks.int()}
    if pixels is not None and case.family in ("idefics3", "smolvlm"):  # A row each, which pictures of zeros fill.
        pixels = torch.cat([pixels, torch.zeros_like(pixels[: len(pixels) % 2])]).unflatten(0, (len(mask), -1))
    return {"input_ids": tokens.ids, "attention_mask": mask, "pixel_values": pixels, **more}


@pytest.mark.parametrize("case", mostly_slow(PICTURED), ids=str)
def test_logits_and_greedy_text_are_the_reference_s(case: Case, tmp_path: Path):
    theirs, ours = both(case, tmp_path / "theirs")
    for way, gap in gaps(case, theirs, ours):
        assert gap.relative <= CLOSE, (way, gap)
    tokens = batch(ours)
    with torch.no_grad():
        found, expected = ours.network(tokens), theirs(**arguments(case, tokens)).logits
    assert (found - expected)[tokens.valid].abs().max() <= CLOSE * expected.abs().max()
    assert tokens.pictures is not None
    grids = None if tokens.grids is None else tokens.grids[:2]
    n = 2 if grids is None else int(grids.prod(1).sum())
    one = Tokens(tokens.ids[:1], pictures=tokens.pictures[:n], grids=grids)
    told = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None}
    ours.save(tmp_path / "saved")
    back, report = type(theirs).from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        assert (back.eval()(**arguments(case, tokens)).logits - expected)[tokens.valid].abs().max() < 1e-4
    assert load(tmp_path / "saved").config == ours.config
    assert greedy(ours, one, 9) == theirs.generate(**arguments(case, one), **told)[0, one.grid[1] :].tolist()


def greedy(ours: Model, prompt: Tokens, n: int) -> list[int]:
    *_, last = generate(ours.network, prompt, max_new_tokens=n)
    assert isinstance(last, Finished)
    return list(last.hypotheses[0][0].tokens)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Model, Path]:
    """The reference, its processor, ours with tokenizer and image processor, and a folder with a picture a.png."""
    folder = tmp_path_factory.mktemp("llava")
    theirs, processor = pictured(folder)
    Image.effect_mandelbrot((31, 20), (-2, -1, 1, 1), 50).convert("RGB").save(folder / "a.png")
    return theirs, processor, load(folder), folder


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("family", ["llava", "gemma3", "paligemma", "idefics3", "qwen2_5_vl"])
def test_prompts_with_pictures_are_read_as_the_reference_reads_them(family: str, tmp_path: Path):
    theirs, processor = pictured(tmp_path, family)
    ours, mark = load(tmp_path), MARKS.get(family, "<image>")
    drawn = Image.effect_mandelbrot((31, 20), (-2, -1, 1, 1), 50).convert("CMYK"), Image.new("LA", (1, 90), 90)
    for i, one in enumerate(drawn):
        one.convert("RGB").save(tmp_path / f"{i}.png")
    for text, n in ((f"what is {mark} ? a", 1), (f"{mark}{mark}\nis this", 2), (f"{mark} a \n", 1)):
        paths: list[Any] = [tmp_path / "0.png", tmp_path / "1.png"][:n]
        told = processor(images=[[Image.open(path) for path in paths]], text=[text], return_tensors="pt")
        (tokens,) = ours.inputs(text, image=paths)
        assert torch.equal(tokens.ids, told["input_ids"]), text
        assert tokens.pictures is not None
        pixels = tokens.pictures if tokens.grids is None else arguments(of(family)[0], tokens)["pixel_values"]
        assert torch.equal(pixels.flatten(), told["pixel_values"].flatten())
        told = {name: told[name] for name in told if name not in ("labels", "num_crops")}
        with torch.no_grad():
            expected = theirs(**told).logits[0]
        assert (ours.logits(text, image=paths) - expected).abs().max() <= CLOSE * expected.abs().max()
    before = dict.fromkeys(("paligemma", "qwen2_5_vl"), f"{mark}what ?").get(family, f"{mark}\nwhat ?")
    assert torch.equal(ours.logits("what ?", image=paths), ours.logits(before, image=paths))


def test_generate_stream_and_chat_read_a_picture(opened):
    _, _, ours, folder = opened
    a = Image.open(folder / "a.png")
    plain = ours.generate("what is this <image> ?", image=a, max_new_tokens=6)
    assert plain == "".join(ours.stream("what is this <image> ?", image=[a], max_new_tokens=6))
    content = [{"type": "text", "text": "<s> what is this"}, {"type": "image"}, {"type": "text", "text": "?"}]
    assert plain == "".join(ours.chat([{"role": "user", "content": content}], image=a, max_new_tokens=6))
    before = ours.generate("<image>\nwhat is this ?", image=a, max_new_tokens=6)
    assert before == ours.generate("what is this ?", image=a, max_new_tokens=6)


@pytest.mark.parametrize(
    ("text", "n", "message"),
    [
        ("what <image> ?", 0, "image: expected 1 pictures, one for each <image>, got 0; put one <image>"),
        ("<image> <image>", 1, "image: expected 2 pictures, one for each <image>, got 1"),
        ("a <image>", 3, "image: expected 1 pictures, one for each <image>, got 3"),
    ],
)
def test_marks_and_pictures_are_as_many(opened, text: str, n: int, message: str):
    _, _, ours, folder = opened
    with pytest.raises(UserError, match=message):
        ours.generate(text, image=[folder / "a.png"] * n or None)


def test_it_is_one_network_in_traces_edits_training_and_files(opened, tmp_path: Path):
    _, _, ours, folder = opened
    a, text = folder / "a.png", "what is <image> ?"
    seen, logits = ours.trace(text, image=a)
    assert (logits - ours.logits(text, image=a)).abs().max() < 1e-5
    assert seen["pictures.tower.blocks.0.attn.weights"].shape == (1, 3, 10, 10)
    vectors = seen["pictures.projector.out"]
    first = ours.inputs(text, image=a)[0].ids[0].tolist().index(MARK)
    assert torch.equal(seen["decoder.embed.tokens"][0, first : first + 9], vectors[0])
    _, changed = ours.trace(text, image=a, edit={"pictures.projector.out[t=4]": 0.0})
    gaps = (changed - logits).abs().amax(-1)
    assert gaps[: first + 4].max() == 0 < gaps[first + 4 :].min()
    tokens = batch(ours)
    ours.network(tokens).sum().backward()
    assert all(one.grad is not None and one.grad.any() for one in ours.network.pictures.parameters() if one.ndim > 1)
    ours.network.zero_grad()
    ours.save(tmp_path / "saved")
    assert torch.equal(load(tmp_path / "saved").logits(text, image=a), ours.logits(text, image=a))
    assert tokens.valid is not None
    packed = Tokens.pad([tokens.ids[0].tolist(), tokens.ids[1][tokens.valid[1]].tolist()], packed=True)
    with torch.no_grad():
        found = ours.network(replace(packed, pictures=tokens.pictures))
        assert (found - tokens.real(ours.network(tokens))).abs().max() < 1e-5
