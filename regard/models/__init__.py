"""Every model, one readable file each. A model knows nothing of loss, optimiser, files or text."""

from torch import nn

from regard.models.gpt import GPT
from regard.models.rnn_lm import RNNLM

MODELS: dict[str, type[nn.Module]] = {
    "rnn_lm": RNNLM,
    "gpt": GPT,
}
"""Every model by the name a recipe calls it."""
