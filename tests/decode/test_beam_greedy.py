"""A beam of one is greedy search, as everything else here writes greedily."""

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from regard.decode import (
    BeamSearch,
    GeneratedText,
    GenerationRequest,
    Greedy,
    SampleId,
    Stream,
    collect_texts,
    search,
)
from regard.models.language.gpt import GPT
from regard.models.language.rnn_lm import RNNLM
from tests.decode.translators import BOS, EOS, NUMBERS, Translator, beam, sources, tokens_of


def models() -> dict[str, Callable[[], GPT | RNNLM]]:
    wide = RNNLM.Config(cell="lstm", width=12, layers=2, dropout=0.0, init_range=2.0)
    loose = GPT.Config(width=16, heads=2, layers=2, context=40, tied=False)
    return {
        "lstm": lambda: RNNLM(wide, 30).eval(),
        "gpt": lambda: GPT(loose, 30).eval(),
    }


@pytest.fixture(params=models())
def model(request: pytest.FixtureRequest) -> GPT | RNNLM:
    torch.manual_seed(3)
    built = models()[request.param]()
    with torch.no_grad():  # or every text would be one token repeated
        for parameter in built.parameters():
            parameter.mul_(4.0)
    return built


def test_a_beam_of_one_is_greedy(model: GPT | RNNLM) -> None:
    prompts = torch.randint(2, 30, (12, 4))
    prompts[:, -1] = BOS

    def written(**stop: set[int]) -> list[GeneratedText]:
        request = GenerationRequest(policy=Greedy(), max_tokens=15, alternatives=0, **stop)
        texts = collect_texts(Stream(model, {"tokens": prompts}, prompts, request))
        return [texts[SampleId(number)] for number in range(len(prompts))]

    endless = [set(text.tokens) for text in written()]
    (eos, ending), *_ = Counter(token for text in endless for token in text).most_common()[1:]
    assert 2 < ending < 12, "a test that could fail"
    found = search(model, {"tokens": prompts}, beam(width=1, max_length=15, eos=eos))
    for text, (best,) in zip(written(stop={eos}), found, strict=True):
        if text.reason == "length":
            assert best.tokens == text.tokens
        else:
            assert [*best.tokens, eos] == text.tokens
            assert text.log_probabilities is not None
            assert best.log_probability == pytest.approx(sum(text.log_probabilities), abs=1e-4)


def test_the_log_probability_is_that_of_a_whole_pass(model: GPT | RNNLM) -> None:
    prompts = torch.randint(2, 30, (3, 4))
    prompts[:, -1] = BOS
    found = search(model, {"tokens": prompts}, beam(width=5, n_best=5, max_length=9))
    for prompt, hypotheses in zip(prompts.tolist(), found, strict=True):
        for each in hypotheses:
            written = torch.tensor([*each.tokens, EOS])
            with torch.no_grad():
                prediction = model({"tokens": torch.tensor([[*prompt, *each.tokens]])})
                logs = prediction.logits()[0, 3:].log_softmax(-1)
            total = float(logs.gather(1, written[:, None]).sum())
            assert each.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("others", [{}, {"no_repeat": 2, "min_length": 3}])
def test_greedy_is_what_a_search_of_width_one_finds(others: dict[str, int]) -> None:
    chosen = beam(width=1, max_length=9, early=True, **others)
    prefixes = [[2, 3] if number % 2 else [] for number in NUMBERS]
    given = sources(NUMBERS)
    short = search(Translator(), given, chosen, prefixes=prefixes)
    steps = list(BeamSearch(Translator(), given, chosen, prefixes=prefixes))
    long = dict(found for step in steps for found in step)
    for number, (best,) in enumerate(short):
        (other,) = long[number]
        assert best.tokens == other.tokens
        assert best.score == pytest.approx(other.score, abs=1e-5)


def test_greedy_without_scores_writes_the_same() -> None:
    given = sources(NUMBERS)
    full = search(Translator(), given, beam(width=1, max_length=9))
    bare = search(Translator(), given, beam(width=1, max_length=9, scores=False))
    assert tokens_of(bare) == tokens_of(full)
    assert all(math.isnan(best.score) and math.isnan(best.log_probability) for (best,) in bare)
