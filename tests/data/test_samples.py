"""Samples of sounds as a model reads them, loud or quiet."""

import numpy as np
import pytest

from clearhead.data.sounds import EPS, WaveConfig, WaveProcessor


@pytest.mark.parametrize("spread", [0.0, 1e-5, 3e-4, 1e-2, 1.0])
@pytest.mark.parametrize("mean", [0.0, 0.1])
def test_the_variance_is_1_or_less_for_a_sound_that_is_almost_silent(spread: float, mean: float) -> None:
    noise = np.random.default_rng(0).standard_normal(4000)
    sound = (spread * noise + mean).astype(np.float32)
    found = WaveProcessor(WaveConfig(sampling_rate=16_000)).normalised(sound)
    exact = sound.astype(np.float64)
    expected = (exact - exact.mean()) / np.sqrt(exact.var() + EPS)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert found.dtype == np.float32


def test_samples_stay_as_they_are_where_the_model_was_trained_so() -> None:
    sound = np.arange(5, dtype=np.float32)
    processor = WaveProcessor(WaveConfig(sampling_rate=16_000, do_normalize=False))
    assert processor.normalised(sound).tolist() == sound.tolist()
