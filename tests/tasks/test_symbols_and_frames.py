"""Sequences of symbols and spectrograms of sounds are learnt by the tasks of texts and pictures."""

import random
import re
from pathlib import Path

import numpy as np

from clearhead.cli import main

DOC = Path(__file__).resolve().parents[2] / "docs" / "symbols-and-frames.md"
SMALL = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
SETTINGS = [word for name, value in SMALL.items() for word in (f"--model.stacks.{name}", str(value))]
SETTINGS += "--precision fp32 --training.optimizer.lr 1e-2 --training.evaluate_every 100 --training.ema null".split()


def test_the_order_of_symbols_is_learnt(capsys):
    """Both families have the same symbols equally often: only what follows what tells them apart."""
    draw = random.Random(0)

    def gene(family: str) -> str:
        start = draw.randrange(4)
        symbols = [*(("ACGT" if family == "up" else "TGCA") * 5)[start : start + 12]]
        symbols[draw.randrange(12)] = draw.choice("ACGT")
        return "".join(symbols)

    rows = [(gene(family), family) for _ in range(60) for family in ("up", "down")]
    Path("genes.csv").write_text("sequence,family\n" + "".join(f"{a},{b}\n" for a, b in rows))
    line = "train genes.csv --text sequence --label family --tokenizer.kind characters --out run --epochs 20"
    main([*line.split(), *SETTINGS, "--training.max_tokens", "256", "--training.schedule.warmup", "10"])
    assert "at most 12" in capsys.readouterr().err
    fresh = [(gene(family), family) for _ in range(10) for family in ("up", "down")]
    main(["predict", "run", *(text for text, _ in fresh)])
    said = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert sum(one == family for one, (_, family) in zip(said, fresh, strict=True)) >= 18


def test_sounds_are_learnt_from_their_spectrograms(capsys):
    """Rising and falling tones, with the documentation's own lines."""
    code = re.search(r"```python\n(.*?)\n\n\nnp\.savez", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    made: dict[str, object] = {}
    exec(compile(code[1], str(DOC), "exec"), made)
    spectrogram = made["spectrogram"]
    assert callable(spectrogram)
    draw, time = np.random.default_rng(0), np.linspace(0, 1, 2048)
    names = np.array(["rising", "falling"] * 30)
    waves = [
        np.sin(2 * np.pi * (draw.uniform(100, 200) * time + (1 if name == "rising" else -1) * 250 * (time - 0.5) ** 2))
        + draw.normal(0, 0.1, 2048)
        for name in names
    ]
    pictures = np.stack([spectrogram(wave) for wave in waves])
    assert pictures.shape == (60, 15, 129)
    np.savez("sounds.npz", images=pictures, labels=names)
    line = "train image_classification --data.train.kind npz --data.train.path sounds.npz --size 16 --out run"
    main([*line.split(), *SETTINGS, *"--steps 40 --batch_size 16 --augment.shift 0 --json".split()])
    said = capsys.readouterr()
    assert "pictures: 16 x 16 pixels, grey" in said.err
    assert float(re.findall(r'"accuracy": ([0-9.]+)', said.out)[-1]) >= 0.8
