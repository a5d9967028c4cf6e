"""`clearhead transcribe`."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from clearhead.api import load
from clearhead.api.predicting import task_of
from clearhead.api.transcribing import Transcript, transcripts, with_times
from clearhead.cli.options import tell
from clearhead.cli.use.predictions import stream_to
from clearhead.data.waves import read_wave
from clearhead.errors import UserError
from clearhead.generation.settings import changed
from clearhead.json_text import JsonObject, tabbed
from clearhead.machine.device import keep_freed_memory
from clearhead.recipe.speech import SpeechTask


def transcribe_command(
    name: str,
    files: Sequence[Path],
    *,
    language: str | None,
    task: SpeechTask | None,
    beams: int | None,
    times: bool,
    out: Path | None,
    int8: bool = False,
    int4: bool = False,
    device: str,
    as_json: bool,
) -> None:
    """Prints or writes what each file says, one line for each, in their order."""
    if not files:
        raise UserError("transcribe: expected a WAV file, got none; try clearhead transcribe MODEL FILE.wav")
    for file in files:  # Before the model is loaded, which may take long.
        read_wave(file)
    keep_freed_memory()
    model = load(name, int8=int8, int4=int4, device=device)
    if not model.reader.reads_sounds:
        task_of(model, verb="transcribe", name=name)
    config = with_times(changed(model.generation, {} if beams is None else {"beams": beams}), times=times)
    as_json = as_json or (out is not None and out.suffix in (".jsonl", ".ndjson"))
    found = transcripts(model, files, language=language, task=task, config=config)
    with stream_to(out) as stream:
        for file, said in zip(files, found, strict=True):
            print(json_line(file, said) if as_json else lines(said), file=stream, flush=out is None)
    if out is not None:
        tell(f"{out}: {len(files):,} transcripts")


def lines(said: Transcript) -> str:
    """The text, or a line for each part with its times: START, END, TEXT with tabs between."""
    if not said.segments:
        return tabbed(said.text)
    return "\n".join(tabbed(f"{one.start:.2f}", f"{one.end:.2f}", one.text.strip()) for one in said.segments)


def json_line(file: Path, said: Transcript) -> str:
    """A file and what it says as one line."""
    known = {} if said.language is None else {"language": said.language}
    values: JsonObject = {"input": str(file), "text": said.text, **known, "seconds": round(said.seconds, 3)}
    if said.segments:
        parts: list[JsonValue] = [
            {"start": round(one.start, 2), "end": round(one.end, 2), "text": one.text.strip()} for one in said.segments
        ]
        values["segments"] = parts
    return json.dumps(values, ensure_ascii=False)
