"""Two networks whose vectors are compared: one reads texts, the other pictures."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.model.layout import Tokens
from clearhead.model.mode import Part
from clearhead.model.transformer import Transformer
from clearhead.trace import tap


class TwoTowers(Part):
    """logits[i, n] = exp(scale) cos(image_i, text_n) (+ bias)   (Radford et al. 2021, 2.3; Zhai et al. 2023, 3.2)"""

    def __init__(self, text: Transformer, image: Transformer, *, bias: bool = False) -> None:
        super().__init__()
        self.text, self.image = text, image
        self.logit_scale = nn.Parameter(torch.tensor(2.6592))
        self.logit_bias = nn.Parameter(torch.tensor(0.0)) if bias else None

    def forward(self, images: Tokens | Tensor, texts: Tokens | Tensor) -> Tensor:
        """Pictures i c y x and texts n t -> i n."""
        return self.compared(self.image(images), self.text(texts))

    def compared(self, images: Tensor, texts: Tensor) -> Tensor:
        """The vectors i d and n d -> i n."""
        logits = F.normalize(images, dim=-1) @ F.normalize(texts, dim=-1).mT * self.logit_scale.exp()
        return tap(self, "logits", logits if self.logit_bias is None else logits + self.logit_bias, "i n")

    def loss(self, logits: Tensor) -> Tensor:
        """n n -> the loss of n pictures, each beside its text; in nats, as a mean.

        Without a bias the cross-entropy of each picture's text among the texts and of each text's picture among the
        pictures, half of either; with a bias the sum of the loss of each pair by itself   (the papers' sections above)
        """
        n = len(logits)
        if logits.shape != (n, n):
            raise UserError(f"loss: expected as many pictures as texts, got {logits.shape[0]} and {logits.shape[1]}")
        if self.logit_bias is not None:
            signs = 2 * torch.eye(n, device=logits.device, dtype=logits.dtype) - 1
            return -F.logsigmoid(signs * logits).sum() / n
        own = torch.arange(n, device=logits.device)
        return 0.5 * (F.cross_entropy(logits, own) + F.cross_entropy(logits.mT, own))
