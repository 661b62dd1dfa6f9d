"""ELMo against the authors' own weights and outputs, and against its equations."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.data.text.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    END_SENTENCE,
    END_WORD,
    character_ids,
)
from regard.layers.character_cnn import CharacterCNN, Highway
from regard.layers.projected_lstm import ProjectedLSTM
from regard.layers.scalar_mix import ScalarMix, normed
from regard.models.text.elmo import BEGIN, END, ELMo

FIXTURE = Path(os.environ.get("REGARD_DATA", "nowhere")) / "elmo-fixture"

SMALL = {"width": 4, "hidden": 6, "character_width": 3, "filters": ((1, 4), (3, 5))}


def built(**changes: object) -> ELMo:
    return ELMo(ELMo.Config(**{**SMALL, **changes}), vocabulary=11, characters=262).eval()


def from_tensorflow(gates: Tensor) -> Tensor:
    """From the order input, cell, forget, output along the last axis to ours."""
    into, new, keep, out = gates.chunk(4, dim=-1)
    return torch.cat((into, keep, new, out), dim=-1)


def authors_model() -> ELMo:
    """The model of the fixture with its weights."""
    h5py = pytest.importorskip("h5py", reason="reads the authors' HDF5 files")
    options = json.loads((FIXTURE / "options.json").read_text())
    characters, lstm = options["char_cnn"], options["lstm"]
    config = ELMo.Config(
        width=lstm["projection_dim"],
        hidden=lstm["dim"],
        layers=lstm["n_layers"],
        character_width=characters["embedding"]["dim"],
        filters=tuple(tuple(each) for each in characters["filters"]),
        highways=characters["n_highway"],
        activation=characters["activation"],
        cell_clip=lstm["cell_clip"],
        clip=lstm["proj_clip"],
        skip=lstm["use_skip_connections"],
        marks="two",
    )
    model = ELMo(config, vocabulary=5, characters=262).eval()
    with h5py.File(FIXTURE / "lm_weights.hdf5") as file, torch.no_grad():

        def taken(name: str) -> Tensor:
            return torch.from_numpy(file[name][...])

        words = model.words
        words.embed.weight[1:] = taken("char_embed")
        for place, each in enumerate(words.filters):
            each.weight.copy_(taken(f"CNN/W_cnn_{place}")[0].permute(2, 1, 0))
            each.bias.copy_(taken(f"CNN/b_cnn_{place}"))
        for place in range(characters["n_highway"]):
            for ours, theirs in (("transform", "transform"), ("gate", "carry")):
                layer = getattr(words.highway, ours)[place]
                layer.weight.copy_(taken(f"CNN_high_{place}/W_{theirs}").T)
                layer.bias.copy_(taken(f"CNN_high_{place}/b_{theirs}"))
        words.project.weight.copy_(taken("CNN_proj/W_proj").T)
        words.project.bias.copy_(taken("CNN_proj/b_proj"))
        for direction, stack in enumerate((model.ahead, model.behind)):
            for depth, cell in enumerate(stack):
                place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{depth}/LSTMCell"
                both = from_tensorflow(taken(f"{place}/W_0")).T  # [4C,2D]
                cell.read.weight.copy_(both[:, : config.width])
                cell.again.weight.copy_(both[:, config.width :])
                bias = from_tensorflow(taken(f"{place}/B"))
                bias[config.hidden : 2 * config.hidden] += 1.0  # added at run time there
                cell.read.bias.copy_(bias)
                cell.project.weight.copy_(taken(f"{place}/W_P_0").T)
    return model


def sentences_spelled(sentences: list[str]) -> tuple[Tensor, Tensor]:
    """Characters of some sentences between their marks, as the authors have them, and lengths."""
    marks = ([BEGIN_WORD, BEGIN_SENTENCE, END_WORD], [BEGIN_WORD, END_SENTENCE, END_WORD])
    rows = [[marks[0], *map(character_ids, each.split()), marks[1]] for each in sentences]
    characters = torch.zeros(len(rows), max(map(len, rows)), 50, dtype=torch.int64)
    for row, words in enumerate(rows):
        for place, word in enumerate(words):
            characters[row, place, : len(word)] = torch.tensor(word)
    return characters, torch.tensor([len(row) for row in rows])


def lstm_by_loops(cell: ProjectedLSTM, x: Tensor) -> Tensor:
    """c' = clip(σ(f) c + σ(i) tanh(g)), h' = clip(P (σ(o) tanh(c'))), word by word of one text."""
    size, width = cell.project.in_features, cell.project.out_features
    hidden, memory, states = torch.zeros(width), torch.zeros(size), []
    for word in x:
        gates = cell.read.weight @ word + cell.read.bias + cell.again.weight @ hidden
        into, keep, new, out = gates.split(size)
        memory = (torch.sigmoid(keep) * memory + torch.sigmoid(into) * new.tanh()).clamp(-3, 3)
        hidden = (cell.project.weight @ (torch.sigmoid(out) * memory.tanh())).clamp(-3, 3)
        states.append(hidden)
    return torch.stack(states)


@pytest.mark.parametrize("skip", [True, False])
def test_the_second_layer_alone_adds_what_it_reads(skip: bool) -> None:
    model = built(skip=skip)
    characters, lengths = sentences_spelled(["the film was good"])
    assert len(model.ahead) == 2
    with torch.no_grad():
        words = model.words(characters)[0]
        sides = []
        for cells, x in ((model.ahead, words), (model.behind, words.flip(0))):
            first = lstm_by_loops(cells[0], x)
            second = lstm_by_loops(cells[1], first) + (first if skip else 0.0)
            sides.append((x, first, second))
        back = [each.flip(0) for each in sides[1]]
        wanted = torch.stack([torch.cat(pair, 1) for pair in zip(sides[0], back, strict=True)])
        torch.testing.assert_close(model.read(characters, lengths)[0][:, 0], wanted)
        output = model({"characters": characters})
        ahead, behind = output.forward, output.backward
        for said, states in ((ahead, sides[0][2]), (behind, back[2])):
            torch.testing.assert_close(said.logits()[0], model.output(states))


@pytest.mark.skipif(not FIXTURE.exists(), reason="the ELMo fixture is not in REGARD_DATA")
def test_the_authors_outputs_come_out_with_the_state_carried_from_batch_to_batch() -> None:
    h5py = pytest.importorskip("h5py", reason="reads the authors' HDF5 files")
    model, states = authors_model(), None
    lists = json.loads((FIXTURE / "lm_embeddings_sentences.json").read_text())
    files = [h5py.File(FIXTURE / f"lm_embeddings_{place}.hdf5") for place in range(3)]
    with torch.no_grad():
        for batch in range(10):
            characters, lengths = sentences_spelled([each[batch] for each in lists])
            layers, states = model.read(characters, lengths, states)
            for row, file in enumerate(files):
                theirs = torch.from_numpy(file[str(batch)][...])  # [2,T,D]
                want = torch.cat((theirs[0], theirs[1]), dim=1)
                ours = layers[-1, row, 1 : int(lengths[row]) - 1]
                torch.testing.assert_close(ours, want, atol=1e-5, rtol=0)
    for file in files:
        file.close()


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def test_the_lstm_is_its_equations_step_by_step() -> None:
    cells = ProjectedLSTM(3, hidden=5, width=4, cell_clip=0.2, clip=0.05).double()
    x = 3 * torch.randn(2, 6, 3, dtype=torch.double)
    lengths = torch.tensor([6, 2])
    states, after = cells(x, lengths)
    for row in range(2):
        hidden, cell = torch.zeros(4).double(), torch.zeros(5).double()
        for time in range(int(lengths[row])):
            gates = cells.read.weight @ x[row, time] + cells.read.bias
            into, keep, new, out = (gates + cells.again.weight @ hidden).chunk(4)
            cell = (sigmoid(keep) * cell + sigmoid(into) * new.tanh()).clamp(-0.2, 0.2)
            hidden = (cells.project.weight @ (sigmoid(out) * cell.tanh())).clamp(-0.05, 0.05)
            torch.testing.assert_close(states[row, time], hidden)
        torch.testing.assert_close(after.hidden[row], hidden)
        torch.testing.assert_close(after.cell[row], cell)
    assert (states[1, 2:] == 0).all()
    assert states.abs().max() == 0.05, "the test clips"


def test_without_clipping_it_is_torchs_own() -> None:
    ours, theirs = ProjectedLSTM(3, hidden=5, width=4), torch.nn.LSTM(3, 5, proj_size=4)
    with torch.no_grad():
        for mine, other in (
            (ours.read.weight, theirs.weight_ih_l0),
            (ours.again.weight, theirs.weight_hh_l0),
            (ours.read.bias, theirs.bias_ih_l0),
            (ours.project.weight, theirs.weight_hr_l0),
        ):
            mine.copy_(other)
        theirs.bias_hh_l0.zero_()
    ours, theirs = ours.double(), theirs.double()  # floats are oneDNN's, which has no projections
    x = torch.randn(2, 6, 3).double()
    torch.testing.assert_close(ours(x)[0], theirs(x.transpose(0, 1))[0].transpose(0, 1))


def test_a_highway_carries_or_transforms() -> None:
    highway, x = Highway(4), torch.randn(3, 4)
    gate = sigmoid(x @ highway.gate[0].weight.T + highway.gate[0].bias)
    new = (x @ highway.transform[0].weight.T + highway.transform[0].bias).relu()
    torch.testing.assert_close(highway(x), gate * new + (1 - gate) * x)
    assert gate.mean() < 0.5, "to begin with, most is carried"


def test_characters_are_read_as_in_a_row_of_fifty_however_few_are_given() -> None:
    """The authors fill every word up; a window of filling is enough, or none where none fits."""
    cnn = CharacterCNN(4, filters=((1, 3), (4, 5)), character_width=3)
    for length in (1, 20, 45, 47, 48):
        word = torch.tensor(character_ids("a" * length))
        short = torch.zeros(1, 1, len(word), dtype=torch.int64)
        short[0, 0] = word
        filled = torch.full((1, 1, 50), 261)
        filled[0, 0, : len(word)] = word
        torch.testing.assert_close(cnn(short), cnn(filled))


def test_a_mix_is_a_weighted_sum_and_norms_look_at_real_words_alone() -> None:
    layers, lengths = torch.randn(3, 2, 4, 5), torch.tensor([4, 2])
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.0, 1.0, -1.0]))
        mix.gamma.fill_(2.0)
    shares = torch.tensor([0.0, 1.0, -1.0]).exp()
    shares = shares / shares.sum()
    want = 2 * sum(share * layer for share, layer in zip(shares, layers, strict=True))
    torch.testing.assert_close(mix(layers, lengths), want)
    other = layers.clone()
    other[:, 1, 2:] = 99.0
    torch.testing.assert_close(normed(layers, lengths), normed(other, lengths))
    real = torch.cat((layers[0, 0].flatten(), layers[0, 1, :2].flatten()))
    want = (layers[0, 0] - real.mean()) / real.std(correction=0)
    torch.testing.assert_close(normed(layers, lengths)[0, 0], want)
    assert normed(layers, torch.tensor([0, 0])).isfinite().all()


