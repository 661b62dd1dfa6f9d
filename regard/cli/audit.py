"""regard audit: does where a model looks explain what it says?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Data, Device, Run


def audit(
    run: Run,
    site: Annotated[
        str | None, typer.Option(help="The attention to judge, by its name in the model.")
    ] = None,
    head: Annotated[int | None, typer.Option(help="One head; else the mean of all.")] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="agreement, permutation, adversary, uniform, erasure or heads; else all. Only if "
            "named: trained, which trains some ten models."
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="train, validation or test; else the last of them that there is.")
    ] = "",
    texts: Annotated[int, typer.Option(help="The most texts to judge.")] = 200,
    epsilon: Annotated[
        float, typer.Option(help="The change of a prediction that counts as none.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Of texts, shuffles and the adversary.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a report with pictures: .html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a test.")] = False,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Judge a trained model's attention by what happens when it is changed, and say it plainly."""
    from regard.core.errors import UserError, choose, positive
    from regard.explain.audit import Asked, audited, write_report
    from regard.explain.explanation import Settings
    from regard.runs.run import load
    from regard.train.display import display_for

    if output is not None and output.suffix != ".html":
        raise UserError(f"{output}: a report must end in .html")
    opened = load(run, device, data)
    splits = {str(each): each for each in opened.task.splits}
    asked = Asked(
        site=site,
        head=head,
        tests=tuple(test or ()),
        split=choose("split", split, splits) if split else None,
        texts=positive("texts", texts),
        settings=Settings(epsilon=epsilon, seed=seed),
    )
    shown = display_for()
    shown.begin(0, None)
    try:
        found = audited(opened, asked, lambda text: shown.show(text, transient=True))
    finally:
        shown.end()
    for each in found.verdicts:
        if as_json:
            figures = {
                name: {"mean": mean.mean, "low": _known(mean.low), "high": _known(mean.high)}
                for name, mean in each.figures.items()
            }
            said = {"test": each.test, "explains": each.explains, "says": each.says}
            typer.echo(json.dumps({**said, "figures": figures, "without": dict(each.without)}))
        else:
            typer.echo(f"{each.test}: {each.says}")
    if not as_json:
        typer.echo(f"{found.says} {found.texts} texts; {found.single} of one token left out.")
    if output is not None:
        write_report(opened, found, output)
        typer.echo(f"{output}: the report", err=as_json)


def _known(value: float) -> float | None:
    """A number, or nothing: JSON has no other word for what is not one."""
    return value if value == value else None
