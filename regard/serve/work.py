"""Work: the jobs of requests that are answered whole."""

import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TypeVar

from regard.core.errors import UserError, choose
from regard.core.inputs import INPUTS, Input, Text, Written, kind_name, read_request, written_kind
from regard.core.protocols import Bounded
from regard.core.steps import between_steps
from regard.look import Payload
from regard.look.compact import as_json, pack
from regard.serve.errors import Refused, too_long, wrong
from regard.serve.job import Asking
from regard.serve.limits import Limits
from regard.serve.schema import Attention, Embed, InputRequest, Intervene, Part, Translate
from regard.serve.served_run import Served
from regard.tasks.abilities import Outputs, Prediction

_Found = TypeVar("_Found")
_Form = dict[str, object]
"""An answer as a client reads it."""

_MOST_WEIGHTS = 4_000_000
"""Of one head of each site that is shown: 12 layers of 512 tokens have 3.1 million."""


def translating(
    run: Served, request: Translate, limits: Limits
) -> Asking[Sequence[tuple[Input, bool]], list[_Form]]:
    """The job of a translation; inputs of several requests are searched together."""
    model, task = run.translator
    given = request.text if request.text is not None else request.input
    count = len(given) if isinstance(given, list) else 1
    if not 0 < count <= limits.lines:
        param = "input" if request.text is None else "text"
        raise wrong(param, f"{count} lines were given; 1 to {limits.lines} are allowed")
    if request.text is not None:
        texts = [request.text] if isinstance(request.text, str) else request.text
        inputs = [_text_input(run, each, limits) for each in texts]
    else:
        values = request.input if isinstance(request.input, list) else [request.input]
        inputs = [_file_input(run, each, request.kind, limits) for each in values]
    lengths = [_check_length(run, each, limits) for each in inputs]
    usual = task.beam
    width = request.beam or max(usual.width, request.n)
    if request.n > width:
        raise wrong("n", f"n={request.n} translations need a beam of as many, not {width}")
    groups = usual.groups if width == usual.width else 1
    beam = replace(usual, width=width, n_best=request.n, groups=groups)
    cost = (sum(lengths) + len(lengths)) * width
    if cost > limits.work:
        raise wrong(
            "beam" if request.beam else "text",
            f"{sum(lengths):,} tokens searched with a beam of {width} are too much work; tokens "
            f"times beam may be {limits.work:,}: give fewer or shorter lines, or a smaller beam",
            code="too_much_work",
        )

    def work(questions: Sequence[Sequence[tuple[Input, bool]]]) -> list[list[_Form]]:
        every = [each for question in questions for each, _ in question]
        done = iter(task.translate(model, every, beam=beam))
        return [[translation_form(next(done), cut) for _, cut in lines] for lines in questions]

    lines = tuple((each, is_cut(run, n)) for each, n in zip(inputs, lengths, strict=True))
    return Asking(run.name, ("translate", beam), lines, work, work_size=cost)


def predicting(run: Served, request: InputRequest, limits: Limits) -> Asking[Input, _Form]:
    """The job of a prediction."""
    given, length = _input_of(run, request, limits)
    cut = is_cut(run, length)
    work = _each(lambda each: prediction_form(run.predict(each, ()), cut))
    return Asking(run.name, object(), given, work, work_size=length)


def intervening(
    run: Served, request: Intervene, limits: Limits
) -> Asking[Input, tuple[_Form, _Form]]:
    """The job of an intervention: predictions without the changes, and with them."""
    given, length = _input_of(run, request, limits)
    changes = [edit.change() for edit in request.edits]

    cut = is_cut(run, length)

    def both(each: Input) -> tuple[_Form, _Form]:
        before, after = run.predict(each, ()), run.predict(each, changes)
        return prediction_form(before, cut), prediction_form(after, cut)

    return Asking(run.name, object(), given, _each(both), work_size=2 * length)


@dataclass(frozen=True)
class ShownAttention:
    """The attention weights for an input."""

    title: str
    payloads: tuple[Payload, ...]


def showing(run: Served, request: Attention, limits: Limits) -> Asking[Input, ShownAttention]:
    """The job of showing attention weights."""
    given, length = _input_of(run, request, limits)
    if length**2 * max(1, len(run.sites)) > _MOST_WEIGHTS and request.sites is None:
        raise wrong(
            "sites",
            f"{len(run.sites)} sites that attend to {length:,} tokens are too much to show at "
            "once: name some sites, or give a shorter text",
            code="too_much_to_show",
        )
    if length**2 > _MOST_WEIGHTS:
        raise wrong("text", f"{length:,} tokens are too many to show", code="too_much_to_show")
    sites, heads = request.sites, request.heads
    changes = [edit.change() for edit in request.edits]

    def show(each: Input) -> ShownAttention:
        return ShownAttention(each.title, run.look(each, sites, heads, changes))

    return Asking(run.name, object(), given, _each(show), work_size=length, large=True)


