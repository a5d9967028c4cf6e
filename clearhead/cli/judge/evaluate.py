"""`clearhead evaluate`."""

import json as json_lines
import sys
from pathlib import Path

from clearhead.cli.options import Device, Files, Flag, Int8, Named, Tokenize, tell


def evaluate(
    model: Named,
    /,
    *,
    source: Files = (),
    target: Files = (),
    text: str | None = None,
    data: str | None = None,
    beams: int | None = None,
    length_penalty: float | None = None,
    tokenize: Tokenize | None = None,
    moses: str | None = None,
    to: str | None = None,
    page: Path | None = None,
    int8: Int8 = False,
    int4: Flag = False,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Measure a model on the test data of its recipe (else its validation data), or on files given here.

    A translator: BLEU and chrF (0 to 100, with sacreBLEU's signatures), exact match (0 to 1), perplexity. A language
    model: loss in nats a token, perplexity, bits per byte. A classifier: accuracy and F1 with 95% intervals, and its
    worst mistakes. Beside them stand what simple methods score on the same examples (docs/judging.md).

    Args:
        source: Text files of sentences, for a translator; with --data, their column.
        target: Text files of their translations, file by file and line by line.
        text: Text file, for a language model.
        data: Table with the columns of the training data, or with those that the other options name.
        beams: Width of the beam search; 1 is greedy (default: the model's own, or else 5).
        length_penalty: Exponent of the length by which scores are divided (default: the model's own, or else 1).
        tokenize: sacreBLEU's tokenizer for BLEU (default: the recipe's, or else auto, which goes by the script of the
            translations: zh for Chinese, char for other scripts without spaces, 13a for the rest).
        moses: Language of the translations, such as de: also give BLEU lowercased on Moses tokens, as papers on small
            corpora do (pip install 'clearhead[eval]').
        to: Language that the translations are in, such as de, for a model of several.
        page: HTML file for the worst mistakes, each with a link into the explorer.
        int4: Round the weights to four bits: smaller, and less accurate.
        json: Print the figures on standard output as one JSON object, and nothing else there.
    """
    from clearhead.cli.judge.scores import figures, floors_of, measured, show
    from clearhead.machine.device import keep_freed_memory

    files = {"source": source, "target": target, "text": text, "data": data}
    options = {"beams": beams, "length_penalty": length_penalty, "tokenize": tokenize, "moses": moses, "to": to}
    keep_freed_memory()
    task, scores, where = measured(model, files=files, options=options, int8=int8, int4=int4, device=device)
    tell(f"{model} on {where}:")
    floors = () if any([*files.values(), to]) else floors_of(Path(model), scores)
    show(task, scores, floors=floors, model=model, where=where, page=page, stream=sys.stderr if json else sys.stdout)
    if json:
        print(json_lines.dumps(figures(scores, floors)))
