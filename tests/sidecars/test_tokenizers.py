"""Mutated tokenizer folders: the same ids and text as the reference library, or a line that names the file."""

import pytest

pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from tests.sidecars import tokenizers


def test_mutated_folders_are_read_as_the_reference_reads_them():
    found = [tokenizers.verdict(case) for case in tokenizers.cases(60, seed=7)]
    wrong = [what for _, what in found if what is not None]
    assert not wrong, "\n".join(wrong)
    assert sum(kind == "same" for kind, _ in found) > 30, "most are opened, and compared"


FOLDERS = tokenizers.bases() | tokenizers.later_bases()


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_as_they_are(name: str):
    assert tokenizers.verdict(tokenizers.Case(name, FOLDERS[name])) == ("same", None)
