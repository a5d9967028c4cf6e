"""`clearhead lab`."""

from cyclopts import App

from clearhead.cli.app import Flag, app

lab = App(name="lab", help="Run the worked examples and the claims about the Transformer, and judge them.", sort_key=13)
app.command(lab)


@lab.command(help_epilogue="")
def examples(*ids: str, errata: Flag = False, json: Flag = False) -> None:
    """Compute the worked examples of the source documents and compare them with what is printed.

    The engine's own parts compute each record. Prints its verdict; where a number is wrong, the right value and the
    cause.

    Args:
        ids: Records to compute, such as s0-09, or the beginning of ids: s2 for all of document 002 (default: all).
        errata: Print the page docs/errata.md.
        json: Print one JSON object a record: id, printed, ours, verdict.
    """
    from clearhead.commands.lab import examples_command

    examples_command(ids, errata=errata, as_json=json)
