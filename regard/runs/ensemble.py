"""Runs that translate together: their models as one, if they have the same vocabularies."""

from collections.abc import Sequence
from dataclasses import replace

from regard.core.errors import UserError
from regard.decode.ensemble import Ensemble
from regard.runs.run import Run


def together(run: Run, others: Sequence[Run]) -> Run:
    """The run with an ensemble of all models; its task and search are those of the first."""
    if not others:
        return run
    digests = [each.digest for each in run.task.tokenisers]
    for other in others:
        if [each.digest for each in other.task.tokenisers] != digests:
            raise UserError(
                f"{other.folder}: has other tokenisers than {run.folder}, so that their tokens "
                "cannot be compared; train both with the same data and vocabulary"
            )
    return replace(run, model=Ensemble([run.model, *(each.model for each in others)]).eval())
