"""The LSTMN: an LSTM with a tape of all its states instead of one cell (Cheng et al. 2016).

At each step the states on the tape are attended to, and their mixture takes the place of the state
before (section 3.1; the tape holds h and c of earlier steps, never of the present):

    a_i = vᵀ tanh(W_h h_i + W_x x_t + W_h̃ h̃_t-1)        s = softmax(a)
    [h̃_t; c̃_t] = Σ s_i [h_i; c_i]
    i, f, o = σ(W [h̃_t; x_t]),  ĉ = tanh(W [h̃_t; x_t])
    c_t = f c̃_t + i ĉ,  h_t = o tanh(c_t)

At the first step the tape is empty, and h̃ and c̃ are zero.

Departures: the tape holds the last `tape` steps, where the paper reads sentences whole; it is
carried from window to window, without gradient; gates have a bias. With `recency`, a_i also has a
learnt number for how far back i is, initialised as -recency times the distance: the model is then
much like an LSTM at first, whose last state differs from others without learning. Layers are
stacked plainly, each with a tape of its own.

Steps depend on one another through h̃, so time is a loop: W_x x is taken out of it, W_h h_i is
computed once for each i, and h̃ is multiplied once for gates and next query.

>>> import torch
>>> model = LSTMN(LSTMN.Config(width=8, tape=2), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.logits().shape, output.carry["tape"].shape       # batch, layers, steps, h and c
(torch.Size([1, 3, 10]), torch.Size([1, 1, 2, 16]))
"""

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from regard.attention import START, Attend, Memory, Past, Score
from regard.core.config import Config
from regard.core.protocols import Batch, Carry
from regard.kernels.additive import additive_scores
from regard.kernels.dropout import Dropout
from regard.layers.carry import Carrying, recent
from regard.layers.embedding import Lexicon
from regard.outputs.next_token import SoftmaxOutput


class IntraScore(Score):
    """a_i = vᵀ tanh(W_h h_i + q): additive, for queries q = W_x x + W_h̃ h̃."""

    def __init__(self, width: int, tape: int, recency: float) -> None:
        super().__init__(width)
        self.answer = nn.Linear(width, width, bias=False)
        self.vector = nn.Parameter(torch.empty(width).normal_(std=width**-0.5))
        back = torch.arange(tape, dtype=self.vector.dtype).flip(0)  # the last is the latest
        self.places = nn.Parameter(-recency * back) if recency else None

    def prepare(self, key: Float[Tensor, "B H K E"]) -> Float[Tensor, "B H K F"]:
        """W_h h, once for each state."""
        prepared: Tensor = self.answer(key)
        return prepared

    def forward(
        self, query: Float[Tensor, "B H Q E"], key: Float[Tensor, "B H K F"], past: Past = START
    ) -> Float[Tensor, "B H Q K"]:
        """The scores of prepared keys, of which the last is the latest."""
        scores = additive_scores(query, key, self.vector)
        return scores if self.places is None else scores + self.places[-key.shape[2] :]


class TapeLayer(nn.Module):
    """One layer: reads vectors one after another and writes its states on its tape."""

    def __init__(self, width: int, tape: int, recency: float) -> None:
        super().__init__()
        self.width, self.tape = width, tape
        self.enter = nn.Linear(width, 5 * width)  # W_x of the four gates and of the query
        self.again = nn.Linear(width, 5 * width, bias=False)  # W_h̃ of gates and of the next query
        self.attend = Attend(
            IntraScore(width, tape, recency), kind="memory", axes=("position", "earlier")
        )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        tape: Float[Tensor, "B K W"],
        summary: Float[Tensor, "B D"],
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B K2 W"], Float[Tensor, "B D"]]:
        """The states, the tape of all steps, and the last h̃."""
        entered = self.enter(x).unbind(1)
        memory = self.attend.remember(tape[:, None, :, : self.width], tape[:, None])
        written = [tape]
        turned = self.again(summary)
        cell = torch.zeros_like(summary)
        for time, now in enumerate(entered):
            if memory.key.shape[2]:
                query = (now + turned)[:, None, None, 4 * self.width :]
                past = Past(first=tape.shape[1] + time)
                summary, cell = self.attend(query, memory, None, past)[:, 0, 0].chunk(2, dim=1)
                turned = self.again(summary)
            state = self._gated((now + turned)[:, : 4 * self.width], cell)  # [B,W]
            written.append(state[:, None])
            memory = self._grown(memory, state[:, None, None])
        known = torch.cat(written, dim=1)  # [B,K,W]
        return known[:, tape.shape[1] :, : self.width], known, summary

    def _gated(self, sums: Tensor, cell: Tensor) -> Tensor:
        """[h; c] after a step."""
        gates, candidate = sums.split((3 * self.width, self.width), dim=1)
        enter, forget, leave = gates.sigmoid().chunk(3, dim=1)
        cell = forget * cell + enter * candidate.tanh()
        return torch.cat((leave * cell.tanh(), cell), dim=1)

    def _grown(self, memory: Memory, state: Tensor) -> Memory:
        """The memory with one more state, and without the oldest where it would be too long."""
        new = self.attend.remember(state[..., : self.width], state)
        drop = max(0, memory.key.shape[2] + 1 - self.tape)
        return Memory(
            torch.cat((memory.key[:, :, drop:], new.key), dim=2),
            torch.cat((memory.value[:, :, drop:], new.value), dim=2),
        )


class LSTMN(Carrying):
    """A language model that keeps its states on a tape."""

    class Config(Config):
        """What a recipe may choose."""

        width: PositiveInt = 300
        """Of the embedding and of every layer."""
        layers: PositiveInt = 1
        tape: PositiveInt = 35
        """How many earlier steps are kept."""
        recency: float = Field(0.0, ge=0)
        """How much the score of a state falls for each step back, at first; 0 is the paper's."""
        dropout: float = Field(0.0, ge=0, lt=1)
        tied: bool = False
        """Use the embedding as output layer."""
        init_range: float = Field(0.1, gt=0)
        """Embedding and output layer are initialised uniformly between minus this and this."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.words = Lexicon(
            vocabulary,
            config.width,
            tied=config.tied,
            dropout=config.dropout,
            init_range=config.init_range,
        )
        self.drop = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            TapeLayer(config.width, config.tape, config.recency) for _ in range(config.layers)
        )

    def forward(self, batch: Batch, carry: Carry | None = None) -> SoftmaxOutput:
        """The next token after each; the tapes are carried."""
        x = self.words(batch["tokens"])
        if carry is None:
            empty = x.new_zeros(len(x), len(self.layers), 0, 2 * self.config.width)
            carry = {"tape": empty, "summary": empty.new_zeros(*empty.shape[:2], self.config.width)}
        tapes, summaries = [], []
        for index, layer in enumerate(self.layers):
            x = x if index == 0 else self.drop(x)
            x, tape, summary = layer(x, carry["tape"][:, index], carry["summary"][:, index])
            tapes.append(recent(tape, self.config.tape))
            summaries.append(summary.detach())
        carried = {"tape": torch.stack(tapes, dim=1), "summary": torch.stack(summaries, dim=1)}
        return self.words.predict(x, carried)
