"""Language modelling: predict the next token of a text."""

from math import exp, log

from torch import nn

from regard.core.protocols import Batch, Carry, Loss

IGNORED = -100


class LanguageModelling:
    """-log p of each next token, summed; batches have `tokens` and `targets`."""

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        """The loss of a batch that goes on where the batch before it ended."""
        prediction, carry = model(batch["tokens"], carry)
        smoothing = self.smoothing if model.training else 0.0
        targets = batch["targets"]
        return Loss(
            total=prediction.surprise(targets, smoothing=smoothing),
            items=int((targets != IGNORED).sum()),
            carry=carry,
        )


def metrics(loss: float) -> dict[str, float]:
    """What people call the mean loss per token, in nats.

    >>> {name: round(value, 3) for name, value in metrics(4.0).items()}
    {'loss': 4.0, 'perplexity': 54.598, 'bits': 5.771}
    """
    return {"loss": loss, "perplexity": exp(loss), "bits": loss / log(2)}
