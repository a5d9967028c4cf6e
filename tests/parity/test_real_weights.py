"""Trained checkpoints say here what they say in the reference library, and what they were trained to say."""

import shutil
from itertools import product
from pathlib import Path

import pytest
import torch

from clearhead.api import Model, load
from clearhead.generation import Step, generate
from clearhead.model import Tokens
from clearhead.recipe.generation import GenerationConfig
from tests.later import later

transformers = later("transformers")

BOS, EOS = 1, 2
STORY, SHORT = 120, 30
SENTENCES = (
    "Hi.",
    "A man is playing a large flute in the park.",
    "The stock market fell by three percent on Monday morning, analysts said.",
    "Where is the nearest train station?",
    "Photosynthesis turns light, water and carbon dioxide into sugar; without it there would be little life on land.",
    "Two dogs run along the beach.",
    "I can't believe it's not butter!",
    "He sat down and, without a word, began the slow movement of a sonata nobody there had heard for thirty years.",
)


@pytest.fixture
def checkpoints(shared_data: Path) -> Path:
    """The folder of trained checkpoints; skips without it."""
    folder = shared_data / "checkpoints"
    if not folder.is_dir():
        pytest.skip("no checkpoints in the folder of real data")
    return folder


def written(model: Model, prompt: list[int], config: GenerationConfig) -> list[int]:
    """The tokens that follow a prompt."""
    events = generate(model.network, Tokens(torch.tensor([prompt])), config=config)
    return [int(event.tokens[0, 0]) for event in events if isinstance(event, Step)]


def written_there(folder: Path, prompt: list[int], length: int) -> list[int]:
    """The same of the reference, greedily in float32."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    out = theirs.generate(ids, attention_mask=mask, max_new_tokens=length, do_sample=False, pad_token_id=0)
    return out[0, len(prompt) :].tolist()


def with_tokenizer(checkpoint: Path, tokenizer: Path, folder: Path) -> Model:
    """The model as it is when its tokenizer lies beside it, in float32."""
    shutil.copytree(checkpoint, folder / "model")
    shutil.copy(tokenizer, folder / "model")
    return load(folder / "model", dtype="float32")


@pytest.mark.parametrize("name", [pytest.param("stories15M", marks=pytest.mark.slow), "stories260K"])
def test_stories_are_token_equal(checkpoints: Path, name: str):
    model = load(checkpoints / name, dtype=torch.float32)
    story = written(model, [BOS], GenerationConfig(max_new_tokens=STORY, end_ids=(EOS,)))
    assert len(story) >= 80
    assert story == written_there(checkpoints / name, [BOS], STORY)


def test_a_story_is_readable_by_its_own_tokenizer(checkpoints: Path, shared_data: Path, tmp_path):
    model = with_tokenizer(checkpoints / "stories15M", shared_data / "tokenizers/llama2/tokenizer.model", tmp_path)
    told = GenerationConfig(max_new_tokens=STORY)
    story = model.generate("", told)
    assert story.startswith("Once upon a time, there was a little girl named Lily. She loved to play outside")
    assert "One day, she saw a big, red ball in the sky" in story
    begun = "One day, Tim and his dog"
    ids = model.reader.ids([begun])[0]
    assert ids[0] == BOS
    expected = model.tokenizer.decode([*ids, *written_there(checkpoints / "stories15M", ids, SHORT)])
    assert begun + model.generate(begun, GenerationConfig(max_new_tokens=SHORT)) == expected


def test_the_smallest_story_is_the_one_its_author_knows(checkpoints: Path, shared_data: Path, tmp_path):
    model = with_tokenizer(checkpoints / "stories260K", shared_data / "tokenizers/stories260K/tok512.bin", tmp_path)
    assert model.generate("", GenerationConfig(max_new_tokens=STORY)).startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
        " One day, she saw a big, red ball."
    )


@torch.no_grad()
def test_sorts_every_word_of_six_letters(checkpoints: Path):
    model = load(checkpoints / "gpt-nano-sort")
    words = torch.tensor(list(product(range(3), repeat=6)))
    sequence = words
    for _ in range(6):
        logits = model.network(Tokens(sequence))
        sequence = torch.cat([sequence, logits[:, -1:].argmax(-1)], 1)
    assert len(words) == 729
    assert torch.equal(sequence[:, 6:], words.sort(1).values)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(checkpoints / "gpt-nano-sort")
    seen = sequence[:, :-1]
    torch.testing.assert_close(model.network(Tokens(seen)), theirs(seen).logits, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["stories15M", "stories260K", "gpt-nano-sort"])
def test_saved_again_they_are_the_same_to_the_bit(checkpoints: Path, name: str, tmp_path):
    load(checkpoints / name).save(tmp_path / "saved")
    kept, back = (
        transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
        for folder in (checkpoints / name, tmp_path / "saved")
    )
    assert kept.keys() == back.keys()
    assert all(torch.equal(tensor, back[key]) and tensor.dtype == back[key].dtype for key, tensor in kept.items())


@pytest.mark.parametrize(("dtype", "band"), [("float32", 1e-5), (None, 1e-3)], ids=["float32", "as-stored"])
def test_sentence_vectors_equal_the_reference(checkpoints: Path, dtype: str | None, band: float):
    """Mean-pooled, of length 1; in float16, as stored, within one unit in the last place of 1."""
    folder = checkpoints / "all-MiniLM-L6-v2-fp16"
    model = load(folder, dtype=dtype)
    vectors = model.embed(SENTENCES)
    assert vectors.dtype == (torch.float16 if dtype is None else torch.float32)
    theirs = transformers.AutoModel.from_pretrained(folder, dtype=vectors.dtype)
    batch = transformers.AutoTokenizer.from_pretrained(folder)(list(SENTENCES), padding=True, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].to(states.dtype)
    expected = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    assert float((vectors.float() - expected.float()).abs().max()) <= band
    likeness = (vectors.float() @ vectors.float().mT).fill_diagonal_(0)
    assert float(likeness.max()) < 0.5, "the sentences have nothing to do with one another"
