"""What a linear map can read out of vectors."""

import torch
import torch.nn.functional as F
from torch import Tensor

RIDGE = 1e-3


def readable(vectors: Tensor, labels: Tensor, *, n_fitted: int) -> float:
    """The accuracy on new vectors of a linear classifier   (Alain and Bengio 2016, linear probes)

    Ridge regression to one-hot labels, n, is fitted to the first `n_fitted` vectors, n d, and judged on the others.
    """
    x = F.pad(vectors.double(), (0, 1), value=1.0)
    fitted, wanted = x[:n_fitted], F.one_hot(labels[:n_fitted]).double()
    penalty = RIDGE * n_fitted * torch.eye(x.shape[1], dtype=x.dtype)
    weight = torch.linalg.solve(fitted.mT @ fitted + penalty, fitted.mT @ wanted)
    return ((x[n_fitted:] @ weight).argmax(-1) == labels[n_fitted:]).double().mean().item()
