"""The benchmark of capture runs the same texts through all that it compares."""

from benchmarks.capture import Job, race
from tests.explorer.traced import CONFIGS, model_of


def test_the_same_texts_are_captured_and_read(tmp_path):
    model = model_of(CONFIGS["decoder_rotary_grouped"])
    texts = ["one two three", "", "four three", "two"]
    turns, n = race(Job("", None, "", None, "decoder.blocks.*.resid_post"), model, texts, tmp_path, rounds=2)
    assert n == sum(len(ids) for ids in model.reader.ids([text for text in texts if text]))
    assert {name: len(some) for name, some in turns.items()} == {
        "forward, to the logits": 2,
        "forward, to the last states": 2,
        "capture": 2,
    }
    assert [*tmp_path.iterdir()] == []
