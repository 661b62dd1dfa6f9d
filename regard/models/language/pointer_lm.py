"""A recurrent language model that may point at a recent word: pointer-sentinel, Merity et al. 2017.

With h_i the states of the RNN, q_t = tanh(W h_t + b); one softmax over [q·s, q·h_t-L+1, ..., q·h_t]
gives the sentinel's weight g and the weights a_i of the last L positions (section 2). Then

    p(w) = g p_vocab(w) + Σ a_i over all positions i that hold w,

so that the pointer has the mass 1 - g. State h_i stands for x_i, the word just
read, as in the paper (the neural cache pairs it with the word after).

The sentinel is a key like the others, at place 0 of the memory; `record` shows it in column 0.
Departures: states of the window before can be pointed at, without a gradient; dropout is where
Zaremba et al. have it.

>>> import torch
>>> model = PointerLM(PointerLM.Config(width=8, layers=1, memory=2), vocabulary=10)
>>> output = model({"tokens": torch.tensor([[1, 2, 3]])})
>>> output.logits().exp().sum(2).allclose(torch.ones(1, 3)), output.carry["tokens"].tolist()
(True, [[2, 3]])
"""

import torch
from pydantic import PositiveInt
from torch import nn

from regard.attention import Attend, Dot, Mask, Past, window
from regard.core.protocols import Batch, Carry
from regard.layers.carry import Carrying, following, recent
from regard.models.language.rnn_lm import RNNLM, RecurrentState
from regard.outputs.pointer import PointerMixture

_SENTINEL = Mask(lambda query, key: key == 0, "sentinel()", by_row=False)
"""The first key, which every query may attend to."""


class PointerLM(Carrying):
    """An RNN that generates a word or points at a recent one."""

    class Config(RNNLM.Config):
        """What a recipe may choose: the RNN's settings, and this."""

        memory: PositiveInt = 100
        """How many of the last words it can point at: L."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.rnn = RNNLM(config, vocabulary)
        self.query = nn.Linear(config.width, config.width)
        self.sentinel = nn.Parameter(torch.empty(config.width))
        self.attend = Attend(Dot(config.width), kind="pointer", axes=("position", "sentinel"))
        self.mask = window(left=config.memory - 1, right=0) | _SENTINEL
        nn.init.uniform_(self.sentinel, -config.init_range, config.init_range)

    def forward(self, batch: Batch, carry: Carry | None = None) -> PointerMixture:
        """The next token after each, and the words that later tokens may point at."""
        tokens = batch["tokens"]
        states, state = self.rnn.read(tokens, RecurrentState.of(carry))
        known = following(carry, "states", states)  # [B,K,D]
        key_tokens = following(carry, "tokens", tokens)  # [B,K]
        sentinel = self.sentinel.expand(known.shape[0], 1, -1)
        keys = torch.cat((sentinel, known), dim=1)[:, None]  # [B,1,K,D]
        first = keys.shape[2] - tokens.shape[1]
        weights = self.attend.weights(
            self.query(states).tanh()[:, None],
            self.attend.remember(keys, keys),
            self.mask,
            Past(first=first),
        ).squeeze(1)  # [B,T,K]
        words = self.rnn.predict(self.rnn.drop(states))
        memory = self.config.memory
        handed = {"states": recent(known, memory), "tokens": recent(key_tokens, memory)}
        carried = {**state.carry(), **handed}
        return PointerMixture(words, weights[..., 0], weights[..., 1:], key_tokens, carry=carried)
