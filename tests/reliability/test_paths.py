"""Fast paths write what the plain path writes, and threads predict without dropout: a part of each program, and all."""

import pytest

from tests.reliability import modes, paths
from tests.reliability.paths import CHANGES


def test_code_of_anothers_writes_the_same(tmp_path):
    for name, is_equal, _ in paths.custom(tmp_path / "counted", 9):
        assert is_equal, name


def test_a_change_between_two_tokens_counts():
    for name, is_equal, matters, used in paths.changed(8):
        assert is_equal, name
        assert matters or "training mode" in name, name
        assert used.recorded > 0, name


@pytest.mark.slow
def test_all_code_and_all_changes(tmp_path):
    counted = paths.others_code(tmp_path)
    assert counted.tried > 200 + len(CHANGES)
    assert not counted.broken, counted.said


def test_threads_predict_without_dropout(tmp_path):
    counted = modes.in_threads(tmp_path, n=60)
    assert not counted.broken, counted.said


def test_a_pass_in_training_mode_keeps_its_dropout_beside_predictions():
    assert modes.beside_training(20) == 0


@pytest.mark.slow
def test_threads_predict_without_dropout_two_thousand_times(tmp_path):
    counted = modes.in_threads(tmp_path)
    assert counted.tried == 2000
    assert not counted.broken, counted.said
