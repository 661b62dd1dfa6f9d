"""The command line: one small file for each verb.

Verbs import what they need when they run, so that `regard --help` answers at once.
"""

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer

from regard.cli import (
    align,
    audit,
    compare,
    cost,
    data,
    doctor,
    evaluate,
    export,
    generate,
    heads,
    import_folder,
    look,
    predict,
    quantise,
    recipe,
    report,
    reproduce,
    serve,
    train,
    translate,
    words,
    zoo,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention models: train one on your data, look inside it, question it, serve it.",
)
app.command("train")(train.train_recipe)
app.command("resume")(train.resume)
app.command("eval")(evaluate.evaluate_run)
app.command("generate")(generate.generate_texts)
app.command("translate")(translate.translate_lines)
app.command("align")(align.align)
app.command("predict")(predict.predict)
app.command("report")(report.report)
app.command("look")(look.look)
app.command("serve")(serve.serve)
app.command("neighbours")(words.neighbours)
app.command("analogy")(words.analogy)
app.command("import")(import_folder.import_folder)
app.command("export")(export.export_run)
app.command("quantise")(quantise.quantise)
app.command("vectors")(words.vectors)
app.command("audit")(audit.audit)
app.command("heads")(heads.rank_heads)
app.command("compare")(compare.compare)
app.command("cost")(cost.cost)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(recipe.recipes, name="recipe")
app.add_typer(data.data_verbs, name="data")
app.command("zoo")(zoo.zoo)
app.command("doctor")(doctor.doctor)


@app.callback()
def accept_plugins(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:CLASS",
            help="A model, task, score or weighing of your own that a run was made with; also "
            "after the verb, and repeatedly.",
        ),
    ] = None,
) -> None:
    """Allow the plugins that the command line names."""
    if plugin:
        from regard.runs.plugins import allow_plugin

        for each in plugin:
            allow_plugin(each)


def plugins_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with every `--plugin` before the verb, where typer takes it.

    >>> plugins_first(["eval", "runs/x", "--plugin", "mine.py:A", "--plugin=b:C"])
    ['--plugin', 'mine.py:A', '--plugin=b:C', 'eval', 'runs/x']
    """
    first: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for each in waiting:
        if each == "--plugin":
            first += [each, *islice(waiting, 1)]
        else:
            (first if each.startswith("--plugin=") else rest).append(each)
    return [*first, *rest]


BAD_INPUT = 2
"""The exit code of anything that the user can put right."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> None:
    """Run a verb; what the user can put right is one line on stderr, not a traceback."""
    from regard.core.allocation import keep_freed_memory
    from regard.core.errors import UserError

    keep_freed_memory()
    try:
        app(plugins_first(sys.argv[1:]))
    except UserError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
