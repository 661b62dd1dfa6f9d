"""The transitions between tags of a linear-chain conditional random field (outputs/crf.py).

>>> output = CRF(3)(torch.randn(2, 4, 3), torch.tensor([4, 2]))
>>> output.best().shape, bool(output.nll(output.best()) > 0)
(torch.Size([2, 4]), True)
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import positive
from regard.core.precision import in_float32
from regard.outputs.crf import ChainTags


class CRF(nn.Module):
    """From scores of each tag at each word to the distribution of the tags of a sentence."""

    def __init__(self, tags: int, *, init_range: float = 0.1) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.empty(positive("tags", tags)))
        self.end = nn.Parameter(torch.empty(tags))
        self.transitions = nn.Parameter(torch.empty(tags, tags))
        for each in self.parameters():
            nn.init.uniform_(each, -init_range, init_range)

    def forward(self, scores: Float[Tensor, "B T C"], lengths: Int[Tensor, "B"]) -> ChainTags:
        """The distribution of the tags of these sentences."""
        parameters = (in_float32(each) for each in (self.transitions, self.start, self.end))
        return ChainTags(in_float32(scores), lengths, *parameters)
