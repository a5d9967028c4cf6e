"""A model of a few hundred weights that reads sounds of a second, and sounds for it."""

from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from clearhead import config as c
from clearhead.api import Model
from clearhead.data.sounds import SoundConfig, SoundProcessor
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig, SpeechTokens
from clearhead.text.tokenizers import Tokenizer
from tests.data.test_sounds import form, riff, stored

RATE = 16_000
MARKS = ("endoftext", "startoftranscript", "en", "de", "translate", "transcribe", "notimestamps")
TIMES = tuple(f"{i / 50:.2f}" for i in range(51))
END, START, ENGLISH, GERMAN, TRANSLATE, TRANSCRIBE, TIMELESS = range(256, 263)
SPEECH = SpeechTokens(
    languages={"en": ENGLISH, "de": GERMAN},
    tasks={"transcribe": TRANSCRIBE, "translate": TRANSLATE},
    no_timestamps_id=TIMELESS,
)


def speech_tokenizer(*, times: bool = False) -> Tokenizer:
    """A token for each byte, the marks, and the times of a second."""
    vocab = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    library = tokenizers.Tokenizer(models.BPE(vocab, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(
        [AddedToken(f"<|{mark}|>", special=True, normalized=False) for mark in (*MARKS, *TIMES[: 51 * times])]
    )
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    return Tokenizer(library, {"tokenizer_class": "WhisperTokenizer", **ends})


def speech_model(speech: SpeechTokens | None = SPEECH, *, seed: int = 1, times: bool = False) -> Model:
    """Letters of an English alphabet alone are written, and times if the vocabulary has them."""
    tokenizer = speech_tokenizer(times=times)
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24, "activation": "gelu", "key_bias": False}
    encoder = {"input": c.FrameInput(n_frames=100, n_bins=8), "positions": c.Learned(max_length=50)}
    decoder = {"input": c.TokenInput(vocab_size=tokenizer.vocab_size), "positions": c.Learned(max_length=32)}
    torch.manual_seed(seed)
    network = Transformer(
        c.ModelConfig(
            encoder=c.StackConfig.model_validate(sizes | encoder),
            decoder=c.StackConfig.model_validate(sizes | decoder),
            head=c.LanguageHead(tied=False),
        )
    )
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=1.0)
    letters = {tokenizer.library.token_to_id(letter) for letter in "abcdefghijklmnopqrstuvwxyzĠ"}
    generation = GenerationConfig(
        max_new_tokens=6,
        start_id=START,
        end_ids=(END,),
        pad_id=END,
        banned_ids=tuple(i for i in range(tokenizer.vocab_size) if i not in {*letters, END} and i <= TIMELESS),
        first_banned_ids=(END,),
        speech=speech,
    )
    sounds = SoundProcessor(SoundConfig(feature_size=8, sampling_rate=RATE, chunk_length=1))
    return Model(network.eval(), tokenizer, generation, sounds=sounds)


def sound(number: int, seconds: float = 1.0) -> np.ndarray:
    """Samples: a tone and its noise."""
    at = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(number).normal(0, 0.05, len(at))
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * number) * at) + noise).astype(np.float32)


def wav(path: Path, samples: np.ndarray, *, rate: int = RATE) -> Path:
    """The samples as a file of 16 bits."""
    path.write_bytes(riff(form(1, 16, rate=rate), (b"data", stored(samples, 16))))
    return path
