"""Parts that only speed and memory need: the same results as `clearhead.model` computes, in fewer seconds or bytes."""
