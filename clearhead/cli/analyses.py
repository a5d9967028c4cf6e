"""`clearhead circuits`, `patch` and `difference`: two texts that differ in one model, or two models that differ."""

from pathlib import Path
from typing import Literal

from clearhead.cli.options import Device, Files, Flag, Length, Named, OneObject, Repeated, Text
from clearhead.errors import UserError


def circuits(
    model: Named,
    /,
    *,
    clean: Text | None = None,
    corrupt: Text | None = None,
    pairs: Path | None = None,
    target: Text | None = None,
    answer: Text | None = None,
    minus: Text | None = None,
    position: int | None = None,
    edges: Flag = False,
    method: Literal["patching", "ig", "refined"] = "patching",
    steps: int = 5,
    exact: float = 1 / 3,
    top: float = 0.05,
    features: Repeated = (),
    out: Path | None = None,
    device: Device = "cpu",
) -> None:
    """Find the heads, feed-forwards and connections that make one number of a model's answer.

    The number is logit[ANSWER] - logit[MINUS] at a position; of a sentence encoder, how far its vector lies from the
    corrupt text's toward the clean one's. A node's score is about how much the number falls if it writes what it writes
    on the corrupt text; an edge's, if one query, key, value or feed-forward alone sees that. Below the edges stands how
    much of the number the best of them carry with all others corrupt: their faithfulness.

    With --pairs, each line is a clean and a corrupt text with a tab between them; a node's score is the mean of its
    refined scores, with a 95% bootstrap interval over the pairs.

    Args:
        clean: The text that is explained.
        corrupt: A text of as many tokens with another answer; `zero` or `mean` replaces values by 0 or their mean.
        pairs: File of many such pairs, in place of --clean and --corrupt.
        target: What the decoder of an encoder-decoder has written so far (default: nothing).
        answer: Token or label of the answer (default: the likeliest on the clean text).
        minus: Token or label that it is compared with (default: the likeliest on the corrupt text).
        position: Position of the answer (default: the last).
        edges: Score the edges too.
        method: patching takes gradients at the clean text; ig their mean on the way from the corrupt one, which suits
            whole circuits; refined runs parts again, which comes closest to patching one node or edge for real.
        steps: Texts between the two for ig.
        exact: Share of the nodes that refined patches for real, those whose estimates are least certain.
        top: Share of the edges that --out keeps.
        features: Folders of `clearhead features train`, SAELens or circuit-tracer (FOLDER:LAYER). What is written at
            their sites is split into features and the error that they leave, each a part of its own.
        out: JSON file to write.
    """
    from clearhead.cli.look.circuits import circuits_command, pairs_command

    if pairs is not None:
        given = {"--clean": clean, "--corrupt": corrupt, "--answer": answer, "--minus": minus, "--position": position}
        given |= {"--edges": edges or None, "--features": " ".join(features) or None}
        pairs_command(model, pairs, target=target, exact=exact, out=out, device=device, given=given)
        return
    if clean is None or corrupt is None:
        raise UserError("circuits: expected --clean TEXT and --corrupt TEXT, or --pairs FILE; give them")
    circuits_command(
        model,
        clean=clean,
        corrupt=corrupt,
        target=target,
        answer=answer,
        minus=minus,
        position=position,
        edges=edges,
        method=method,
        steps=steps,
        exact=exact,
        top=top,
        features=features,
        out=out,
        device=device,
    )


def patch(
    model: Named,
    /,
    *,
    clean: Text,
    corrupt: Text,
    answer: str,
    minus: str | None = None,
    target: Text | None = None,
    of: Literal["resid", "attn", "ffn", "heads", "all"] = "resid",
    position: int = -1,
    json: OneObject = False,
    device: Device = "cpu",
) -> None:
    """Patch the states of one text into another, one at a time, and say how much of its answer each restores.

    Prints a row for each block, the last one first, each as soon as it is known: 0 is the answer of the corrupt text,
    1 that of the clean one. Texts of different lengths are aligned by their common tokens; a position that has no
    partner stays empty.

    Args:
        clean: The text that gives the answer; a file, for a model that reads images.
        corrupt: The text that does not.
        answer: Token, or label, whose logit is measured. A token that begins a word has its space: " Paris".
        minus: Token or label whose logit is subtracted, usually the corrupt text's answer.
        target: What the decoder of an encoder-decoder has written so far (default: nothing).
        of: The states: residual streams, attention outputs or feed-forward outputs by position, heads, or all of these.
        position: Position in the clean text whose answer is measured; -1 is the last.
    """
    from clearhead.cli.look.patch import patch_command

    answers = (answer, minus)
    patch_command(
        model, (clean, corrupt), answers, target=target, of=of, position=position, as_json=json, device=device
    )


def difference(
    first: str,
    second: str,
    /,
    *,
    data: Files = (),
    text: str | None = None,
    text_pair: str | None = None,
    texts: int = 100,
    top: int = 20,
    seed: int = 0,
    length: Length = None,
    out: Path | None = None,
    page: Path | None = None,
    device: Device = "cpu",
) -> None:
    """Show what changed between two checkpoints: which tensors, heads, neurons and answers.

    Ranks the tensors by ‖B - A‖ / ‖A‖, with the rank of B - A, and the heads and neurons by how much more their own
    weights changed than those beside them. With --data, ranks the heads and neurons by how much what they write changes
    by their own weights, on the same inputs; says how much of the answer each carries in both models; and counts the
    answers that changed, with 95% bootstrap intervals over texts.

    Args:
        first: Folder of a model or run, RUN@STEP for one checkpoint, or the name of a model on the Hugging Face hub.
        second: Another one of the same architecture and vocabulary.
        data: Files of texts, as for capture.
        text: Column of the texts.
        text_pair: Column of the targets or second texts.
        texts: Texts to measure on, drawn at random.
        top: Tensors, parts and texts to list.
        seed: Seed of the draw.
        out: JSON file to write.
        page: HTML file to write, with the same tables and whole texts.
    """
    from clearhead.cli.look.difference import difference_command

    columns = {"text": text, "text_pair": text_pair}
    difference_command(
        first,
        second,
        data=data,
        columns=columns,
        texts=texts,
        top=top,
        seed=seed,
        length=length,
        out=out,
        page=page,
        device=device,
    )
