"""The command line: one small file for each verb.

Verbs import what they need when they run, so that `regard --help` answers at once.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated

import typer

from regard import __version__
from regard.cli import (
    align,
    audit,
    caption,
    compare,
    cost,
    data,
    doctor,
    evaluate,
    export,
    generate,
    heads,
    import_folder,
    lectures,
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
    invoke_without_command=True,
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
app.command("caption")(caption.caption_images)
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
app.command("lectures")(lectures.lectures)
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
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version of regard.")
    ] = False,
) -> None:
    """Allow the plugins that the command line names."""
    if version:
        typer.echo(f"regard {__version__}")
        raise typer.Exit
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
        try:
            app(plugins_first(sys.argv[1:]))
        finally:
            sys.stdout.flush()
    except UserError as error:
        _end(str(error))
    except UnicodeEncodeError as error:
        unknown = error.object[error.start : error.end]
        _end(
            f"this output cannot hold {unknown!a}, since its encoding is {error.encoding}; set "
            "PYTHONIOENCODING=utf-8"
        )
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        _end(f"{error.filename or 'stdout'}: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _end(problem: str) -> None:
    """End with one line on stderr; what is left for stdout is dropped."""
    print(f"regard: {problem}".encode(errors="backslashreplace").decode(), file=sys.stderr)
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(BAD_INPUT)
