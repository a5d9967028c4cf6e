"""What a newcomer sees first: `clearhead` alone, `clearhead help`, `clearhead doctor`. Only `doctor` imports torch."""

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from clearhead.brief import amount
from clearhead.cli.options import aligned
from clearhead.errors import UserError, pasted
from clearhead.extensions import extensions
from clearhead.recipe.places import RECIPE, cache_folder
from clearhead.version import __version__

TABLES = ("*.csv", "*.tsv", "*.jsonl")
EXTRAS = {
    "anywidget": "notebook",
    "datasets": "data",
    "matplotlib": "plot",
    "tensorboard": "log",
    "onnx": "export",
    "ctranslate2": "export",
    "gguf": "gguf",
    "rouge_score": "eval",
    "sacrebleu": "score",
    "sklearn": "score",
    "scipy": "data",
    "torchao": "quant",
}
"""Packages that some commands need, and the extra that brings each."""
PRODUCTS = {"bfloat16": ("amx_bf16", "avx512_bf16"), "int8": ("amx_int8", "avx512_vnni", "avx_vnni")}
"""The instruction sets that multiply numbers of a format without making them wider first."""


def first_screen(groups: dict[str, dict[str, str]], folder: Path) -> Iterator[str]:
    """At most 12 lines: where to begin, what is in the folder, and the commands by group."""
    yield f"clearhead {__version__}: a Transformer you can see through"
    rows = [("begin", "clearhead demo, which trains a translator in two minutes and opens it")]
    rows += [("here", one) for one in _here(folder)]
    listed = {name for names in groups.values() for name in names}
    added = [name for name in extensions("commands") if name not in listed]
    rows += [(title.split()[0].lower(), " ".join(names)) for title, names in groups.items()]
    rows += [("added", " ".join(added))] if added else []
    yield from aligned(rows)
    yield "clearhead help GROUP explains these commands, clearhead COMMAND --help one of them."


def _here(folder: Path) -> Iterator[str]:
    """What the folder holds, and what one might do with it."""
    runs = sorted(folder.glob(f"runs/*/{RECIPE}"), key=lambda path: path.stat().st_mtime)
    if runs:
        newest = pasted(runs[-1].parent.relative_to(folder))
        yield f"{amount(len(runs), 'runs')}: clearhead evaluate {newest}, clearhead explore {newest}"
    elif tables := sorted(path.name for pattern in TABLES for path in folder.glob(pattern)):
        yield f"{tables[0]}: clearhead train {pasted(tables[0])} --dry-run"


def help_(*group: str) -> None:
    """Explain the commands of a group, or all of them.

    Args:
        group: train, use, look, judge, share, plan or learn.
    """
    from clearhead.cli.commands import COMMANDS, application

    titles = {title.split()[0].lower(): title for title in COMMANDS}
    for name in group:
        if name.lower() not in titles:
            raise UserError(f"help: expected {', '.join(titles)}, got {name!r}; try one of them")
    application(titles=[titles[name.lower()] for name in group]).help_print([])


def doctor() -> None:
    """Say what this machine has, what is quick on it, and which extras are installed. Changes nothing."""
    import webbrowser

    import torch

    from clearhead.machine.memory import gigabytes, memory_limits

    name, flags = _processor()
    cache = cache_folder()
    missing = {package: extra for package, extra in EXTRAS.items() if not find_spec(package)}
    browser = "none"
    with suppress(webbrowser.Error):
        browser = webbrowser.get().name or "of the system"
    gpus = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
    rows = [
        ("clearhead", f"{__version__}, Python {platform.python_version()}, torch {torch.__version__}"),
        ("processor", f"{name}, {amount(os.cpu_count() or 1, 'cores')}, {amount(torch.get_num_threads(), 'threads')}"),
        ("float32", f"kernels of {torch.backends.cpu.get_cpu_capability()}"),
    ]
    for kind, sets in PRODUCTS.items():
        own = [one for one in sets if one in flags]
        rows.append((kind, f"quick: products by {own[0]}" if own else f"slow: none of {', '.join(sets)} here"))
    rows += [
        ("memory", str([*memory_limits(), "unknown"][0])),
        ("GPU", ", ".join(gpus) or ("mps" if torch.backends.mps.is_available() else "none")),
        ("browser", browser),
        ("cache", f"{gigabytes(sum(path.stat().st_size for path in cache.rglob('*') if path.is_file()))} in {cache}"),
        ("extras", f"without {', '.join(missing)}" if missing else "all"),
    ]
    print(*aligned(rows), sep="\n")
    if missing:
        print(f"pip install 'clearhead[{','.join(sorted({*missing.values()}))}]' adds what is missing.")


def _processor() -> tuple[str, set[str]]:
    """The name of the processor and its instruction sets, as Linux tells them; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown processor", set()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return facts.get("model name", "unknown processor"), {*facts.get("flags", "").split()}
