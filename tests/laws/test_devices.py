"""Laws of devices: tensors are made where those are that they meet."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.models import MODELS
from regard.outputs.output import ModelOutput
from tests.laws import test_captioners as captioners
from tests.laws import test_classifiers as classifiers
from tests.laws import test_language_models as language_models
from tests.laws import test_memory_machines as machines
from tests.laws import test_readers as readers
from tests.laws import translators
from tests.laws.elsewhere import Device, Elsewhere, moved, sent

PACKAGE = Path(__file__).parents[2] / "regard"
FOLDERS = ("attention", "kernels", "layers", "outputs", "models", "decode")
FACTORIES = {
    "arange", "as_tensor", "asarray", "empty", "eye", "frombuffer", "from_numpy", "full",
    "linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randperm", "range",
    "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip
"""Functions of torch that make a tensor of no other; on the CPU, if nothing else is said."""

ON_THE_CPU = {
    "attention/edit.py permuted.edit": "numbers of a generator on the CPU, sent on at once",
    "models/language/clockwork_rnn.py ClockworkRNN.forward": "a count, read back as a number",
    "decode/policy.py Sampler._more": "bytes, sent on at once",
    "decode/top_k.py _top_of_parts": "a form for the CPU alone",
}
"""Where a tensor is made on the CPU, and why. A module is built there, in `__init__`, and moved."""


def made_on_the_cpu(tree: ast.AST, within: tuple[str, ...] = ()) -> Iterator[str]:
    """The functions with a factory that is not told a device."""
    if isinstance(tree, ast.FunctionDef | ast.ClassDef):
        within = (*within, tree.name)
    if "__init__" in within:
        return
    match tree:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), keywords=given):
            if name in FACTORIES and "device" not in {each.arg for each in given}:
                yield ".".join(within)
    for child in ast.iter_child_nodes(tree):
        yield from made_on_the_cpu(child, within)


def test_every_tensor_is_made_on_a_device_that_is_named() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()} {where}"
        for folder in FOLDERS
        for path in (PACKAGE / folder).rglob("*.py")
        for where in made_on_the_cpu(ast.parse(path.read_text()))
    }
    assert found == set(ON_THE_CPU)


def test_a_tensor_without_a_device_is_seen() -> None:
    code = "class A:\n def __init__(self): torch.ones(2)\n def f(self): return g(torch.ones(2))"
    assert list(made_on_the_cpu(ast.parse(code))) == ["A.f"]
    assert not list(made_on_the_cpu(ast.parse("torch.ones(2, device=x.device)")))


Made = tuple[nn.Module, tuple[object, ...]]


def classifier(row: str) -> Callable[[], Made]:
    return lambda: (classifiers.built(row), (classifiers.batch(),))


def reader(row: str) -> Callable[[], Made]:
    return lambda: (readers.built(row), (readers.batch(row),))


def language_model(name: str) -> Callable[[], Made]:
    return lambda: (language_models.made(name), ({"tokens": language_models.text()},))


def translator(label: str) -> Callable[[], Made]:
    return lambda: (translators.made(label), (translators.texts(),))


def captioner(label: str) -> Callable[[], Made]:
    return lambda: (captioners.built(label), (captioners.batch(),))


def word_vectors(name: str, **given: int) -> Callable[[], Made]:
    def made() -> Made:
        batch = {
            "words": torch.tensor([[5, 6, 7, 8], [8, 5, 5, 6]]),
            "noise": torch.tensor([[4, 4], [6, 8]]),
            "near": torch.rand(2, 2, 4) < 0.7,
            "grams": torch.randint(20, (2, 4, 3)),
            "rows": torch.tensor([5, 6]),
            "columns": torch.tensor([7, 7]),
            "counts": torch.tensor([1.0, 9.0]),
        }
        return MODELS[name](MODELS[name].Config(width=4), words=9, **given), (batch,)

    return made


def elmo() -> Made:
    config = MODELS["elmo"].Config(width=4, hidden=6, character_width=3, filters=((1, 4), (2, 4)))
    return MODELS["elmo"](config, vocabulary=10, characters=262), (
        {"characters": torch.randint(262, (2, 5, 4))},
    )


def bert(name: str) -> Callable[[], Made]:
    def made() -> Made:
        config = MODELS[name].Config(encoder=classifiers.SMALL_BERT)
        tokens, lengths = torch.randint(4, 12, (2, 6)), torch.tensor([6, 3])
        batch = {"tokens": tokens, "lengths": lengths, "segments": (tokens > 8).long()}
        return MODELS[name](config, vocabulary=12), (batch,)

    return made


def machine(name: str) -> Callable[[], Made]:
    def made() -> Made:
        batch = {key: each.float() for key, each in machines.batch().items() if key != "scored"}
        return machines.made(name), ({**batch, "scored": machines.batch()["scored"]},)

    return made


ROWS: dict[str, Callable[[], Made]] = {
    **{row: classifier(row) for row in classifiers.ROWS},
    **{name: language_model(name) for name in language_models.SMALL},
    **{label: translator(label) for label in translators.ROWS},
    **{row: reader(row) for row in readers.ROWS},
    **{label: captioner(label) for label in captioners.ROWS},
    **{name: word_vectors(name) for name in ("skip_gram", "cbow", "glove")},
    "subword_skip_gram": word_vectors("subword_skip_gram", buckets=20),
    **{name: machine(name) for name in machines.NAMES},
    "elmo": elmo,
    "bert": bert("bert"),
    "bert_reader": bert("bert_reader"),
}
"""Every model, small, and what it reads."""


def tensors_of(result: object) -> Iterator[Tensor]:
    """All tensors of a model's answer, and what can be computed from it."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for each in result.values():
            yield from tensors_of(each)
    elif isinstance(result, tuple | list):
        for each in result:
            yield from tensors_of(each)
    elif isinstance(result, ModelOutput):
        for each in fields(result):
            yield from tensors_of(getattr(result, each.name))
        for name in ("logits", "probabilities", "best"):
            if callable(getattr(result, name, None)) and not hasattr(result, "last"):
                yield from tensors_of(getattr(result, name)())


