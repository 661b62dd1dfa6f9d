"""Vectors of sentences for openai's client, pooled as the folder has it."""

import json
from pathlib import Path

import openai
import pytest
import torch

from regard.core.inputs import Text
from regard.inference.predict import served
from regard.runs.pretrained import from_pretrained, import_run, sentence_vectors
from regard.runs.run import load
from tests.hub.folders import bert_folder
from tests.serve.conftest import Start

TEXTS = ["the cat sat on the mat", "a good dog !", "bad cats"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("embed") / "bert", "BertModel")


@pytest.mark.parametrize("mode", ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"])
def test_the_pooling_of_the_folder_is_kept_by_its_run(
    mode: str, folder: Path, tmp_path: Path
) -> None:
    import transformers

    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    config = {"word_embedding_dimension": 8} | {f"pooling_mode_{m}": m == mode for m in modes}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    run = from_pretrained(folder, device="cpu")
    import_run(run, tmp_path / "run", tmp_path)
    found = sentence_vectors(load(tmp_path / "run", "cpu"), TEXTS)
    model = transformers.BertModel.from_pretrained(folder).eval()
    for text, vector in zip(TEXTS, found, strict=True):
        ids = run.task.encode([Text(text)])["tokens"]  # type: ignore[attr-defined]
        with torch.no_grad():
            states = model(ids).last_hidden_state[0]
        expected = {
            "cls_token": states[0],
            "mean_tokens": states.mean(0),
            "max_tokens": states.amax(0),
            "mean_sqrt_len_tokens": states.sum(0) / len(states) ** 0.5,
        }[mode]
        assert torch.allclose(vector, expected, atol=1e-5)


def test_openais_client_gets_vectors(folder: Path, tmp_path: Path, start: Start) -> None:
    for each in sorted(folder.glob("1_Pooling/*")):
        each.unlink()
    run = import_run(from_pretrained(folder, device="cpu"), tmp_path / "run", tmp_path)
    live = start(other=served(run))
    ai = openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)
    expected = sentence_vectors(run, TEXTS)
    for form in (openai.omit, "float"):  # by itself, the client asks for base 64
        made = ai.embeddings.create(model="run", input=TEXTS, encoding_format=form)
        assert [each.index for each in made.data] == [0, 1, 2]
        vectors = torch.tensor([each.embedding for each in made.data])
        assert torch.allclose(vectors, expected, atol=1e-6)
    assert ai.embeddings.create(model="run", input=TEXTS[0]).usage.prompt_tokens == 6
    with pytest.raises(openai.BadRequestError, match="a text is empty"):
        ai.embeddings.create(model="run", input=["a", " "])
