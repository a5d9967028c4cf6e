"""The energy that a computation takes: by the counters of the processor, else by a rating."""

from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
WATTS_A_CORE = 15.0
"""A rough guess for a core that computes, as `clearhead plan --gpu cpu` has it."""


class Meter:
    """Counts joules from the moment when it is made. `watts`: a rating that stands in place of the counters."""

    def __init__(self, device: torch.device, watts: float | None = None) -> None:
        self.device, self.watts = device, watts
        counted = device.type == "cpu" and watts is None
        zones = sorted(POWERCAP.glob("intel-rapl:[0-9]*")) if counted else []
        self.zones = [zone for zone in zones if _text(zone / "name").startswith("package")]
        self.start = self._counts()

    def _counts(self) -> list[int]:
        """Microjoules of each processor; none if a counter is absent or needs rights that this process lacks."""
        counts = [_text(zone / "energy_uj") for zone in self.zones]
        return [int(one) for one in counts] if all(map(str.isdecimal, counts)) else []

    def read(self, seconds: float) -> tuple[float | None, str]:
        """The joules of these seconds, and what says so."""
        end = self._counts()
        if self.start and end:
            grown = zip(self.zones, self.start, end, strict=True)
            # A counter begins anew at its range.
            joules = sum(b - a + (int(_text(zone / "max_energy_range_uj")) if b < a else 0) for zone, a, b in grown)
            return joules / 1e6, "counters of the processor, with all that runs on it"
        if self.watts:
            return seconds * self.watts, f"{self.watts:g} W, as given"
        if self.device.type != "cpu":
            return None, "unknown; give --watts"
        n = torch.get_num_threads()
        return seconds * WATTS_A_CORE * n, f"an assumed {WATTS_A_CORE:g} W a core, {n} of them; --watts sets it"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""
