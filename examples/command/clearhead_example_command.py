"""`clearhead neighbours`: the tokens whose vectors are nearest to that of a token."""

from clearhead.cli.options import Device, Named, OneObject, Text, check_positive
from clearhead.errors import UserError


def neighbours(model: Named, token: Text, /, *, top: int = 10, device: Device = "cpu", json: OneObject = False) -> None:
    """List the tokens whose vectors are nearest to that of a token, by the cosine of the angle between them.

    Args:
        token: A token of the model's vocabulary, such as the, or a word that is one token.
        top: Tokens to list.
    """
    import json as json_lines

    from torch.nn.functional import cosine_similarity

    from clearhead import load

    check_positive(top=top)
    opened = load(model, device=device)
    ids = opened.tokenizer.encode(token)
    if len(ids) != 1:
        raise UserError(f"{token}: expected one token, got {len(ids)}; try a shorter word")
    stack = next(iter(opened.network.stacks()))
    table = opened.network.state_dict()[f"{stack}.embed.tokens.weight"]
    likeness = cosine_similarity(table, table[ids[0]], dim=-1)
    best = likeness.topk(min(top + 1, len(table))).indices.tolist()
    found = {opened.tokenizer.decode([i]): float(likeness[i]) for i in best if i != ids[0]}
    if json:
        print(json_lines.dumps(found, ensure_ascii=False))
    else:
        print(*(f"{cosine:7.4f}  {word}" for word, cosine in found.items()), sep="\n")
