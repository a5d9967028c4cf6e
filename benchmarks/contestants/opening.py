"""One cold start in a process of its own: `python -m benchmarks.contestants.opening clearhead|transformers FOLDER`.

Prints one JSON object: CPU seconds since the process began, seconds since this module did, and bytes of memory beyond
what the imports took. Imports only what its side would.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

BEGAN = time.perf_counter()
PROMPT = [5, 17, 3, 99, 250, 7, 31, 12]


def memory(field: str) -> int:
    """Bytes of this process in memory: VmRSS, now, or VmHWM, the most there ever were (Linux).

    Not ru_maxrss, which begins at what the parent had.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def ours() -> Callable[[str], Callable[[], object]]:
    """What opens a folder, and then says the first logits; imported, but not yet called."""
    import clearhead

    load = clearhead.load  # which imports PyTorch
    import torch

    from clearhead.model import Tokens

    def open_folder(folder: str) -> Callable[[], object]:
        network = load(folder).network
        return torch.no_grad()(lambda: network(Tokens(torch.tensor([PROMPT]))))

    return open_folder


def theirs() -> Callable[[str], Callable[[], object]]:
    """The same of the reference library."""
    import torch
    from transformers import AutoModelForCausalLM

    def open_folder(folder: str) -> Callable[[], object]:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
        return torch.no_grad()(lambda: model(torch.tensor([PROMPT])).logits)

    return open_folder


def main() -> None:
    """Open one folder and say its first logits."""
    side, folder = sys.argv[1:]
    open_folder = ours() if side == "clearhead" else theirs()
    imported = memory("VmRSS")
    say = open_folder(folder)
    loaded = memory("VmHWM") - imported
    say()
    times = {"cpu": time.process_time(), "seconds": time.perf_counter() - BEGAN}
    print(json.dumps({**times, "loaded": loaded, "said": memory("VmHWM") - imported}))


if __name__ == "__main__":
    main()
