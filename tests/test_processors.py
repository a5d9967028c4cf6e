"""The numeric tests on other kinds of processor, which oneDNN and ATen imitate when told to use fewer instructions."""

import os
import platform
import sys
from pathlib import Path

import pytest
import torch

from tests import processes

ROOT = Path(__file__).resolve().parent.parent
ROUNDED = ("model/fast/test_int8.py", "api/test_int8.py", "model/fast/test_int4.py", "model/test_table.py")
PRODUCTS = (
    *(*ROUNDED, "generation/fast/test_screening_bounds.py"),
    *("model/fast/test_packing.py", "training/test_performance.py", "machine/test_precision.py"),
)
MOST = (
    *PRODUCTS,
    "training/test_performance.py::test_a_lever_changes_no_loss",
    "serve/test_engine.py::test_32_requests_at_once_are_as_each_alone",
    "generation/test_generate.py::test_batch_and_padding_change_nothing",
)
ALL = (
    *(*PRODUCTS, "training/test_performance.py", "serve/test_engine.py", "generation/test_generate.py"),
    *("model/test_attention.py", "model/test_heads.py", "generation/fast/test_compiled.py"),
)
ENVIRONMENTS = {
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "avx512_vnni": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
}
"""What makes this processor imitate another one."""
PROCESSORS = {
    "avx2": (ENVIRONMENTS["avx2"], MOST),
    **{
        f"{name}-all": pytest.param(environment, ALL, marks=pytest.mark.slow)
        for name, environment in ENVIRONMENTS.items()
    },
}
"""Laptops and older servers; if asked for, servers without and with eight-bit sums."""
LIMIT = 800
"""Seconds: only a guard against a process that hangs."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instruction sets of x86")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "AVX2", reason="this processor has nothing newer than AVX2"
)
@pytest.mark.parametrize(("environment", "files"), PROCESSORS.values(), ids=PROCESSORS)
def test_numeric_tests_pass(environment: dict[str, str], files: tuple[str, ...]):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    done = processes.run(
        [*command, *(f"tests/{name}" for name in files)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout[-3000:]
