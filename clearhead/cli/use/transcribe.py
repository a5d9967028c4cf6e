"""`clearhead transcribe`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clearhead.cli.options import Device, Flag, Int4, Int8, Named, open_model
from clearhead.cli.use.inputs import Options
from clearhead.errors import UserError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from clearhead.api.transcribing import Transcript
    from clearhead.tasks.task import Prediction


def transcribe(
    model: Named,
    /,
    *files: Path,
    language: str | None = None,
    task: Literal["transcribe", "translate"] | None = None,
    beams: int | None = None,
    times: Flag = False,
    out: Path | None = None,
    int8: Int8 = False,
    int4: Int4 = False,
    device: Device = "cpu",
    json: Flag = False,
) -> None:
    """Print what each sound file says.

    A file of another sampling rate is resampled, and the mean of its channels is read. Long sounds are read in windows
    of the model's length, 30 seconds for most, one after another: a word on the border of two may be lost. With
    --times, each window begins where the last whole part of the one before ends.

    Args:
        files: WAV files.
        language: Language of the sounds, such as de or german (default: the model hears it in the first window).
        task: Write the language of the sound, or English (default: transcribe).
        beams: Width of the beam search; 1 is greedy (default: the model's own).
        times: Print each part of a text with its times in seconds: START, END, TEXT with tabs between.
        out: File to write, once all is done: JSON lines if its name ends with .jsonl, else a line for each file.
        json: Print a JSON object for each file.
    """
    from clearhead.api.predicting import task_of
    from clearhead.api.transcribing import transcripts, with_times
    from clearhead.cli.use.predictions import run
    from clearhead.data.sounds import read_wave
    from clearhead.generation.settings import changed

    if not files:
        raise UserError("transcribe: expected a WAV file, got none; try clearhead transcribe MODEL FILE.wav")
    for file in files:  # Before the model is loaded, which may take long.
        read_wave(file)
    hearer = open_model(model, int8=int8, int4=int4, device=device)
    if not hearer.reader.reads_sounds:
        task_of(hearer, verb="transcribe", name=model)
    config = with_times(changed(hearer.generation, {} if beams is None else {"beams": beams}), times=times)
    said = map(prediction, transcripts(hearer, files, language=language, task=task, config=config))

    def predict(*_: object, **__: object) -> Iterator["Prediction"]:
        return said

    run(predict, [[*map(str, files)]], Options(out=out, json=json), what="transcripts")


def prediction(said: "Transcript") -> "Prediction":
    """What a file says: its text, or a line for each part with its times, START, END, TEXT with tabs between."""
    from clearhead.json_text import JsonObject, tabbed
    from clearhead.tasks.task import Prediction

    known = {} if said.language is None else {"language": said.language}
    values: JsonObject = {"text": said.text, **known, "seconds": round(said.seconds, 3)}
    if not said.segments:
        return Prediction(tabbed(said.text), values)
    parts: list[JsonValue] = [
        {"start": round(one.start, 2), "end": round(one.end, 2), "text": one.text.strip()} for one in said.segments
    ]
    lines = [tabbed(f"{one.start:.2f}", f"{one.end:.2f}", one.text.strip()) for one in said.segments]
    return Prediction("\n".join(lines), {**values, "segments": parts})
