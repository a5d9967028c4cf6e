"""A made-up decoder, `clearhead serve` with it, and what a client of it measures."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import tokenizers
import torch

from clearhead.checkpoints.families import preset
from clearhead.config import Config, Learned, ModelConfig
from clearhead.model import Transformer
from clearhead.text.tokenizers import Tokenizer

END = "<|endoftext|>"
POSITIONS = 4096


class Answer(Config):
    """What one client got, and when."""

    tokens: tuple[int, ...]
    began: float
    first: float
    ended: float


def network(*, quick: bool) -> Transformer:
    """The shape of GPT-2 small with 4,096 positions, 127 million random parameters; `quick`: a small one."""
    torch.manual_seed(0)
    config = preset("gpt2")
    assert config.decoder is not None
    changes: dict[str, object] = {"positions": Learned(max_length=POSITIONS)}
    if quick:
        changes |= {"d_model": 64, "n_layers": 2, "n_heads": 2, "d_ff": 128}
    decoder = config.decoder.model_copy(update=changes)
    return Transformer(ModelConfig(decoder=decoder, head=config.head)).eval()


def tokenizer(vocab_size: int) -> Tokenizer:
    """Bytes, as many made-up words as the table has rows left, and an end token."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = [f"\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}w{i}" for i in range(vocab_size - len(alphabet) - 1)]
    vocabulary = {token: i for i, token in enumerate([*alphabet, *words, END])}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.add_special_tokens([END])
    return Tokenizer(library, {"eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"})


@contextmanager
def served(folder: Path, threads: int | None, *options: str) -> Iterator[tuple[str, int]]:
    """The command on a free port: its address, and its process."""
    command = [sys.executable, "-m", "clearhead", "serve", str(folder), "--port", "0", *options]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.terminate()  # Ctrl-C is ignored by what a shell starts in the background.
            server.wait(30)


def ask(url: str, prompt: Sequence[int], *, n_written: int, **more: object) -> Answer:
    """One client: a streamed completion, greedy, with the tokens' ids; `more` are fields of the request."""
    place = urlsplit(url)
    asked = {
        "prompt": list(prompt),
        "max_tokens": n_written,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
        **more,
    }
    began, first, tokens = time.perf_counter(), 0.0, list[int]()
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
    with connection.getresponse() as response:
        for line in response:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter()
                tokens += json.loads(line[6:])["choices"][0]["token_ids"]
    connection.close()
    return Answer(tokens=tuple(tokens), began=began, first=first, ended=time.perf_counter())
