"""regard audit: does attention explain the predictions of a model?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import DataOption, DeviceOption, RunArgument


def audit(
    run: RunArgument,
    site: Annotated[
        str | None, typer.Option(help="The attention to judge, by its name in the model.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="One head of the site. Default: the mean of all heads.")
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="agreement, permutation, adversary, uniform, erasure or heads. Default: all of "
            "these. retrain, which trains some ten models, runs only if it is named."
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="train, validation or test. Default: the last that the data have.")
    ] = "",
    examples: Annotated[int, typer.Option(help="The largest number of examples to judge.")] = 200,
    epsilon: Annotated[
        float, typer.Option(help="The largest change of a prediction that counts as unchanged.")
    ] = 0.01,
    seed: Annotated[
        int, typer.Option(help="Seed of the sampled examples, the shuffles and the adversary.")
    ] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a report with pictures: .html.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each test.")
    ] = False,
    data: DataOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Test whether the attention of a trained model explains its predictions."""
    from regard.core.errors import UserError, choose, positive
    from regard.explain.audit import AuditConfig, audit_run, write_report
    from regard.explain.tests import AuditSettings
    from regard.runs.run import load
    from regard.train.display import display_for

    if output is not None and output.suffix != ".html":
        raise UserError(f"{output}: a report must end in .html")
    opened = load(run, device, data)
    splits = {str(each): each for each in opened.task.splits}
    config = AuditConfig(
        site=site,
        head=head,
        tests=tuple(test or ()),
        split=choose("split", split, splits) if split else None,
        examples=positive("examples", examples),
        settings=AuditSettings(epsilon=epsilon, seed=seed),
    )
    display = display_for()
    display.begin(0, None)
    try:
        result = audit_run(opened, config, lambda line: display.show(line, transient=True))
    finally:
        display.end()
    for verdict in result.verdicts:
        if as_json:
            figures = {
                name: {"mean": mean.mean, "low": _or_none(mean.low), "high": _or_none(mean.high)}
                for name, mean in verdict.figures.items()
            }
            fields = {
                "test": verdict.test,
                "supports": verdict.supports,
                "summary": verdict.summary,
                "figures": figures,
                "not_judged": dict(verdict.not_judged),
            }
            typer.echo(json.dumps(fields))
        else:
            typer.echo(f"{verdict.test}: {verdict.summary}")
    if not as_json:
        typer.echo(
            f"{result.summary} {result.examples} examples; {result.too_short} with fewer than two "
            "positions left out."
        )
    if output is not None:
        write_report(opened, result, output)
        typer.echo(f"{output}: the report", err=as_json)


def _or_none(value: float) -> float | None:
    """A number, or None for NaN, which JSON cannot hold."""
    return value if value == value else None
