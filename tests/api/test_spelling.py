"""What a sound says, of a model that labels each moment: samples, letters and texts are the reference library's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from clearhead.api import Model, load, transcribing
from clearhead.cli.judge.reference import compare
from clearhead.errors import UserError
from tests.later import later
from tests.parity.cases import base
from tests.parity.harness import Case, reference

later("transformers")

LETTERS = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4} | {letter: i for i, letter in enumerate("ETAO'N", 5)}
RATE = 800
SETTINGS = {
    "tokenizer_class": "Wav2Vec2CTCTokenizer",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "word_delimiter_token": "|",
}
PREPROCESSOR = {
    "feature_extractor_type": "Wav2Vec2FeatureExtractor",
    "feature_size": 1,
    "sampling_rate": RATE,
    "padding_value": 0.0,
    "do_normalize": True,
    "return_attention_mask": False,
}


def sound(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-0.7, 0.9, n).astype(np.float32)


def labelled(folder: Path) -> Path:
    """Writes a small model that labels each moment, in the reference's form."""
    case = Case("wav2vec2", "base", "Wav2Vec2ForCTC", base("wav2vec2"))
    model = reference(case)
    with torch.no_grad():
        model.lm_head.weight *= 6  # Many labels, not one for all moments.
    model.save_pretrained(folder)
    for name, content in (("vocab", LETTERS), ("tokenizer_config", SETTINGS), ("preprocessor_config", PREPROCESSOR)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return labelled(tmp_path)


def theirs(folder: Path, samples: NDArray[np.float32]) -> str:
    """The text as its documentation makes it, of one sound."""
    import transformers

    model = transformers.Wav2Vec2ForCTC.from_pretrained(folder).eval()
    processor: Any = transformers.Wav2Vec2Processor.from_pretrained(folder)
    given = processor(samples, sampling_rate=RATE, return_tensors="pt")
    with torch.no_grad():
        return processor.batch_decode(model(**given).logits.argmax(-1))[0]


def test_texts_are_the_reference_s(folder: Path, tmp_path):
    model = load(folder)
    sounds = [sound(n, seed) for seed, n in enumerate((400, 230, 31))]
    expected = [theirs(folder, one) for one in sounds]
    assert len(set(expected)) == 3
    assert "|" not in "".join(expected)
    assert model.transcribe(sounds) == expected
    again = load(model.save(tmp_path / "again"))
    assert again.transcribe(sounds) == expected
    assert [theirs(tmp_path / "again", one) for one in sounds] == expected
    assert compare(folder).close
    assert "sounds of any length" in (tmp_path / "again" / "README.md").read_text(encoding="utf-8")
    assert again.reader.hearing.config == model.reader.hearing.config


@pytest.mark.parametrize("change", [{}, {"do_lower_case": True}, {"replace_word_delimiter_char": "_"}])
def test_letters_are_the_reference_s(folder: Path, change: dict[str, Any]):
    import transformers

    (folder / "tokenizer_config.json").write_text(json.dumps(SETTINGS | change), encoding="utf-8")
    model = load(folder)
    there: Any = transformers.AutoTokenizer.from_pretrained(folder)
    generator = torch.Generator().manual_seed(0)
    for n in (0, 1, 5, 40, 200):
        labels = torch.randint(len(LETTERS), (n,), generator=generator).repeat_interleave(2).tolist()
        assert transcribing.ctc_text(model, labels) == there.decode(labels)
    for text in ("TEA AT NOON", "tea at noon", "A'N  E<s>", "", "TÉA|T", "<s> A </s> T <pad><mask>"):
        assert model.tokenizer.encode(text) == there(text).input_ids


def test_long_sounds_are_read_in_windows(folder: Path, monkeypatch):
    model = load(folder)
    samples = model.reader.hearing([sound(2000)])[0]
    whole = transcribing.ctc_logits(model, samples)
    monkeypatch.setattr(transcribing, "WINDOW_SECONDS", 0.6)
    monkeypatch.setattr(transcribing, "OVERLAP_SECONDS", 0.2)
    parts = [*transcribing.windowed_ctc_logits(model, samples, RATE, "sound")]
    assert len(parts) > 3
    assert sum(map(len, parts)) == len(whole)
    lengths = {len(part) for part in parts[1:-1]}
    assert lengths == {(int(0.6 * RATE / 6) - 2 * int(0.2 * RATE / 6))}


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda m: m.transcribe([sound(400)], language="de"), "language, task, times: expected none for a model that"),
        (lambda m: m.transcribe([sound(400)], times=True), "language, task, times: expected none for a model that"),
        (lambda m: m.transcribe([sound(10)]), "sounds[0]: expected 17 samples or more, got 10; try a longer sound"),
        (lambda m: m.transcribe(["no.wav"]), "no.wav: expected a sound file"),
    ],
)
def test_mistakes_are_one_line(folder: Path, act: Callable[[Model], object], expected: str):
    with pytest.raises(UserError) as error:
        act(load(folder))
    assert str(error.value).startswith(expected)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sampling_rate": None}, "sampling_rate: expected the samples a second"),
        ({"feature_size": 80}, "feature_size: expected 1, got 80"),
        ({"mystery": 1}, "mystery: "),
    ],
)
def test_a_wrong_preprocessor_is_one_line(folder: Path, changes: dict[str, Any], expected: str):
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(PREPROCESSOR | changes), encoding="utf-8")
    with pytest.raises(UserError) as error:
        load(folder)
    assert str(error.value).startswith(f"{path}:{expected}")
