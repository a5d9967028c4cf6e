"""What `save` writes is what `load` reads: a flipped bit in any file is one line that names the file."""

import random
from pathlib import Path

import pytest

import clearhead
from clearhead.api import Model
from clearhead.checkpoints.families import preset
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import ByteBPE
from clearhead.storage.manifest import MANIFEST
from clearhead.text.tokenizers import Tokenizer

N_FLIPS = 300
TEXTS = ["A man in an orange hat, starring at something.", "a dog?"] * 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A small language model as other libraries keep it."""
    tokenizer = Tokenizer.train(TEXTS, ByteBPE(vocab_size=300))
    tables = preset("llama-tiny").model_dump(mode="json")
    tables["decoder"] |= {"d_model": 16, "n_layers": 1, "n_heads": 2, "n_kv_heads": None, "d_head": None, "d_ff": 16}
    tables["decoder"]["input"]["vocab_size"] = tokenizer.vocab_size
    network = Transformer(ModelConfig.model_validate(tables)).eval()
    folder = Model(network, tokenizer, GenerationConfig(temperature=0.5)).save(tmp_path_factory.mktemp("a") / "model")
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
        *("README.md", MANIFEST),
    }
    return folder


def test_a_flipped_bit_in_any_file_is_one_line_that_names_it(saved: Path):
    clearhead.load(saved)
    rng = random.Random(0)
    files = sorted(saved.iterdir())
    for number in range(N_FLIPS):
        path = files[number % len(files)]
        before = path.read_bytes()
        at = rng.randrange(len(before))
        path.write_bytes(before[:at] + bytes([before[at] ^ 1 << rng.randrange(8)]) + before[at + 1 :])
        try:
            with pytest.raises(UserError) as error:
                clearhead.load(saved)
        finally:
            path.write_bytes(before)
        assert path.name in str(error.value), (path.name, at)
        assert "\n" not in str(error.value)
    clearhead.load(saved)


def test_a_file_that_a_user_changed_has_a_remedy(saved: Path):
    path, manifest = saved / "generation_config.json", saved / MANIFEST
    before, sums = path.read_text(), manifest.read_bytes()
    path.write_text(before.replace("0.5", "0.7"))
    with pytest.raises(UserError, match=r"generation_config.json: expected .*; .* if the change is yours, delete MANI"):
        clearhead.load(saved)
    manifest.unlink()
    assert clearhead.load(saved).generation.temperature == 0.7
    path.write_text(before)
    manifest.write_bytes(sums)
