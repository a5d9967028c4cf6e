"""`clearhead patch`."""

from typing import Literal

from clearhead.cli.app import Device, Flag, Text, app


@app.command(sort_key=6, help_epilogue="")
def patch(
    model: str,
    /,
    *,
    clean: Text,
    corrupt: Text,
    answer: str,
    minus: str | None = None,
    target: Text | None = None,
    of: Literal["resid", "attn", "ffn", "heads", "all"] = "resid",
    position: int = -1,
    json: Flag = False,
    device: Device = "cpu",
) -> None:
    """Patch the states of one text into another, one at a time, and say how much of its answer each restores.

    Prints a row for each block, the last one first, each as soon as it is known: 0 is the answer of the corrupt text,
    1 that of the clean one. Texts of different lengths are aligned by their common tokens; a position that has no
    partner stays empty.

    Args:
        model: Folder of a model or run, or the name of a model on the Hugging Face hub.
        clean: The text that gives the answer; a file, for a model that reads images.
        corrupt: The text that does not.
        answer: Token, or label, whose logit is measured. A token that begins a word has its space: " Paris".
        minus: Token or label whose logit is subtracted, usually the corrupt text's answer.
        target: What the decoder of an encoder-decoder has written so far (default: nothing).
        of: The states: residual streams, attention outputs or feed-forward outputs by position, heads, or all of these.
        position: Position in the clean text whose answer is measured; -1 is the last.
        json: Print one JSON object on standard output, and nothing else there.
        device: Where to compute.
    """
    from clearhead.commands.patch import patch_command

    answers = (answer, minus)
    patch_command(
        model, (clean, corrupt), answers, target=target, of=of, position=position, as_json=json, device=device
    )
