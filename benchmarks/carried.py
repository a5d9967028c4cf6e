"""`python -m benchmarks.carried [FOLDER...]`: tokens of an exported file's page beside Python's, in 51 scripts."""

import json
import random
import re
import subprocess
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cyclopts import App

import hatch_build
from benchmarks.entry import run_command
from clearhead.errors import UserError
from clearhead.explorer.answering.words import tokenized
from clearhead.explorer.export.carried import rules_of
from clearhead.explorer.static_files import STATIC
from clearhead.recipe.tokenizers import BPE, ByteBPE, Characters, TokenizerConfig, Unigram, WordPiece, Words
from clearhead.text.tokenizers import Tokenizer

SCRIPTS = (
    "41-24f 250-2ff 370-3ff 400-52f 531-58f 591-5f4 600-6ff 700-74f 780-7b1 7c0-7fa 900-97f 980-9fe a01-a76 a81-aff "
    "b01-b77 b82-bfa c00-c7f c80-cf2 d00-d7f d81-df4 e01-e5b e81-edf f00-fda 1000-109f 10a0-10ff 1100-11ff 1200-137c "
    "13a0-13fd 1401-167f 1680-169c 1780-17f9 1800-1878 1e00-1eff 1f00-1ffe 2000-2bff 3041-309f 30a0-30ff 3105-312f "
    "3131-318e 3200-33ff 4e00-9fff a000-a48c ac00-d7a3 f900-faff fb00-feff ff00-ffef 10330-1034a 1d400-1d7ff "
    "1f300-1faff 20000-2a6df e000-f8ff"
).split()
"""First and last character of each script, among them signs, emoji and the private ones."""
MARKS = [chr(i) for i in range(0x300, 0x370)]
SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\xa0",
    "\u2003",
    "\u3000",
    "\u200b",
    "\u200d",
    "\ufeff",
    "\x85",
    "\u2028",
)
CONTROLS = [chr(i) for i in (*range(32), *range(127, 160), 0xAD, 0xFFFD, 0xFFFF)]
CODE = [
    *"(){}[]<>=+-*/%&|^~!?.,:;'\"`@#$\\_",
    *"'s 't 're 'LL don't == -> <s> </s> [MASK] <|endoftext|> <pad> <unk> ▁ 'ſ".split(),
]
WORDS = (
    "The animal did not cross the street because it was too tired . Was it the 20 banks' river , 1 000 tons or 3.5 ?"
).split()
KINDS: tuple[type[TokenizerConfig], ...] = (ByteBPE, BPE, Unigram, WordPiece, Words, Characters)
FORMS: tuple[dict[str, Any], ...] = ({}, {"normalization": "nfc"}, {"normalization": "nfkc", "lowercase": True})
MISPLACED = re.compile("[\u3131-\u318e]")
"""Letters of Hangul that compose, after which the library itself counts places otherwise."""
WHOLE = 200
"""Lines of which everything is compared that the page shows: words, merges and places, too."""

# The page's own script cuts every line; of the first ones it says everything.
PROGRAM = """
const { readFileSync } = require("node:fs");
require("node:vm").runInThisContext(readFileSync(process.argv[1], "utf8"));
const { carried, names, lines, whole } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const texts = new ClearheadTexts({ ...carried, size: 0, reads: {} }, (id) => names[id], String);
const told = lines.map((line, i) => {
  const reply = texts.tokenize(line);
  return i < whole ? reply : reply.words.flatMap((word) => word.tokens.map((token) => token.id));
});
console.log(JSON.stringify(told));
"""

app = App(name="python -m benchmarks.carried", help="Tokens of an exported file's page beside Python's.")


@app.default
def carried(*folders: Path, lines: int = 10_000, seed: int = 0) -> None:
    """Cuts the same lines with every kind of tokenizer trained here, and with those of FOLDERs.

    Lines mix scripts, marks, spaces, control characters and code; the ids of all, and the words, merges and places of
    the first 200.
    """
    given, wrong = list(mixed(lines, seed)), 0
    for name, tokenizer in [*trained(), *((folder.name, Tokenizer.load(folder)) for folder in folders)]:
        ids, replies = differences(tokenizer, given)
        wrong += ids + replies
        print(f"{name:<30} {lines:>6,} lines, {ids} with other ids; {WHOLE} whole, {replies} otherwise", flush=True)
    if wrong:
        raise SystemExit(1)


def trained() -> Iterator[tuple[str, Tokenizer]]:
    """A small tokenizer of every kind, in every form of its texts."""
    rng = random.Random(1)
    sentences = [" ".join(rng.choices(WORDS, k=12)) for _ in range(500)]
    for kind in KINDS:
        for form in FORMS:
            config = kind.model_validate({"vocab_size": 300, **form})
            yield " ".join([config.kind, *map(str, form.values())]), Tokenizer.train(sentences, config)


def mixed(n: int, seed: int) -> Iterator[str]:
    """Lines of letters from one to three scripts, with what may stand between words; every fourth in plain words."""
    rng = random.Random(seed)
    letters = []
    for script in SCRIPTS:
        first, last = (int(end, 16) for end in script.split("-"))
        letters.append([c for c in map(chr, range(first, last + 1)) if unicodedata.category(c) != "Cn"])
    between: Sequence[tuple[int, Sequence[str]]] = (
        (60, " "),
        (15, SPACES),
        (10, CODE),
        (7, "0123456789"),
        (3, CONTROLS),
        (5, [""]),
    )
    for i in range(n):
        kinds = rng.sample(letters, rng.choice((1, 1, 1, 2, 3)))
        parts: list[str] = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.choice(kinds)
            word = (rng.choice(kind) + rng.choice(MARKS) * (rng.random() < 0.06) for _ in range(rng.randint(1, 8)))
            (gaps,) = rng.choices([gaps for _, gaps in between], [weight for weight, _ in between])
            parts += [rng.choice(WORDS) if i % 4 == 0 else "".join(word), rng.choice(gaps)]
        yield "".join(parts)


def differences(tokenizer: Tokenizer, lines: Sequence[str]) -> tuple[int, int]:
    """How many lines have other ids in the page's script than in Python, and how many of the first another reply."""
    lines = sorted(lines, key=lambda line: MISPLACED.search(line) is not None)
    node = hatch_build.find_node()
    if node is None:
        raise UserError("carried: expected node 20.19 or 22.12 and up, found none; install it")
    asked = {
        "carried": rules_of(tokenizer), "names": tokenizer.tokens(range(tokenizer.vocab_size)), "lines": lines,
        "whole": WHOLE,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "asked.json")
        file.write_text(json.dumps(asked), encoding="utf-8")
        command = [node.node, "-e", PROGRAM, str(STATIC / "tokenizers.js"), str(file)]
        told: list[Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    wanted = tokenizer.encode_batch(lines)
    whole = [json.loads(json.dumps(tokenized(tokenizer, line))) for line in lines[:WHOLE]]
    told_ids = [[t["id"] for word in one["words"] for t in word["tokens"]] for one in told[:WHOLE]] + told[WHOLE:]
    return sum(a != b for a, b in zip(told_ids, wanted, strict=True)), sum(
        a != b for a, b in zip(told[:WHOLE], whole, strict=True)
    )


if __name__ == "__main__":
    run_command(app)