@pytest.mark.parametrize("skip", [True, False])
def test_features_are_of_the_sentence_alone(skip: bool) -> None:
    model = built(skip=skip)
    characters = torch.randint(1, 257, (2, 5, 6))
    lengths = torch.tensor([5, 2])
    characters[1, 2:] = 0
    layers = model.layers_of({"characters": characters, "lengths": lengths})
    alone = model.layers_of({"characters": characters[1:, :2], "lengths": lengths[1:]})
    torch.testing.assert_close(layers[:, 1, :2], alone[:, 0])
    assert (layers[:, 1, 2:] == 0).all()
    torch.testing.assert_close(
        model.features({"characters": characters, "lengths": lengths}), layers[-1]
    )
    half = model.config.width
    assert torch.equal(layers[0, ..., :half], layers[0, ..., half:]), "the words, twice"
    empty = {"characters": torch.zeros(1, 1, 1).long(), "lengths": torch.tensor([0])}
    assert (model.layers_of(empty) == 0).all()


def test_each_direction_knows_only_its_side() -> None:
    model = built()
    characters = torch.randint(1, 257, (1, 6, 5))
    output = model({"characters": characters})
    ahead, behind = output.forward, output.backward
    other = characters.clone()
    other[0, 3] = torch.randint(1, 257, (5,))
    output = model({"characters": other})
    changed = [each.logits() for each in (output.forward, output.backward)]
    torch.testing.assert_close(changed[0][:, :3], ahead.logits()[:, :3])
    torch.testing.assert_close(changed[1][:, 4:], behind.logits()[:, 4:])
    assert not torch.allclose(changed[0][:, 3:], ahead.logits()[:, 3:])
    assert not torch.allclose(changed[1][:, :4], behind.logits()[:, :4])