def test_every_model_is_in_this_table() -> None:
    assert set(MODELS) <= set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_every_model_runs_on_another_device_as_on_the_cpu(row: str) -> None:
    torch.manual_seed(5)
    model, given = ROWS[row]()
    model.eval()
    with torch.no_grad():
        torch.manual_seed(6)
        expected = list(tensors_of(model(*given)))
        away = [sent(each) if isinstance(each, Mapping) else Elsewhere(each) for each in given]
        moved(model)
        torch.manual_seed(6)
        with Device():
            found = list(tensors_of(model(*away)))
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        held = one.held if isinstance(one, Elsewhere) else one
        torch.testing.assert_close(held, other, atol=1e-5, rtol=1e-5)
    assert any(isinstance(each, Elsewhere) for each in found)


STEPPING = [*language_models.SMALL, *translators.ROWS]
"""Models that write token by token."""


@pytest.mark.parametrize("row", STEPPING)
def test_every_model_steps_on_another_device_as_on_the_cpu(row: str) -> None:
    torch.manual_seed(5)
    model, (given,) = ROWS[row]()
    model.eval()
    batch = given
    following = torch.randint(4, language_models.V, (2, len(batch["tokens"])))

    def logits(batch: Mapping[str, Tensor], tokens: Tensor) -> list[Tensor]:
        torch.manual_seed(6)
        state, found = model.start(batch), []
        for each in tokens.unbind(0):
            one, state = model.step(each, state)
            found.append(one)
        return found

    with torch.no_grad():
        expected = logits(batch, following)
        moved(model)
        with Device():
            found = logits(sent(batch), Elsewhere(following))
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, Elsewhere)
        torch.testing.assert_close(one.held, other, atol=1e-5, rtol=1e-5)


def test_a_tensor_on_the_wrong_device_is_refused() -> None:
    with Device(), torch.no_grad():
        there = Elsewhere(torch.ones(3))
        assert (there + torch.ones(3, device=there.device)).tolist() == [2.0, 2.0, 2.0]
        assert (there + torch.tensor(1.0)).tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(RuntimeError, match="elsewhere"):
            there + torch.ones(3)
