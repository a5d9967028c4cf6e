"""Inputs, labels and edits of the wrong shape or kind: one line that names the field and what was expected."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.heads import LanguageHead
from tests.model import small
from tests.model.small import ids, sequences

X = ids(2, 5)
YES = torch.ones(2, 5, dtype=torch.bool)
INPUTS: dict[str, tuple[Any, str]] = {
    "one axis": (X[0], r"ids: expected int64 of batch x length, got int64 of 5; try ids\[None\]"),
    "three axes": (X[None], "ids: expected int64 of batch x length, got int64 of 1 x 2 x 5"),
    "floats": (X.float(), "ids: expected int64 of batch x length, got float32 of 2 x 5"),
    "too large": (X + 100, r"ids: expected numbers in 0\.\.12, the rows of the table, got 1"),
    "negative": (X - 50, r"ids: expected numbers in 0\.\.12, the rows of the table, got -"),
    "empty": (X[:, :0], "ids: expected at least one token, got int64 of 2 x 0"),
    "no rows": (X[:0], "ids: expected at least one token, got int64 of 0 x 5"),
    "a list": (X.tolist(), "input: expected Tokens or a tensor of ids, got list; try Tokens.pad"),
    "nothing": (None, "input: expected Tokens or a tensor of ids, got NoneType"),
    "short mask": (Tokens(X, YES[:, :4]), "valid: expected bool of 2 x 5, .* got bool of 2 x 4"),
    "float mask": (Tokens(X, YES.float()), "valid: expected bool of 2 x 5, .* got float32 of 2 x 5"),
    "positions": (Tokens(X, positions=torch.arange(4)[None]), "positions: expected int64 of 2 x 5"),
    "negative positions": (Tokens(X, positions=X - 99), r"positions: expected numbers in 0\.\.23"),
    "documents": (Tokens(X, documents=X[0]), "documents: expected int64 of 2 x 5"),
    "types": (Tokens(X, types=X.float()), "types: expected int64 of 2 x 5"),
    "no such type": (Tokens(X, types=X + 7), r"types: expected numbers in 0\.\.1"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_an_input_is_refused_in_one_line(name: str, kind: str):
    given, message = INPUTS[name]
    reads = c.TokenInput(vocab_size=small.VOCAB, n_types=2)
    network = getattr(small, kind)(positions=c.Learned(max_length=24), input=reads)
    with pytest.raises(UserError, match=message):
        network(given)


@pytest.mark.parametrize("packed", [False, True])
def test_a_source_and_a_target_have_as_many_rows(packed: bool):
    source, target = (Tokens.pad(sequences(*n), packed=packed) for n in ((3, 4), (3, 4, 5, 6)))
    with pytest.raises(UserError, match="target: expected one row a source, 2, got 4"):
        small.encoder_decoder()(source, target)


IMAGE = c.PatchInput(image_size=8, patch_size=4)
SOUND = c.FrameInput(n_frames=10, n_bins=3)
WAVES = c.WaveInput(convolutions=(c.Convolution(width=17, step=3, channels=4),), position_groups=4)


@pytest.mark.parametrize(
    ("reads", "given", "message"),
    [
        (IMAGE, torch.zeros(2, 3), "image: expected floats of batch x channels x height x width, got float32"),
        (IMAGE, torch.zeros(()), "image: expected floats of batch x channels x height x width, got float32"),
        (IMAGE, torch.zeros(1, 3, 8, 12), r"expected shape \(3, 8, 8\), got \(3, 8, 12\)"),
        (SOUND, torch.zeros(1, 8, 3), r"sound: expected shape \(10, 3\), got \(8, 3\); pad or cut it"),
        (SOUND, torch.zeros(1, 10, 4), r"sound: expected shape \(10, 3\), got \(10, 4\)"),
        (SOUND, torch.zeros(1, 10, 3).long(), "sound: expected floats of batch x frames x bins, got int64"),
        (SOUND, torch.zeros(10, 3), "sound: expected floats of batch x frames x bins, got float32"),
        (WAVES, torch.zeros(1, 10), "sound: expected floats of batch x samples x 1, got float32 of 1 x 10"),
        (WAVES, torch.zeros(1, 20, 2), "sound: expected batch x 17 or more samples x 1, got float32 of 1 x 20 x 2"),
        (WAVES, torch.zeros(2, 13, 1), "sound: expected batch x 17 or more samples x 1, got float32 of 2 x 13 x 1"),
    ],
)
def test_a_picture_or_a_sound_is_refused_in_one_line(reads: c.Continuous, given: Tensor, message: str):
    with pytest.raises(UserError, match=message):
        small.with_head(c.NoHead(), input=reads, positions=c.NoPositions())(given)


GIVEN: list[Any] = [[1, 2], ["ab"], "ab", [[10**30]], [None], None, [[1j]]]


@pytest.mark.parametrize("given", GIVEN, ids=repr)
def test_only_ids_are_padded(given: Any):
    with pytest.raises(UserError, match=r"expected (ids|lists of ids)"):
        Tokens.pad(given)


LABELS: dict[str, tuple[Any, str]] = {
    "short": (torch.arange(9), "labels: expected int64 of 10, one for each real position.* got int64 of 9"),
    "a grid": (torch.arange(10).view(2, 5), "got int64 of 2 x 5"),
    "floats": (torch.zeros(10), "got float32 of 10"),
    "a number": (torch.tensor(1), "got int64$"),
    "a list": ([1] * 10, "got list"),
    "too large": (torch.arange(10) + 100, r"labels: expected numbers in 0\.\.12, got 100"),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("chunk", [1 << 24, small.VOCAB])
def test_labels_are_refused_in_one_line(name: str, chunk: int):
    labels, message = LABELS[name]
    network = small.decoder()
    assert isinstance(network.head, LanguageHead)
    network.head.chunk = chunk
    with pytest.raises(UserError, match=message):
        network(X, labels=labels)
