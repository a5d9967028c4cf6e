"""The commands with a GGUF file as their model."""

from pathlib import Path

from clearhead.api import load
from clearhead.recipe.tokenizers import ByteBPE
from tests.later import later
from tests.shell import Shell
from tests.small_models import TEXTS, model_of

later("gguf")


def test_a_file_is_a_model(shell: Shell) -> None:
    from tests.gguf_files import of_ours

    model = model_of("llama-tiny", ByteBPE(vocab_size=300))
    model.save(Path("mine"))
    file = of_ours(model, Path("mine.gguf"), kind="F32")
    assert load(file).reader.ids(TEXTS) == model.reader.ids(TEXTS)
    assert load(file).settings().end_ids == model.settings().end_ids
    words = ["one two", "--max-new-tokens", 8, "--temperature", 0]
    assert shell.done("generate", file, *words).out == shell.done("generate", "mine", *words).out
    shown = [shell.done("tokenizer", "show", name, "one two").lines[1:] for name in (file, "mine")]
    assert shown[0] == shown[1]
    assert shell.done("summary", file).out == shell.done("summary", "mine").out
    shell.done("export", file, "--to", "hf", "--out", "back")
    plain = [load(name).generate("one two", temperature=0, max_new_tokens=8) for name in ("back", "mine")]
    assert plain[0] == plain[1]
