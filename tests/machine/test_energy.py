"""Joules by counters in a made powercap folder, by a rating, and where neither is known."""

import pytest
import torch

from clearhead.machine import energy
from clearhead.machine.energy import Meter

CPU = torch.device("cpu")


@pytest.fixture
def zones(tmp_path, monkeypatch):
    """Two processors, a core inside the first, and the whole board, which counts them all again."""
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    for number, name in {":0": "package-0", ":1": "package-1", ":2": "psys", ":0:0": "core"}.items():
        zone = tmp_path / f"intel-rapl{number}"
        zone.mkdir()
        for file, text in (("name", name), ("energy_uj", "9000000"), ("max_energy_range_uj", "10000000")):
            (zone / file).write_text(f"{text}\n")
    return tmp_path


def test_counters_of_each_processor_are_added_and_begin_anew(zones):
    meter = Meter(CPU)
    for number, joules in ((":0", "9500000"), (":1", "1000000"), (":2", "9999999"), (":0:0", "9900000")):
        (zones / f"intel-rapl{number}" / "energy_uj").write_text(joules)
    joules, source = meter.read(60)
    assert joules == pytest.approx(0.5 + 2.0)
    assert source == "counters of the processor, with all that runs on it"


@pytest.mark.parametrize("content", [None, "secret"])
def test_without_a_readable_counter_it_is_a_rating(zones, content: str | None):
    (zones / "intel-rapl:1" / "energy_uj").unlink()
    if content:
        (zones / "intel-rapl:1" / "energy_uj").write_text(content)
    joules, source = Meter(CPU).read(2)
    assert joules == 30 * torch.get_num_threads()
    assert source.startswith("an assumed 15 W a core")


def test_watts_that_are_given_come_first_and_a_gpu_has_no_rating(zones):
    assert Meter(CPU, 7.5).read(2) == (15.0, "7.5 W, as given")
    cuda = torch.device("cuda")
    assert Meter(cuda, 100).read(2)[0] == 200
    assert Meter(cuda).read(2) == (None, "unknown; give --watts")
