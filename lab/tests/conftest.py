"""A data folder in the form of the real one, with a few generated examples and a tiny sentence encoder."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from clearhead import config as c
from clearhead.api.model import Model
from clearhead.model import Transformer
from clearhead.recipe.tokenizers import WordPiece
from clearhead.text.tokenizers import Tokenizer
from clearhead_lab.datasets import VARIABLE, datasets
from tests.conftest import _no_network, _seeded, pytest_runtestloop, shared_data

__all__ = ["_no_network", "_seeded", "pytest_runtestloop", "shared_data"]

USES = {
    "bank": ("the bank lent {} much money", "a boat reached the {} bank of a river"),
    "apple": ("apple sold {} new phones", "she ate a {} apple from the tree"),
}
REVIEWS = ("a dull and {} film that nobody needs to see", "a moving and {} film that everybody has to see")
WORDS = "I You saw the man with a telescope and king queen woman boy girl car cars dog dogs go went come came"
CAPTIONS = {
    "en": "a white dog.\na blue dog .\na young man .\na young dog .\n",
    "fr": "un chien blanc .\nun chien bleu .\nun jeune homme .\nun jeune chien .\n",
}
FILLERS = ("old", "young", "green", "tall")


def idx_file(values: np.ndarray) -> bytes:
    sizes = np.array(values.shape, dtype=">u4").tobytes()
    return gzip.compress(bytes((0, 0, 8, values.ndim)) + sizes + values.astype(np.uint8).tobytes(), mtime=0)


def treebank(n: int) -> str:
    """Sentences whose phrase belongs to the verb if I saw, and to the object if you did."""
    found: list[str] = []
    for i in range(n):
        who, to, name = ("I", 2, "obl") if i % 2 else ("You", 4, "nmod")
        found.append(f"# sent_id = {('email', 'weblog')[i // 2 % 2]}-{i}\n")
        start = f"{who} PRON 2 nsubj, saw VERB 0 root, the DET 4 det, man NOUN 2 obj, with ADP 7 case, a DET 7 det"
        end = f"telescope NOUN {to} {name}, {'.?'[i % 3 == 0]} PUNCT 2 punct"
        for k, word in enumerate(f"{start}, {end}".split(", "), start=1):
            text, tag, head, relation = word.split()
            found.append(f"{k}\t{text}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n")
        found.append("\n")
    return "".join(found)


def files(random: np.random.Generator) -> dict[str, bytes]:
    """The files by data set and name."""
    found: dict[str, bytes] = {}
    for word, sentences in USES.items():
        for split, n in (("train", 16), ("test", 12)):
            texts = [sentences[i % 2].format(FILLERS[i % 4]) for i in range(n)]
            data = "".join(f"{text.split().index(word)}\t{text}\n" for text in texts)
            found[f"coarsewsd20/{word}/{split}.data.txt"] = data.encode()
            found[f"coarsewsd20/{word}/{split}.gold.txt"] = "".join(f"{i % 2}\n" for i in range(n)).encode()
    for split, n in (("train", 40), ("dev", 6), ("test", 6)):
        rows = [f"{REVIEWS[i % 2].format(FILLERS[i % 4])}\t{i % 2}\n" for i in range(n)]
        found[f"sst2/{split}.tsv"] = "".join(rows).encode()
    found["ud-english/en_ewt-ud-train.conllu.gz"] = gzip.compress(treebank(40).encode(), mtime=0)
    found["ud-english/en_ewt-ud-test.conllu"] = treebank(20).encode()
    found["tinyshakespeare/input.txt"] = f"{WORDS} villain\n".encode() * 40
    found["tatoeba/en-fr.train.tsv.gz"] = gzip.compress(f"{WORDS}\tle roi\n".encode(), mtime=0)
    for language, text in CAPTIONS.items():
        found[f"multi30k/train.{language}"] = text.encode()
    for split in ("train", "t10k"):
        found[f"mnist/{split}-images-idx3-ubyte.gz"] = idx_file(random.integers(0, 256, (40, 28, 28)))
        found[f"mnist/{split}-labels-idx1-ubyte.gz"] = idx_file(np.arange(40) % 10)
    return found


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> Path:
    """The data folder."""
    folder = tmp_path_factory.mktemp("data")
    for name, content in files(np.random.default_rng(0)).items():
        source, _, file = name.partition("/")
        path = folder / datasets()[source].folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    texts = [text for pair in (*USES.values(), REVIEWS) for text in pair] + list(FILLERS) + [WORDS] * 2
    tokenizer = Tokenizer.train(texts, WordPiece(lowercase=True))
    stack = c.StackConfig(
        input=c.TokenInput(vocab_size=tokenizer.vocab_size, n_types=2, norm=True),
        positions=c.Learned(max_length=128),
        norm_place="post",
        activation="gelu",
        d_model=16,
        d_ff=16,
        n_layers=1,
        n_heads=2,
    )
    story = Transformer(c.ModelConfig(decoder=stack.model_copy(update={"norm_place": "pre"}), head=c.LanguageHead()))
    Model(story, tokenizer).save(folder / datasets()["storyteller"].folder)
    encoder = datasets()["sentence-encoder"].folder
    Model(Transformer(c.ModelConfig(encoder=stack, head=c.NoHead())), tokenizer).save(folder / encoder)
    return folder


@pytest.fixture
def data_folder(small_data: Path, monkeypatch) -> Path:
    """The data folder, which the environment variable names."""
    monkeypatch.setenv(VARIABLE, str(small_data))
    return small_data
