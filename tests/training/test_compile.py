"""How many graphs `compile = true` makes of batches of many lengths, and what it says where it cannot."""

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from clearhead.config import LanguageHead, ModelConfig
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.recipe.training import Training
from clearhead.training.run import Run
from tests.model import small
from tests.training.tiny import drive, language, new_run, task_of


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # PyTorch traces its own class so
def test_one_graph_serves_packed_pairs_of_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, compiled = CompileCounter(), torch.compile
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(compiled, backend=counter, fullgraph=True))
    stack = small.stack(n_layers=1)
    network = Transformer(ModelConfig(encoder=stack, decoder=stack, head=LanguageHead(tied=True)))
    run = Run(network, task_of("translation"), Training(steps=1, compile=True, device="cpu"), None)
    for source, target in (((5, 3, 4), (4, 6, 3)), ((7, 4), (3, 5)), ((2, 9, 4, 6), (8, 3, 5, 5))):
        pairs = [Tokens.pad([[1] * n for n in lengths], packed=True) for lengths in (source, target)]
        labels = torch.ones(sum(target), dtype=torch.int64)
        loss = run.forward(*pairs, labels=labels, smoothing=0.1)
        torch.testing.assert_close(loss, network(*pairs, labels=labels, smoothing=0.1))
        loss.backward()
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_machine_without_a_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("No working C++ compiler found\nin: (None, 'g++')")

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=fails))
    run = new_run(language(), steps=1, compile=True)
    with pytest.raises(UserError, match=r"^training.compile: .* got No working .* in: .*'g\+\+'\); leave it out$"):
        drive(run)
    torch._dynamo.reset()
