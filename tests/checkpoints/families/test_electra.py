"""The discriminator as it is used: each word is kept or replaced, and training starts from it."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from clearhead.api import load
from clearhead.config.heads import ClassificationHead, LanguageHead
from clearhead.tasks.tagging.tags import Decoder
from clearhead.tasks.tagging.task import Sentence, WordIds, log_shares, prediction_of, tag_names, tagging_head
from clearhead.text.tokenizers import Tokenizer
from tests.parity.cases import base
from tests.parity.harness import Case, both

BASE = base("electra")
NARROW = {"embedding_size": 10}

pytest.importorskip("transformers")

WORDS = "a man rides his bike".split()


def words() -> Tokenizer:
    library = Library(
        models.WordLevel({"[UNK]": 0, **{word: i + 1 for i, word in enumerate(WORDS)}}, unk_token="[UNK]")
    )
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(library, {"unk_token": "[UNK]", "pad_token": "[UNK]"})


def test_a_word_is_replaced_where_its_number_is_above_0(tmp_path):
    case = Case("electra", "", "ElectraForPreTraining", {**BASE, **NARROW})
    theirs, ours = both(case, tmp_path)
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        numbers = theirs(ids).logits[0]
    shares = log_shares(ours.network, WordIds.of([WORDS], words(), 16), words())
    np.testing.assert_allclose(np.exp(shares[0][:, 1]), numbers.sigmoid().numpy(), rtol=1e-4)
    text = " ".join(WORDS)
    found = prediction_of(text, Sentence.of(text), Decoder(tag_names(tagging_head(ours.network.config))), shares[0])
    assert found.values["tags"] == ["replaced" if number > 0 else "O" for number in numbers]


def test_a_new_head_is_the_family_s(tmp_path):
    both(Case("electra", "", "ElectraForPreTraining", {**BASE, **NARROW}), tmp_path)
    model = load(tmp_path, head=ClassificationHead(n_labels=3))
    head = model.config.head
    assert isinstance(head, ClassificationHead)
    assert (head.pooler, head.pooler_activation) == (True, "gelu")
    model.save(tmp_path / "saved")
    assert load(tmp_path / "saved").config == model.config
    writer = load(tmp_path, head=LanguageHead(tied=True)).config.head
    assert isinstance(writer, LanguageHead)
    assert writer.transform, "a dense layer leads back to the width of the tables"
