"""`Model`: a network with its tokenizer and its default settings of generation."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import JsonValue
from torch import Tensor

from clearhead.api import predicting, saving, variants
from clearhead.api.base import ModelBase
from clearhead.api.continuing import beginning, continued, conversation, remedy
from clearhead.api.embedding import SentenceReader, vectors_of
from clearhead.api.predicting import TEMPLATE, ZeroShot, classified, entailed
from clearhead.api.reader import Images, Input, Texts, listed
from clearhead.api.transcribing import transcripts, with_times
from clearhead.errors import UserError
from clearhead.generation import Hypothesis, complete
from clearhead.generation.paths import Following
from clearhead.generation.settings import changed, searching
from clearhead.json_text import JsonObject
from clearhead.model.assign import merged
from clearhead.model.linear import refuse_rounded
from clearhead.model.mode import Evaluating
from clearhead.model.summary import Summary, summarize
from clearhead.recipe.generation import GenerationConfig, SpeechTask
from clearhead.storage import checkpoints
from clearhead.trace import Edit, Trace, trace

Edits = Mapping[str, Edit] | None

if TYPE_CHECKING:
    from clearhead.data.images import Picture
    from clearhead.data.sounds import Sound


class Model(ModelBase):
    """A network with its tokenizer, its image or sound processor, and its default settings of generation."""

    # --- results ---

    def logits(self, text: Input, target: str | None = None, *, image: Images = None) -> Tensor:
        """Logits for one input: t v, or v if the head classifies the whole input.

        An encoder-decoder takes source and target, and returns logits for the target's positions. The first position
        is the start token. An encoder takes a second text, such as a passage after a question. `image` is the picture
        or the pictures within the text (docs/images.md).
        """
        with Evaluating(self.network), torch.inference_mode():
            return self.network(*self.inputs(text, target, image=image))[0]

    def predict(self, inputs: Sequence[predicting.Row]) -> list[JsonObject]:
        """Predicts each input with the task that the model was trained for: {"label": …, "probabilities": …}.

        An input is a text, or a pair of texts if the task reads pairs. The values of a blank text are empty. Raises
        UserError, which names the number of the input, for one of another kind, and for a model that no task knows.
        """
        task = predicting.task_of(self)
        return [prediction.values for prediction in predicting.numbered(self, task, listed(inputs, "predict"))]

    def classify(
        self, texts: Sequence[Input], *, labels: Sequence[str] = (), template: str = TEMPLATE, several: bool = False
    ) -> list[list[tuple[str, float]]]:
        """The labels of each text or image with their scores, largest first.

        `problem_type` of the head decides whether scores are probabilities that sum to 1, independent probabilities or
        regression values. `labels` are your own labels, for a model of natural language inference: their scores say
        whether a text entails the template with the label in place of {}. They sum to 1 unless `several` may hold.
        """
        texts = listed(texts, "classify")
        rows = entailed(self, texts, ZeroShot(labels, template, several)) if labels else classified(self, texts)
        return [sorted(row, key=lambda pair: -pair[1]) for row in rows]

    def translate(self, texts: Sequence[str], config: GenerationConfig | None = None, **settings: object) -> list[str]:
        """The best translation of each text; "" for a blank text. `settings` change `config`: beams=3.

        The default search is that of the commands: the model's own settings, with five beams if it has none.

        Raises UserError for an unknown setting.
        """

        def ask(known: list[str]) -> list[str]:
            best = self._translated(known, config, settings, scored=False)
            return [self.tokenizer.decode(one[0].tokens) for one in best]

        return [*predicting.answered(listed(texts, "translate"), ask, "")]

    def hypotheses(
        self, texts: Sequence[str], config: GenerationConfig | None = None, **settings: object
    ) -> list[list[Hypothesis]]:
        """The n_best translations of each source text with their scores, best first; settings as in `translate`."""
        return self._translated(texts, config, settings, scored=True)

    def _translated(
        self, texts: Sequence[str], config: GenerationConfig | None, settings: Mapping[str, object], *, scored: bool
    ) -> list[list[Hypothesis]]:
        if not self.is_encoder_decoder:
            raise UserError(f"translate: expected an encoder-decoder, got one stack; {remedy(self)}")
        source = self.reader.ids(listed(texts, "translate"))
        config = self.settings(changed(config or searching(self.generation, {}), settings))
        return complete(self.network, source=source, config=config, scored=scored)

    def transcribe(
        self,
        sounds: "Sequence[Sound]",
        language: str | None = None,
        task: SpeechTask | None = None,
        *,
        times: bool = False,
        **settings: object,
    ) -> list[str]:
        """Transcribes each sound: a WAV file, or an array of samples. `settings` as in `translate`.

        The model detects the language unless `language` names it ("de"). The task "translate" writes English. With
        `times`, windows
        of long sounds move by the times that the model writes (docs/sound.md).
        """
        config = with_times(changed(self.generation, settings), times=times)
        written = transcripts(self, listed(sounds, "transcribe"), language=language, task=task, config=config)
        return [one.text for one in written]

    def generate(
        self,
        prompt: str = "",
        config: GenerationConfig | None = None,
        *,
        image: Images = None,
        stop: Sequence[str] = (),
        draft: "Model | str | None" = None,
        **settings: object,
    ) -> str:
        """The prompt's continuation, up to the first of the stop strings. What else it takes is as in `stream`."""
        return "".join(self.stream(prompt, config, image=image, stop=stop, draft=draft, **settings))

    def chat(
        self,
        messages: Sequence[Mapping[str, JsonValue]],
        config: GenerationConfig | None = None,
        *,
        image: Images = None,
        stop: Sequence[str] = (),
        draft: "Model | str | None" = None,
        **settings: object,
    ) -> Following[str]:
        """The answer to a conversation of {"role": …, "content": …} in the model's own template, piece by piece.

        `image` is as in `stream`; a template that knows pictures puts each at its {"type": "image"} of the content.
        """
        return continued(
            self, conversation(self, messages, image), changed(config or self.generation, settings), stop, draft
        )

    def stream(
        self,
        prompt: str = "",
        config: GenerationConfig | None = None,
        *,
        image: Images = None,
        stop: Sequence[str] = (),
        draft: "Model | str | None" = None,
        **settings: object,
    ) -> Following[str]:
        """The continuation piece by piece while it is generated, up to the first of the stop strings.

        `image` is the picture or the pictures within the prompt, each at its mark, such as <image>, or before the text.

        The `paths` of the result say how the steps were computed.

        Generates one hypothesis and ignores the beams of `config`; `settings` as in `translate`. A `draft`, a smaller
        model of the same vocabulary or "lookup", makes it faster (docs/inference.md). Raises UserError at the call
        for a model that does not continue texts, and for a prompt or a draft that does not fit.
        """
        return continued(
            self, beginning(self, prompt, image), changed(config or self.generation, settings), stop, draft
        )

    def embed(
        self, texts: Sequence[Input], *, unit: bool = True, prompt: str | None = None, prompt_name: str | None = None
    ) -> Tensor:
        """One vector for each text or image, b d: the first stack's last states, pooled over the real positions.

        A sentence encoder puts its default prompt or the given one first, and cuts long texts. Vectors have length 1
        unless `unit` is false. Many texts are read in batches of similar lengths. Raises UserError, which names the
        number of the input, for a blank text.
        """
        texts = listed(texts, "embed")
        blank = next((i for i, text in enumerate(texts, 1) if isinstance(text, str) and not text.strip()), None)
        if blank is not None:
            raise UserError(f"embed: input {blank}: expected a text, got a blank one; leave it out")
        reads = SentenceReader(self.reader, self.sentences, self.sentences.prompt(prompt, prompt_name))
        vectors = vectors_of(self, texts, reads)
        return torch.nn.functional.normalize(vectors, dim=-1) if unit else vectors

    # --- looking inside ---

    def summary(self) -> Summary:
        """Parameters, shapes, FLOPs and bytes by component."""
        return summarize(self.config)

    def trace(
        self,
        text: "Input | list[Input]",
        target: str | list[str] | None = None,
        *,
        image: Images = None,
        edit: Edits = None,
    ) -> tuple[Trace, Tensor]:
        """A trace of every value of the forward pass of one input, and the logits. `edit` changes values.

        A list of inputs is one batch: axis b of every value and of the logits counts them, and shorter ones are padded
        at their ends. `image` is the picture or the pictures within one text, which the values below `pictures` count.
        """
        several = isinstance(text, list)
        inputs = self.reader.batch_of(text if several else [text], target, self.generation, image)
        with Evaluating(self.network), torch.no_grad(), trace(self.network, edit) as seen:
            logits = self.network(*map(self.here, inputs))
        return seen, logits if several else logits[0]

    def changed(self, *, scale: bool = True, positions: str | None = None) -> "Model":
        """A model with the same weights, but without the scale of the scores, or with other positions in every stack.

        The network was not trained in this way, so the change shows what breaks. The weights are shared. `positions` is
        a key of `clearhead.config.positions.WITHOUT_WEIGHTS`. Raises UserError if the change is impossible.
        """
        refuse_rounded(self.network, "changed")
        own = merged(self.network)
        network = variants.over_the_same_weights(own, variants.changed(own.config, scale=scale, positions=positions))
        return self.around(network)

    def tracing(self, edit: Edits = None, *, without: Collection[str] = ()) -> AbstractContextManager[Trace]:
        """Traces all passes inside a `with` block, such as those of a translation, as `clearhead.trace.trace` does."""
        return trace(self.network, edit, without=without)

    def explore(
        self, text: str | None = None, target: str | None = None, *, image: "Picture | None" = None, data: Texts = None,
        compare: "Model | None" = None,
    ) -> Any:  # fmt: skip
        """Opens a page that shows, explains and edits every value of a forward pass, beginning with this input.

        With texts or pairs in `data` the page looks for examples in them. `compare` is another model to compare with.
        In a notebook, a call in a cell's last line shows a widget; elsewhere it opens a browser and returns an object
        with `url`, `wait` and `close`. Raises UserError in a notebook without the `notebook` extra.
        """
        from clearhead.explorer.hosting.widget import explore

        return explore(self, text, target, image, data, compare)

    # --- saving ---

    def merge(self) -> "Model":
        """A model with its adapters merged into its weights. It shares all other weights."""
        return self.around(merged(self.network), about=self.about)

    def save(self, folder: str | Path, *, adapter: bool = False, shard_bytes: int = saving.SHARD_BYTES) -> Path:
        """Writes a new folder for `load`, and for other libraries if they have this architecture.

        Weights and config under the names of the Hugging Face libraries, the tokenizer, the settings of generation
        and a model card. An architecture that they do not have is saved in clearhead's own form, with a warning.

        Adapters become a part of the weights. With `adapter`, they alone are written, in the form of the library PEFT,
        with the head that was trained with them.
        """
        folder = Path(folder)
        files = saving.adapter_files(self) if adapter else saving.whole_files(self, folder, shard_bytes=shard_bytes)
        return checkpoints.write_folder(folder, files)