def embedding(run: Served, request: Embed, limits: Limits) -> Asking[Sequence[str], _Form]:
    """The job of vectors for texts, in OpenAI's form."""
    texts = [request.input] if isinstance(request.input, str) else request.input
    embed, _ = run.embed, run.trained
    if embed is None:
        raise run.unsupported("embeddings")
    if not 0 < len(texts) <= limits.lines:
        raise wrong("input", f"{len(texts)} texts were given; 1 to {limits.lines} are allowed")
    if not all(each.strip() for each in texts):
        raise wrong("input", "a text is empty", code="empty_text")
    lengths = [_check_length(run, _text_input(run, each, limits), limits) for each in texts]
    in_base64 = request.encoding_format == "base64"

    def work(questions: Sequence[Sequence[str]]) -> list[_Form]:
        return [made([embedded(each) for each in some]) for some in questions]

    def embedded(text: str) -> list[float]:
        between_steps()
        try:
            return embed([text])[0]
        except UserError as error:
            raise wrong("model", str(error), code="wrong_task") from None

    def made(vectors: Sequence[Sequence[float]]) -> _Form:
        rows = [
            b64encode(struct.pack(f"<{len(each)}f", *each)).decode() if in_base64 else list(each)
            for each in vectors
        ]
        data = [
            {"object": "embedding", "index": number, "embedding": row}
            for number, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}
        return {"object": "list", "data": data, "model": request.model, "usage": usage}

    return Asking(run.name, object(), texts, work, work_size=sum(lengths))


def _each(answer: Callable[[Input], _Found]) -> Callable[[Sequence[Input]], list[_Found]]:
    """Inputs answered one by one."""

    def work(inputs: Sequence[Input]) -> list[_Found]:
        found = []
        for each in inputs:
            between_steps()
            found.append(answer(each))
        return found

    return work


def is_cut(run: Served, length: int) -> bool:
    """Does the model of a run read only the beginning of an input of so many tokens?"""
    most = run.opened.read_limit
    return most is not None and length > most


_MOST_PLAIN = 1_000_000
"""Attention weights that are given as plain numbers."""


def attention_form(found: ShownAttention, form: str) -> str | bytes:
    """Attention weights as a client reads them."""
    if form == "packed":
        return as_json(pack(found.payloads, title=found.title))
    count = sum(each.weights.size for each in found.payloads)
    if count > _MOST_PLAIN:
        raise wrong(
            "form",
            f"{count:,} weights are too many for plain numbers, at most {_MOST_PLAIN:,}: name "
            "sites and heads, or take the packed form",
            code="too_much_to_show",
        )
    return f'{{"payloads":[{",".join(each.to_json() for each in found.payloads)}]}}'


def _input_of(run: Served, request: InputRequest, limits: Limits) -> tuple[Input, int]:
    """The input of a request and its length; it must not be empty, nor too long."""
    model = run.trained
    if request.text is not None:
        given = _text_input(run, request.text, limits)
    else:
        given = _file_input(run, request.input, request.kind, limits)
    if isinstance(given, Written) and not given.title.strip():
        raise wrong("text", "the text is empty", code="empty_text")
    bound = model.context_limit if isinstance(model, Bounded) else limits.tokens
    return given, _check_length(run, given, replace(limits, tokens=min(bound, limits.tokens)))


def _text_input(run: Served, text: str, limits: Limits) -> Input:
    """The `text` of a request. It is never the path of a file."""
    if len(text) > limits.characters:
        raise too_long(len(text), limits.characters, "text")
    kind = written_kind(run.opened.takes, text)
    if kind is None:
        raise _wrong_kind(run, "text", Text)
    try:
        return read_request(kind, text, "text", replace(limits.files, characters=limits.characters))
    except UserError as error:
        raise wrong("text", str(error), code="wrong_input") from None


def _file_input(run: Served, value: object, kind: str | None, limits: Limits) -> Input:
    """The `input` of a request: a file in base 64, or the parts of several inputs."""
    takes = {kind_name(each): each for each in run.opened.takes}
    if not takes:
        raise run.unsupported("inputs")
    name = next(iter(takes)) if kind is None else kind
    if name not in takes:
        raise _wrong_kind(run, "kind", choose("kind of input", name, {**INPUTS, **takes}))
    if isinstance(value, list):
        value = [each.model_dump() if isinstance(each, Part) else each for each in value]
    try:
        return read_request(takes[name], value, "input", limits.files)
    except UserError as error:
        raise wrong("input", str(error), code="wrong_input") from None


def _wrong_kind(run: Served, param: str, kind: type[Input]) -> Refused:
    """The answer to an input of a kind that the task does not take."""
    allowed = " or ".join(each.name for each in run.opened.takes) or "no inputs"
    message = f"task {run.task} takes {allowed}, and was given {kind.name}"
    return wrong(param, message, code="wrong_input")


def _check_length(run: Served, given: Input, limits: Limits) -> int:
    """How many tokens an input has, if these are not too many."""
    length = run.opened.length(given)
    if length > limits.tokens:
        raise wrong(
            "text" if isinstance(given, Written) else "input",
            f"the text has {length:,} tokens; at most {limits.tokens:,} can be read",
            code="context_length_exceeded",
        )
    return length


def translation_form(outputs: Outputs, cut: bool) -> _Form:
    """A translation as a client reads it; `cut` if only the beginning of the line was read."""
    return {
        "text": outputs.text,
        "score": score_of(outputs),
        "others": [output.text for output in outputs.outputs[1:]],
        "truncated": cut,
    }


def score_of(outputs: Outputs) -> float | None:
    """The score of the best output; None for an empty text."""
    found = outputs.outputs[0].hypothesis.score if outputs.outputs else None
    return found if found is None or isfinite(found) else None


def prediction_form(prediction: Prediction, cut: bool) -> _Form:
    """A prediction as a client reads it; `cut` if only the beginning of the input was read."""
    return {
        "truncated": cut,
        "tokens": list(prediction.tokens),
        "text": prediction.text or None,
        "choices": [{"text": c.text, "probability": c.probability} for c in prediction.choices],
        "labels": list(prediction.labels),
    }
