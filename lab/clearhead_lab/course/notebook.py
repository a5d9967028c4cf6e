"""A page as a notebook (nbformat 4): its prose, its code, and what the code prints."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from clearhead_lab.course import glossary, models, numbers
from clearhead_lab.course.page import FIGURES, Part, parts

FIRST = """# Needs: pip install ../clearhead ../clearhead/lab. Trains the models of this chapter, in seconds.
import os
from pathlib import Path

from clearhead_lab.course.models import ready

os.chdir(ready(Path("course-models"), {names}))"""
FILE = re.compile(r"# ([\w.-]+\.\w+)\n")
"""The first line of a block that a reader of a tutorial writes to a file of this name."""
PAGE = re.compile(r"(\]\((?!\w+:)[^)#\s]+)\.md\b")


def notebook(name: str, text: str) -> str:
    """The file NAME.ipynb of a page that was run: its outputs are those of the run."""
    made = [_cell("markdown", f"*[The same with figures to change]({name}.html).*")]
    if used := models.named(text):
        made.append(_cell("code", FIRST.format(names=used)))
    for part in parts(text):
        if part.language == "output":
            made[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": _lines(part.text)}]
        else:
            made += (_cell("code" if _is_code(part) else "markdown", one) for one in _source(part, name))
    for n, cell in enumerate(made, 1):
        cell["id"] = f"{name}-{n}"
        if "outputs" in cell:
            cell["execution_count"] = n
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": about, "cells": made}, ensure_ascii=False, indent=1
    )


def _is_code(part: Part) -> bool:
    return part.language in ("python", "sh") or bool(part.language and FILE.match(part.text))


def _shell(line: str) -> str:
    """A command line in a cell. IPython starts one that ends with & in its own way."""
    return f"get_ipython().system_raw({line!r})" if line.endswith("&") else f"!{line}"


def _source(part: Part, name: str) -> Iterator[str]:
    """What stands in the cell of a part. Nothing stands there for a claim, a verdict and an excuse."""
    if part.language in FIGURES:
        figure = tomllib.loads(part.text)
        said = [figure["move"]] if "move" in figure else [step["say"] for step in figure["step"]]
        yield "\n".join([f"[**{figure['title']}**]({name}.html)\n", *(f"- {_prose(one)}" for one in said)])
    elif part.language and (file := FILE.match(part.text)):
        yield f"%%writefile {file[1]}\n{part.text}"
    elif part.language == "sh":
        yield "\n".join(map(_shell, part.text.splitlines()))
    elif part.language in ("formula", "bash"):
        yield f"```{part.language.replace('formula', 'python')}\n{part.text}```"
    elif part.language == "python":
        yield part.text
    elif not part.language:
        yield _prose(part.text)


def _prose(text: str) -> str:
    plain = glossary.shown(numbers.INLINE.sub(r"\g<shown>", text))
    return PAGE.sub(r"\1.html", plain)


def _cell(kind: str, source: str) -> dict[str, Any]:
    more: dict[str, Any] = {"outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": _lines(source.strip("\n")), **more}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
