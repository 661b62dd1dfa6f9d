"""HRED: a language model over turns, with a state that changes once per turn (Sordoni et al. 2015).

Three GRUs (section 3). An encoder reads each turn from a fresh start, and its last state is the
turn's vector; the context network takes one step per turn, s_m = GRU(s_m-1, turn_m); a decoder
writes each turn from d_0 = tanh(D_0 s_m-1 + b_0), where s_m-1 is a summary of the turns before the
present one. The next word is predicted from ω = H_o d + E_o w + b_o.

Here the turns come as one stream of tokens, in which the token `end` closes each, so that its
perplexity can be compared with that of any language model. The closing token ends the turn for the
encoder, which reads it last, and starts the next turn for the decoder, which reads it first; so the
first word of a turn is predicted from the context of all turns before it. A stream starts with a
context of zero. Nothing else resets anything; windows may cut turns anywhere.

Departures: one embedding serves encoder and decoder; the decoder's first input is the closing token
where the paper has none; dropout may fall on embeddings and on ω.

>>> import torch
>>> model = HRED(HRED.Config(width=8, context=12, end=3), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3, 4]])})
>>> output.logits().shape, output.carry["context"].shape
(torch.Size([1, 4, 10]), torch.Size([1, 12]))
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from regard.core.config import Config
from regard.core.errors import UserError
from regard.core.protocols import Batch, Carry
from regard.layers.carry import Carrying
from regard.layers.embedding import Lexicon
from regard.outputs.next_token import SoftmaxOutput


@dataclass(frozen=True)
class Pieces:
    """A batch of streams cut into pieces, which a recurrent network reads side by side."""

    rows: Int[Tensor, "N"]
    """The stream of each piece."""
    starts: Int[Tensor, "N"]
    """The position of its first token."""
    fresh: Bool[Tensor, "N 1"]
    """Does it begin with a cut? Else it continues the window before."""
    lengths: tuple[int, ...]

    @staticmethod
    def cut(cuts: Bool[Tensor, "B T"]) -> "Pieces":
        """Pieces begin where a cut is, and where a stream enters the window."""
        begins = cuts.clone()
        begins[:, 0] = True
        rows, starts = begins.nonzero().unbind(1)
        at = torch.cat((begins.flatten().nonzero().squeeze(1), rows.new_tensor([cuts.numel()])))
        return Pieces(rows, starts, cuts[rows, starts][:, None], tuple(at.diff().tolist()))

    def read(
        self, cells: nn.Module, x: Float[Tensor, "B T D"], before: Float[Tensor, "N W"]
    ) -> Float[Tensor, "B T W"]:
        """The states of a network that begins each piece with its own state."""
        pieces = x.flatten(0, 1).split(self.lengths)
        packed = pack_sequence(list(pieces), enforce_sorted=False)
        states, lengths = pad_packed_sequence(cells(packed, before[None])[0], batch_first=True)
        real = torch.arange(states.shape[1], device=lengths.device) < lengths[:, None]  # [N,T]
        read: Tensor = states[real.to(states.device)].unflatten(0, x.shape[:2])  # [B,T,W]
        return read


class HRED(Carrying):
    """Predicts the next word from the present turn and from a summary of those before it."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 200
        """Of the embedding, the encoder and the decoder."""
        context: PositiveInt = 300
        """Of the state that changes once per turn."""
        end: NonNegativeInt = 3
        """The token that closes a turn; 3 is the `<eos>` of our tokenisers."""
        dropout: float = Field(0.0, ge=0, lt=1)
        tied: bool = False
        """Use the embedding as output layer."""
        init_range: float = Field(0.1, gt=0)
        """Embedding and output layer are initialised uniformly between minus this and this."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        if config.end >= vocabulary:
            raise UserError(f"end={config.end} is no token of a vocabulary of {vocabulary}")
        self.config = config
        self.words = Lexicon(
            vocabulary,
            config.width,
            tied=config.tied,
            dropout=config.dropout,
            init_range=config.init_range,
        )
        self.encoder = nn.GRU(config.width, config.width, batch_first=True)
        self.context = nn.GRU(config.width, config.context, batch_first=True)
        self.begin = nn.Linear(config.context, config.width)
        self.decoder = nn.GRU(config.width, config.width, batch_first=True)
        self.merge = nn.Linear(2 * config.width, config.width)

    @property
    def turn_end(self) -> int:
        """The token that closes a turn."""
        return self.config.end

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each; the states of the three networks are carried."""
        tokens = batch["tokens"]
        x = self.words(tokens)
        ends = tokens == self.config.end  # [B,T]
        carry = self._before(x) if carry is None else carry
        encoded = self._encoded(x, ends, carry["encoder"])
        contexts = self._contexts(encoded, ends, carry["context"])
        turn = ends.cumsum(1)  # how many turns were over, each token included
        pieces = Pieces.cut(ends)
        opened = self.begin(contexts[pieces.rows, turn[pieces.rows, pieces.starts]]).tanh()  # [N,D]
        before = torch.where(pieces.fresh, opened, carry["decoder"][pieces.rows])
        decoded = pieces.read(self.decoder, x, before)
        carried = {
            "encoder": encoded[:, -1] * ~ends[:, -1:],
            "context": contexts[torch.arange(len(x), device=x.device), turn[:, -1]],
            "decoder": decoded[:, -1],
        }
        merged = self.merge(torch.cat((decoded, x), dim=2))
        return self.words.predict(merged, {name: each.detach() for name, each in carried.items()})

    def _before(self, x: Tensor) -> Carry:
        """The states before a stream."""
        context = x.new_zeros(len(x), self.config.context)
        empty = x.new_zeros(len(x), self.config.width)
        return {"encoder": empty, "context": context, "decoder": self.begin(context).tanh()}

    def _encoded(self, x: Tensor, ends: Tensor, before: Tensor) -> Tensor:
        """The encoder's state after each token; at the end of a turn, the turn's vector."""
        after_end = torch.cat((torch.zeros_like(ends[:, :1]), ends[:, :-1]), dim=1)
        pieces = Pieces.cut(after_end)
        return pieces.read(self.encoder, x, before[pieces.rows] * ~pieces.fresh)

    def _contexts(self, encoded: Tensor, ends: Tensor, before: Tensor) -> Float[Tensor, "B K W"]:
        """The context after 0, 1, 2, ... of the turns that end in this window.

        Streams with fewer turns than others are padded behind their last turn.
        """
        rows, at = ends.nonzero().unbind(1)
        most = int(ends.sum(1).max())
        if most == 0:
            return before.unsqueeze(1)
        turns = encoded.new_zeros(len(ends), most, encoded.shape[2])
        turns = turns.index_put((rows, ends.cumsum(1)[rows, at] - 1), encoded[rows, at])
        states, _ = self.context(turns, before[None])
        return torch.cat((before.unsqueeze(1), states), dim=1)
