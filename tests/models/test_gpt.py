"""What is GPT-2's own: how its weights begin."""

import pytest
from torch import nn

from regard.models.language.gpt import GPT


@pytest.mark.parametrize("layers", [1, 3])
def test_branches_begin_smaller_the_more_layers_there_are(layers: int) -> None:
    # GPT-2, section 2.3: weights that end a residual branch are scaled by 1/√N at the beginning, N
    # being the number of residual layers, two in each block.
    config = GPT.Config(width=64, heads=4, layers=layers, context=64, tied=False)
    model = GPT(config, vocabulary=64)
    found = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    assert len(found) == 4 * layers + 1
    for name, part in found.items():
        ends = name.endswith(("attention.merge", "feedforward.narrow"))
        wanted = 0.02 / (2 * layers) ** 0.5 if ends else 0.02
        assert part.weight.std().item() == pytest.approx(wanted, rel=0.06), name
        assert part.bias is None or not part.bias.any(), name
    assert model.embed.table.weight.std().item() == pytest.approx(0.02, rel=0.06)
