"""Models of a few hundred weights for tests: made, not trained, and random enough to have opinions."""

import torch

from clearhead import config as c
from clearhead.api import Model, TwoTowerModel, architecture
from clearhead.checkpoints.families.pictures_and_sounds.towers import CLIP
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.model import Transformer
from clearhead.model.towers import TwoTowers
from clearhead.recipe import ModelChoice
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import TokenizerConfig, Words
from clearhead.text.tokenizers import Tokenizer
from tests.training.tiny import SMALL, number_pairs

PAIRS = number_pairs(24)
TEXTS = [*PAIRS.source, *PAIRS.target]
STACKS = {**SMALL, "dropout": 0.0}


def model_of(
    name: str, tokenizer: TokenizerConfig | Tokenizer | None = None, *, seed: int = 0, **stacks: object
) -> Model:
    """A preset made small, by default with a tokenizer of number words."""
    trained = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.train(TEXTS, tokenizer or Words())
    torch.manual_seed(seed)
    choice = ModelChoice.model_validate({"preset": name, "stacks": {**STACKS, **stacks}})
    network = Transformer(architecture(choice, trained.vocab_size))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Model(network.eval(), trained, GenerationConfig(max_new_tokens=8, beams=2, length_penalty=0.5))


def towers() -> TwoTowerModel:
    """A model of texts and one of pictures of 8 x 8 pixels."""
    words = Tokenizer.train(TEXTS, Words())
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24}
    reads = c.TokenInput(vocab_size=words.vocab_size)
    text = c.StackConfig.model_validate({"input": reads, "positions": c.Learned(max_length=20), **sizes})
    patches = c.PatchInput(image_size=8, patch_size=4, bias=False, norm=True)
    picture = c.StackConfig.model_validate(
        {"input": patches, "positions": c.Learned(max_length=5), "final_norm": False, **sizes}
    )
    torch.manual_seed(0)
    both = (
        Transformer(c.ModelConfig(decoder=text, head=c.VectorHead(pool="last", width=8))),
        Transformer(c.ModelConfig(encoder=picture, head=c.VectorHead(norm=True, width=8))),
    )
    for parameter in [parameter for network in both for parameter in network.parameters()]:
        torch.nn.init.normal_(parameter, std=0.5)
    images = ImageProcessor(ImageConfig(size=PixelSize(height=8, width=8)))
    models = Model(both[0].eval(), words), Model(both[1].eval(), images=images)
    return TwoTowerModel(*models, TwoTowers(*both), CLIP)
