"""The source side of a recurrent translator: tokens in, a state for each of them out.

>>> import torch
>>> reader = Reader(10, 4, RecurrentEncoder("gru", 4, 8))
>>> reader(torch.tensor([[5, 6, 3], [5, 3, 0]]), torch.tensor([3, 2])).states.shape
torch.Size([2, 3, 16])
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import UserError, above_zero, positive
from regard.core.protocols import Batch
from regard.kernels.dropout import Dropout
from regard.layers.bidirectional import mirrored
from regard.layers.recurrent import Encoded, RecurrentEncoder


class Reader(nn.Module):
    """An embedding, with dropout, and an encoder; the embedding starts uniform within `init_range`.

    With `reverse` every sentence is read from its end (Sutskever et al. 2014, section 3.3).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        encoder: RecurrentEncoder,
        *,
        dropout: float = 0.0,
        init_range: float = 0.1,
        reverse: bool = False,
    ) -> None:
        super().__init__()
        above_zero("init_range", init_range)
        self.embed = nn.Embedding(positive("vocabulary", vocabulary), positive("width", width))
        self.drop = Dropout(dropout)
        self.encoder = encoder
        self.reverse = reverse
        nn.init.uniform_(self.embed.weight, -init_range, init_range)

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Encoded:
        """What was read: a state for each token, and the last ones."""
        rows, longest = source.shape
        if lengths.shape != (rows,) or bool(((lengths < 1) | (lengths > longest)).any()):
            raise UserError(
                f"each of the {rows} sources needs a length of 1 to {longest}, the token that ends "
                f"it counted; the lengths are {lengths.tolist()}"
            )
        if self.reverse:
            source = _from_the_end(source, lengths)
        encoded: Encoded = self.encoder(self.drop(self.embed(source)), lengths)
        return encoded

    @property
    def feature_width(self) -> int:
        """Of a state."""
        return self.encoder.directions * self.encoder.cells.hidden_size

    def features(self, batch: Batch) -> Float[Tensor, "B T W"]:
        """A state for each word of a text, zero at padding: context vectors (McCann et al. 2017).

        Words are those of the batch in the vocabulary that this reads; none ends the text.
        """
        tokens, lengths = batch.get("source_tokens", batch["tokens"]), batch["lengths"]
        read = _from_the_end(tokens, lengths) if self.reverse else tokens
        encoded: Encoded = self.encoder(self.drop(self.embed(read)), lengths)
        if not self.reverse:
            return encoded.states
        turn = mirrored(lengths, tokens.shape[1])[..., None].expand_as(encoded.states)
        return encoded.states.gather(1, turn)


def _from_the_end(tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> Int[Tensor, "B S"]:
    """Each sentence from its last token to its first; padding stays behind it.

    >>> _from_the_end(torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2])).tolist()
    [[3, 6, 5], [3, 7, 0]]
    """
    place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)  # [B,S]
    mirrored = lengths.to(tokens.device)[:, None] - 1 - place
    return tokens.gather(1, torch.where(mirrored >= 0, mirrored, place))