def test_the_forward_state_is_carried_from_window_to_window() -> None:
    model = built()
    characters = torch.randint(1, 257, (2, 6, 5))
    whole = model({"characters": characters})
    first = model({"characters": characters[:, :4]})
    second = model({"characters": characters[:, 4:]}, first.carry)
    both = torch.cat((first.forward.logits(), second.forward.logits()), dim=1)
    torch.testing.assert_close(both, whole.forward.logits())
    for name, last in whole.carry.items():
        torch.testing.assert_close(second.carry[name], last, atol=1e-6, rtol=1e-5)


def test_it_goes_on_from_a_trained_one() -> None:
    first = built()
    config = ELMo.Config(**SMALL, source="runs/first")
    second = ELMo(config, vocabulary=11, characters=262, source=first).eval()
    batch = {"characters": torch.randint(1, 257, (2, 4, 5))}
    assert torch.equal(first(batch).backward.logits(), second(batch).backward.logits())
    assert second.output.weight is not first.output.weight


def test_marks_are_the_numbers_of_characters() -> None:
    assert BEGIN == (BEGIN_WORD, BEGIN_SENTENCE, END_WORD)
    assert END == (BEGIN_WORD, END_SENTENCE, END_WORD)


def test_a_batch_without_characters_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match=r"ELMo reads spellings: set data\.characters = true"):
        built().features({"tokens": torch.ones(1, 2).long(), "lengths": torch.tensor([2])})
