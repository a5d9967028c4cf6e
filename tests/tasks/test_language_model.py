import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
import torch

from clearhead.api import architecture
from clearhead.checkpoints.families import preset
from clearhead.config.heads import TaggingHead
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe import ModelChoice
from clearhead.recipe.tokenizers import Characters, Words
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.reading import Reading, RunningText
from clearhead.text.tokenizers import Tokenizer
from tests.training.tiny import GENERATION, language, new_network, number_pairs, text_of

LINE = "the quick brown fox jumps over the lazy dog and runs away. "


def characters(train: str, valid: str, *, length: int = 16, max_tokens: int = 64) -> LanguageModel:
    tokenizer = Tokenizer.train([LINE], Characters())
    texts = [text_of([text], tokenizer) for text in (train, valid)]
    return LanguageModel(tokenizer, *texts, length=length, max_tokens=max_tokens, generation=GENERATION)


def running(reading: Reading) -> np.ndarray:
    assert isinstance(reading, RunningText)
    assert isinstance(reading.ids, np.ndarray)
    return reading.ids


def test_every_token_is_labelled_with_the_next():
    task = language()
    text, starts = running(task.train), task.plan(seed=0, epoch=0)[0]
    batch = task.collate(starts)
    (tokens,) = batch.inputs
    assert tokens.ids.shape == (len(starts), 12)
    assert batch.count == 12 * len(starts)
    for row, start in enumerate(starts):
        assert tokens.ids[row].tolist() == text[start : start + 12].tolist()
        assert batch.labels.view(len(starts), 12)[row].tolist() == text[start + 1 : start + 13].tolist()


def test_windows_of_an_epoch_do_not_overlap_and_change():
    task = language()
    plans = [[start for batch in task.plan(seed=0, epoch=epoch) for start in batch] for epoch in range(3)]
    for starts in plans:
        assert {b - a for a, b in pairwise(sorted(starts))} == {12}
        assert max(starts) + 12 < len(running(task.train))
    assert len({tuple(sorted(starts)) for starts in plans}) > 1
    assert all(len(batch) <= 48 // 12 for batch in task.plan(seed=0, epoch=0))


def nats_one_by_one(network: Transformer, sequences: Iterable[list[int]]) -> float:
    """-log p of every token but the first of each sequence, which is read alone."""
    nats = 0.0
    for ids in sequences:
        log_p = network(torch.tensor([ids[:-1]])).log_softmax(-1)
        nats -= log_p[0, range(len(ids) - 1), ids[1:]].sum().item()
    return nats


def test_measures_every_token_of_the_validation_text_but_the_first_once():
    task = language()
    network = new_network(task, dropout=0.5).train()
    scores = {score.name: score.value for score in task.scores(network, task.valid)}
    assert network.training
    ids = running(task.valid).tolist()
    nats = nats_one_by_one(network.eval(), (ids[at : at + 13] for at in range(0, len(ids) - 1, 12)))
    n = len(ids) - 1
    assert scores["loss"] == pytest.approx(nats / n, rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(nats / n), rel=1e-5)
    n_bytes = len(task.tokenizer.decode(ids).encode())
    assert scores["bits_per_byte"] == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-5)


def test_documents_are_read_each_alone_from_bos_to_eos():
    """However they are packed; one longer than a row is cut."""
    texts = [*number_pairs(9).source, " ".join(number_pairs(4, seed=3).source)]
    tokenizer = Tokenizer.train(texts, Words())
    data = text_of(texts, tokenizer)
    task = LanguageModel(tokenizer, data, data, length=12, max_tokens=36, generation=GENERATION)
    network = new_network(task, positions={"kind": "learned", "max_length": 12}).eval()
    whole = [tokenizer.encode(text, bos=True, eos=True) for text in texts]
    assert max(map(len, whole)) > 13
    pieces = [ids[at : at + 13] for ids in whole for at in range(0, len(ids) - 1, 12)]
    wanted, n = nats_one_by_one(network, pieces), sum(len(ids) - 1 for ids in whole)
    assert task.scores(network, task.valid)[0].value == pytest.approx(wanted / n, rel=1e-5)
    for epoch in range(2):
        plan = task.plan(seed=0, epoch=epoch)
        batches = [task.collate(examples) for examples in plan]
        assert all(batch.inputs[0].ids.numel() <= 36 for batch in batches)
        assert sum(batch.count for batch in batches) == n
        assert sum(task.loss(network, batch)[0].item() for batch in batches) == pytest.approx(wanted, rel=1e-5)
    assert task.plan(seed=0, epoch=0) != task.plan(seed=0, epoch=1)


@pytest.mark.parametrize("name", ["train", "valid"])
def test_a_text_shorter_than_a_window_is_told(name: str):
    def short(n: int) -> None:
        characters(*(LINE[:n] if name == part else LINE for part in ("train", "valid")))

    short(17)
    with pytest.raises(UserError, match=rf"^{name}: expected more than 16 tokens, got 16; lower data\.length"):
        short(16)


def test_a_network_that_cannot_do_it_is_told():
    short = ModelChoice(preset="nano", stacks={"positions": {"kind": "learned", "max_length": 11}})
    for config, wanted in (
        (architecture(short, 9), r"^model\.decoder: expected positions for 12 tokens, got 11; try"),
        (preset("nano").model_copy(update={"head": TaggingHead(n_labels=2)}), r"^model\.head\.kind: expected language"),
    ):
        with pytest.raises(UserError, match=wanted):
            language().fit(config)


def test_windows_of_one_token_are_evaluated_too():
    evaluation = characters(LINE, LINE, length=1).evaluate(new_network(characters(LINE, LINE, length=1)))
    assert math.isfinite(evaluation.value("loss"))
