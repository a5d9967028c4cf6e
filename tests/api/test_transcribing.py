"""What a model writes of sounds: languages, tasks, windows, and what the reference library writes."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.api import Model, load
from clearhead.api.transcribing import cut, heard_language, transcripts, with_times, written
from clearhead.errors import UserError
from clearhead.generation.settings import changed
from clearhead.recipe.generation import SpeechTokens
from tests.later import later
from tests.small_models import model_of
from tests.small_sounds import (
    END,
    ENGLISH,
    GERMAN,
    RATE,
    SPEECH,
    START,
    TIMELESS,
    TRANSLATE,
    sound,
    speech_model,
    wav,
)

SOUNDS = [sound(0), sound(1, 0.4), sound(2)]


@pytest.fixture(scope="module")
def model() -> Model:
    return speech_model()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory) -> Path:
    return model.save(tmp_path_factory.mktemp("sounds") / "model")


def test_each_sound_has_its_own_text(model: Model, tmp_path):
    texts = model.transcribe(SOUNDS, language="en")
    assert len({*texts}) == 3
    assert texts == [model.transcribe([one], language="english")[0] for one in SOUNDS]
    assert [model.transcribe([wav(tmp_path / "a.wav", one)], "en")[0] for one in SOUNDS] == texts


def test_the_model_hears_the_language(model: Model):
    spoken = [one.language for one in transcripts(model, SOUNDS, config=model.generation)]
    for one, code in zip(SOUNDS, spoken, strict=True):
        frames = torch.from_numpy(model.reader.hearing([one]))
        logits = model.network(frames, torch.tensor([[START]]))[0, -1]
        assert code == ("en" if logits[ENGLISH] > logits[GERMAN] else "de")
        assert heard_language(model, frames, START, SPEECH) == code
    assert model.transcribe(SOUNDS) == [
        model.transcribe([one], code)[0] for one, code in zip(SOUNDS, spoken, strict=True)
    ]


def test_a_long_sound_is_read_in_windows(model: Model):
    whole = np.concatenate([*SOUNDS, sound(3, 0.2)])
    windows = [whole[i : i + RATE] for i in range(0, len(whole), RATE)]
    (found,) = transcripts(model, [whole], language="de", config=model.generation)
    prompt = [START, *SPEECH.after_start("de")]
    alone = [written(model, torch.tensor(model.reader.hearing([one])), prompt, model.generation)[0] for one in windows]
    assert [one.tokens for one in found.windows] == [one.tokens for one in alone]
    assert found.seconds == pytest.approx(len(whole) / RATE)
    assert found.text == model.tokenizer.decode([token for one in alone for token in one.tokens]).strip()


def test_times_are_left_out(model: Model):
    times = SPEECH.model_copy(update={"no_timestamps_id": 100})
    free = model.generation.model_copy(update={"banned_ids": (), "speech": times})
    (found,) = transcripts(model, SOUNDS[:1], language="en", config=free)
    kept = [token for token in found.windows[0].tokens if token <= 100]
    assert len(kept) < len(found.windows[0].tokens)
    assert found.text == model.tokenizer.decode(kept).strip()


def test_another_rate_is_told(model: Model, tmp_path, caplog):
    path = wav(tmp_path / "a.wav", sound(1)[::2], rate=RATE // 2)
    model.transcribe([path], "en")
    assert [record.message for record in caplog.records] == [f"{path}: resampled from 8000 to 16000 samples a second"]


def test_a_model_of_one_language():
    english = speech_model(SpeechTokens(no_timestamps_id=TIMELESS))
    (found,) = transcripts(english, SOUNDS[:1], config=english.generation)
    assert found.language is None
    (alone,) = written(english, torch.tensor(english.reader.hearing(SOUNDS[:1])), [START, TIMELESS], english.generation)
    assert found.windows == (alone,)
    refusal = "expected none for a model of one language, got one; leave it out"
    with pytest.raises(UserError, match=refusal):
        english.transcribe(SOUNDS, language="en")
    with pytest.raises(UserError, match=refusal):
        english.transcribe(SOUNDS, task="translate")


def test_the_reference_opens_the_folder_and_writes_the_same(folder: Path):
    """Features, the first tokens, those that are never written, beams, and the words of the tokens."""
    later("transformers")
    from transformers import AutoFeatureExtractor, AutoTokenizer, WhisperForConditionalGeneration

    ours = load(folder, dtype=torch.float64)
    theirs = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float64)
    read, words = AutoFeatureExtractor.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert words is not None
    features = read(SOUNDS, sampling_rate=RATE, return_tensors="pt").input_features.double()
    for beams in (1, 4):
        for task in ("transcribe", "translate"):
            there = theirs.generate(features, task=task, num_beams=beams, language="de")
            expected = [text.strip() for text in words.batch_decode(there, skip_special_tokens=True)]
            assert ours.transcribe(SOUNDS, "de", task, beams=beams) == expected
    marked = words("ab c").input_ids
    assert marked == ours.tokenizer.encode("ab c", special_tokens=True)
    assert marked[0] == START
    assert marked[-1] == END


def test_windows_move_by_times_as_in_the_reference(tmp_path):
    """Long sounds and a short one: parts with their times, and where each window begins."""
    later("transformers")
    from transformers import AutoFeatureExtractor, WhisperForConditionalGeneration

    n_parts = 0
    for seed in range(3):
        folder = speech_model(seed=seed, times=True).save(tmp_path / f"{seed}")
        ours = load(folder, dtype=torch.float64)
        theirs: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float64)
        read: Any = AutoFeatureExtractor.from_pretrained(folder)
        for beams, seconds in ((1, 2.7), (4, 1.6), (1, 1.0)):
            whole = sound(seed, seconds)
            asked = {"sampling_rate": RATE, "return_tensors": "pt", "truncation": False, "padding": "longest"}
            features = read(whole, **asked).input_features.double()
            there = theirs.generate(
                features, return_timestamps=True, return_segments=True, language="de", task="transcribe",
                num_beams=beams, max_new_tokens=14,
            )["segments"][0]  # fmt: skip
            config = with_times(changed(ours.generation, {"beams": beams, "max_new_tokens": 14}), times=True)
            (found,) = transcripts(ours, [whole], language="de", task="transcribe", config=config)
            assert [one.tokens for one in found.segments] == [tuple(part["tokens"].tolist()) for part in there]
            assert [one.start for one in found.segments] == pytest.approx([float(part["start"]) for part in there])
            assert [one.end for one in found.segments] == pytest.approx([float(part["end"]) for part in there])
            n_parts += len(there)
    assert n_parts > 12, "windows of one part show little"


def test_parts_end_at_two_times():
    t = TIMELESS + 1
    assert cut([t, 5, 6, t + 9], SPEECH, 100) == ([((t, 5, 6, t + 9), 0, 9)], 100)
    assert cut([5, 6], SPEECH, 80) == ([((5, 6), 0, 40)], 80)
    assert cut([], SPEECH, 80) == ([((), 0, 40)], 80)
    two = [((t, 5, t + 9), 0, 9), ((t + 9, 6, t + 20), 9, 20)]
    assert cut([t, 5, t + 9, t + 9, 6, t + 20], SPEECH, 100) == (two, 100)
    whole = [((t, 5, t + 9, t + 12), 0, 9)]
    assert cut([t, 5, t + 9, t + 12, 6, 7], SPEECH, 100) == (whole, 18)


def test_a_model_without_times_says_so(model: Model):
    none = speech_model(None)
    with pytest.raises(UserError, match="times: expected a model whose settings name no_timestamps_token_id, got none"):
        none.transcribe(SOUNDS, times=True)


def test_older_settings_name_language_and_task(folder: Path, tmp_path):
    copy = unsealed(folder, tmp_path / "copy")
    path = copy / "generation_config.json"
    older = {"forced_decoder_ids": [[1, GERMAN], [2, TRANSLATE], [3, TIMELESS]], "alignment_heads": [[0, 1]]}
    path.write_text(json.dumps(json.loads(path.read_text()) | older))
    found = load(copy)
    assert found.generation.speech is not None
    assert (found.generation.speech.language, found.generation.speech.task) == ("de", "translate")
    again = load(found.save(tmp_path / "again"))
    assert again.generation == found.generation
    assert again.generation.speech is not None
    assert again.generation.speech.kept["alignment_heads"] == [[0, 1]]
    assert again.transcribe(SOUNDS) == load(folder).transcribe(SOUNDS, "de", "translate")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda m: m.transcribe(SOUNDS, "fr"), "language: expected one of the model (en, de), got 'fr'; try one of"),
        (lambda m: m.transcribe("a.wav"), "transcribe: expected a list of texts, got one text"),
        (lambda m: m.translate(["a text"]), "text: expected a sound, which this model reads, got a text; try clear"),
        (lambda m: m.generate("a text"), "text: expected a sound, which this model reads, got a text"),
        (lambda m: m.logits("a.wav"), "a.wav: expected a sound file, got No such file or directory; check the path"),
        (lambda m: m.logits(SOUNDS[0]), "this model reads a sound and a target text; got one of them"),
        (lambda m: m.predict(["a.wav"]), "predict: expected a model for one of"),
    ],
)
def test_what_does_not_fit_is_one_line(call: object, expected: str, model: Model):
    with pytest.raises(UserError) as caught:
        call(model)  # pyrefly: ignore[not-callable]
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def unsealed(folder: Path, copy: Path) -> Path:
    """A copy of a saved model that may be changed."""
    shutil.copytree(folder, copy)
    (copy / "MANIFEST.json").unlink()
    return copy


def test_other_models_say_so(folder: Path, tmp_path):
    with pytest.raises(UserError, match="transcribe: expected a model that writes what a sound says, got another"):
        model_of("transformer-tiny").transcribe(SOUNDS)
    copy = unsealed(folder, tmp_path / "copy")
    (copy / "preprocessor_config.json").unlink()
    with pytest.raises(UserError, match=r"expected preprocessor_config\.json with the model, which has its samplin"):
        load(copy).transcribe(SOUNDS)
