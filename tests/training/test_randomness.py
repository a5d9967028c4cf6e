import torch

from clearhead.training.randomness import generator


def test_equal_parts_draw_equal_numbers():
    draw = [torch.randn(4, generator=generator(*parts)).tolist() for parts in ((1, "a"), (1, "a"), (1, "b"))]
    assert draw[0] == draw[1] != draw[2]
