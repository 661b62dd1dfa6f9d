"""regard serve: runs behind an HTTP API and a page."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import DeviceOption, WeightsOption

_MISSING = "serving needs FastAPI and uvicorn: pip install 'regard[serve]'"


def serve(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, such as runs/dates.")],
    host: Annotated[str, typer.Option(help="The address; others than this machine need a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any that is free.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="REGARD_API_KEY", help="What clients must know; better in the env."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name by which clients call the server.")
    ] = None,
    special: Annotated[
        bool,
        typer.Option("--special", help="Let prompts spell special tokens, such as <|endoftext|>."),
    ] = False,
    weights: WeightsOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Serve runs: a page to look into them, OpenAI's completions, translation, attention."""
    from dataclasses import replace

    from regard import __version__
    from regard.core.errors import UserError
    from regard.serve.limits import check_address

    check_address(host, api_key)
    try:
        from regard.serve.server import server
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("fastapi", "uvicorn", "h11", "starlette"):
            raise UserError(_MISSING) from None
        raise
    from regard.inference.predict import served
    from regard.runs.run import load, open_run

    opened = []
    for folder in runs:
        trained = (folder / "model.safetensors").exists()
        run = load(folder, device, weights=weights) if trained else open_run(folder, device=device)
        opened.append(replace(served(run, trained=trained), special=special))
        if not trained:
            typer.echo(f"{folder}: not trained yet, so there are only its curves to see", err=True)
    names = [each.name for each in opened]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two runs are called {name!r}: rename the folder of one of them")
    made = server(
        opened,
        host=host,
        port=port,
        key=api_key,
        hosts=allow_host or (),
        version=__version__,
    )
    made.listen(lambda url: typer.echo(f"{', '.join(names)} at {url} (Ctrl-C ends it)"))
