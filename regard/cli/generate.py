"""regard generate: let a language model write."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import DeviceOption, RunArgument, WeightsOption

_ENOUGH = 200
"""Tokens to write if nothing is said and the model's context has no end."""

if TYPE_CHECKING:
    from regard.decode import GenerationRequest
    from regard.runs.run import Run as Opened


def generate_texts(
    run: RunArgument,
    prompt: Annotated[
        str | None, typer.Option(help="What to go on from; without it, each line of stdin.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="The most to write; else what the context holds, or 200.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Below 1 is safer, above is wilder; 0 is --greedy.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from so many likeliest tokens; 0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from this share of all chances.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Leave out tokens below this share.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 repeats less.")] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")] = False,
    samples: Annotated[int, typer.Option("--samples", "-n", help="Texts for each prompt.")] = 1,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same text.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a text.")] = False,
    weights: WeightsOption = "float32",
    device: DeviceOption = "auto",
) -> None:
    """Write on from a prompt, token by token as they come."""
    from regard.core.errors import UserError
    from regard.core.protocols import Bounded
    from regard.decode import GenerationRequest, Greedy, Sampling
    from regard.runs.run import load

    policy = (
        Greedy(repetition_penalty=repetition_penalty)
        if greedy or temperature == 0
        else Sampling(
            seed=seed,
            repetition_penalty=repetition_penalty,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
        )
    )
    opened = load(run, device, weights=weights)
    if max_tokens is None and not isinstance(opened.model, Bounded):
        max_tokens = _ENOUGH
    write = _write_json if as_json else _write_text
    for number, (where, each) in enumerate(_prompts(prompt)):
        request = GenerationRequest(
            policy=policy, max_tokens=max_tokens, samples=samples, first=number
        )
        try:
            write(opened, each, request, stop or [])
        except UserError as error:
            raise UserError(f"{where}{error}") from None


def _prompts(given: str | None) -> Iterator[tuple[str, str]]:
    """The one that was given, or every line of stdin as it comes; before it, where it stands."""
    from regard.data.text.files import STDIN, read_lines_if_any

    if given is not None:
        yield "", given
        return
    for number, (line,) in read_lines_if_any(STDIN):
        yield f"stdin:{number}: ", line


def _write_text(run: "Opened", prompt: str, request: "GenerationRequest", stops: list[str]) -> None:
    """One text is shown as it comes; of several, each when it is whole."""
    if request.samples == 1:
        before = prompt  # not shown of a prompt that is refused
        for piece in run.generate(prompt, request, stops):
            sys.stdout.write(before + piece.text)
            sys.stdout.flush()
            before = ""
        sys.stdout.write(before + "\n")
        return
    for text, _, _ in _collected(run, prompt, request, stops):
        typer.echo(prompt + text)


def _write_json(run: "Opened", prompt: str, request: "GenerationRequest", stops: list[str]) -> None:
    """The prompt, the text, how many tokens it has and why it ended."""
    for text, tokens, reason in _collected(run, prompt, request, stops):
        typer.echo(json.dumps({"prompt": prompt, "text": text, "tokens": tokens, "reason": reason}))


def _collected(
    run: "Opened", prompt: str, request: "GenerationRequest", stops: list[str]
) -> list[tuple[str, int, str | None]]:
    """Each sample whole: its text, its tokens, and why it ended."""
    texts = ["" for _ in range(request.samples)]
    counts = [0 for _ in texts]
    reasons: list[str | None] = [None for _ in texts]
    for piece in run.generate(prompt, request, stops):
        sample = piece.row.sample
        texts[sample] += piece.text
        counts[sample] += 1
        reasons[sample] = piece.reason or reasons[sample]
    return list(zip(texts, counts, reasons, strict=True))
