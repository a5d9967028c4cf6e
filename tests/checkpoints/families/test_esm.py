"""ESM: frequencies of the file, masks that are left out, and the list of residues as a tokenizer."""

import torch

from clearhead.model import Tokens
from clearhead.text.tokenizers import Tokenizer
from tests.later import later
from tests.parity.cases import base, of
from tests.parity.harness import both

later("transformers")

MASK = base("esm")["mask_token_id"]
CASE = of("esm")[0]


def test_a_mask_is_left_out_of_its_text_alone(tmp_path):
    _, ours = both(CASE, tmp_path)
    rows = [[4, MASK, 5, 6], [7, 8]]
    with torch.no_grad():
        padded, packed = (ours.network(Tokens.pad(rows, fill=1, packed=packed)) for packed in (False, True))
        alone = [ours.network(Tokens.pad([row]))[0] for row in rows]
        documents, positions = torch.tensor([[0] * 4 + [1] * 2]), torch.tensor([[0, 1, 2, 3, 0, 1]])
        together = Tokens(torch.tensor([rows[0] + rows[1]]), documents=documents, positions=positions)
        in_one = ours.network(together)[0]
    for found in (torch.cat([padded[0], padded[1, :2]]), packed[:6], in_one):
        torch.testing.assert_close(found, torch.cat(alone))


def test_each_residue_is_a_token(tmp_path):
    from transformers import EsmTokenizer

    vocabulary = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO", ".", "-", "<null_1>", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    theirs = EsmTokenizer(str(tmp_path / "vocab.txt"))
    (tmp_path / "config.json").write_text('{"model_type": "esm"}', encoding="utf-8")
    ours = Tokenizer.load(tmp_path)
    for text in ("MKTAYIAKQR", "M K<mask>T  J?LA", "mk LA-.", "<null_1>A", "A<cls>B <eos>", " <mask> L ", "AéL"):
        expected = theirs(text)["input_ids"]
        assert ours.library.encode(text).ids == expected, text
        assert ours.library.decode(expected) == theirs.decode(expected, skip_special_tokens=True), text
