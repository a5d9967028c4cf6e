"""Sizes in messages: readable, and different where they are."""

import shutil

import pytest

from clearhead.errors import UserError, sizes
from clearhead.training.disk import check_space


@pytest.mark.parametrize(
    ("n_bytes", "told"),
    [
        ((1230, 10), ["1.2 kB", "10 bytes"]),
        ((120_000, 119_999), ["120.000 kB", "119.999 kB"]),
        ((1_200_000_000, 1_199_000_000), ["1.200 GB", "1.199 GB"]),
        ((10**12, 999 * 10**9), ["1.0 TB", "999.0 GB"]),
        ((5 * 10**15, 0), ["5,000.0 TB", "0 bytes"]),
        ((12, 11), ["12 bytes", "11 bytes"]),
        ((3 * 10**9, 3 * 10**9), ["3.0 GB", "3.0 GB"]),
        ((10**15 + 1, 10**15), ["1,000.000000000001 TB", "1,000.000000000000 TB"]),
    ],
)
def test_sizes(n_bytes: tuple[int, ...], told: list[str]):
    assert sizes(*n_bytes) == told


@pytest.mark.parametrize("size", [1, 999, 30_000, 30_001, 10**9, 10**12])
def test_a_disk_with_a_byte_too_few_tells_two_sizes(tmp_path, monkeypatch: pytest.MonkeyPatch, size: int):
    def left(free: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(free, 0, free))

    wanted = -(-size * 12 // 10)
    left(wanted)
    check_space(tmp_path, size)
    left(wanted - 1)
    with pytest.raises(UserError) as caught:
        check_space(tmp_path, size)
    need, got = sizes(wanted, wanted - 1)
    assert need != got
    assert f"expected {need} free for a checkpoint, got {got}; try" in str(caught.value)
