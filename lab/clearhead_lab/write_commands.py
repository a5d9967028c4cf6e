"""`clearhead lab write`: a Transformer that the learner writes, and its judge."""

from pathlib import Path

from cyclopts import App

from clearhead.cli.options import tell
from clearhead.errors import UserError

FILE = "transformer.py"
write = App(name="write", help="Write your own Transformer: a file of functions to fill, and a judge of each.")


@write.default
def write_file(*, out: Path = Path("mine")) -> None:
    """Write transformer.py, a Transformer whose functions are yours to fill.

    Args:
        out: Folder for the file. A file that is there already is kept.
    """
    from clearhead_lab.write.functions import file_text, functions

    path = out / FILE
    if path.exists():
        raise UserError(
            f"{path}: expected no such file, got one; try another --out, or `clearhead lab write check {out}`"
        )
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(file_text(), encoding="utf-8")
    print(path)
    tell(f"{len(functions().function)} functions to write. `clearhead lab write check {out}` judges them.")


@write.command
def check(mine: Path, /, *, model: str | None = None, text: str = "The bank near the beach was wild.") -> None:
    """Judge your functions, each alone, on hidden inputs: values, shapes, gradients, masks, and loops.

    Prints a line for each: ✓ right, · not yet written, ✗ with what is wrong. Once all are right, they translate.

    Args:
        mine: Your folder, or the file.
        model: A translator whose weights your functions take, such as a run of `clearhead demo`.
        text: A sentence to translate.
    """
    from clearhead_lab.write.judging import check as judge

    path = mine / FILE if mine.is_dir() else mine
    if not path.is_file():
        raise UserError(f"{path}: expected your file, got none; `clearhead lab write --out {mine}` writes it")
    judgements = []
    for judgement in judge(path):
        judgements.append(judgement)
        what = f"{judgement.wrong}: {judgement.says}" if judgement.sign == "✗" else judgement.says
        print(f"{judgement.sign} {judgement.function:<14} {what}".rstrip(), flush=True)
    n_right = sum(judgement.sign == "✓" for judgement in judgements)
    print(f"\n{n_right} of {len(judgements)} right.")
    if n_right < len(judgements):
        return
    if model is None:
        tell("Add --model RUN, a run of `clearhead demo`: your functions then translate with its weights.")
    else:
        _translate(path, model, text)


def _translate(path: Path, name: str, text: str) -> None:
    """Translates by the learner's functions, by the library, and by the library with the learner's attention."""
    import torch

    from clearhead import load
    from clearhead_lab.write.judging import load as load_file
    from clearhead_lab.write.translating import check_model, put_inside, translate

    opened, mine = load(name), load_file(path)
    check_model(opened, name)
    with torch.no_grad():
        own = list(translate(mine, opened, text))
        ours = list(opened.hypotheses([text], beams=1)[0][0].tokens)
        calls = put_inside(mine, opened)
        inside = list(opened.hypotheses([text], beams=1)[0][0].tokens)
    print(f"\n{text}")
    for whose, tokens in (("your functions", own), ("clearhead", ours), ("clearhead, your attention", inside)):
        print(f"  {whose:<26} {opened.tokenizer.decode(tokens)}   {' '.join(map(str, tokens))}")
    if own != ours or inside != ours or not calls:
        raise UserError(
            f"{path}: expected the tokens of clearhead, got others; please report the file as a bug of the judge"
        )
    print(f"The same {len(ours)} tokens. Your attention ran {len(calls)} times inside the library.")
