"""Files of checkpoints: every form gives the same tensors, and what is broken is told."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.hub import FAMILIES, read_checkpoint, write_checkpoint
from regard.hub.family import ModelToWrite
from regard.hub.keys import TensorRow, TensorTable
from regard.hub.store import read_tensors
from tests.hub.decoder_folders import gpt2_folder
from tests.hub.folders import bert_folder, changed

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bert_folder(tmp_path / "bert")


def refused(folder: Path, match: str) -> None:
    """The folder is refused in one line that names what is wrong."""
    with pytest.raises(UserError, match=match) as told:
        read_checkpoint(folder)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 500 + len(str(folder))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def as_bin(folder: Path, tensors: object) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


def test_shards_and_bin_files_hold_the_same_model(folder: Path, tmp_path: Path) -> None:
    loaded = read_checkpoint(folder)
    ours = ModelToWrite(kind="bert", model=loaded.model, sizes=loaded.plan.sizes)
    files = write_checkpoint(ours, tmp_path / "shards", shard_bytes=2000)
    assert len([each for each in files if each.suffix == ".safetensors"]) > 3
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(
        each.nbytes for each in read_tensors(tmp_path / "shards").values()
    )
    before = loaded.model.state_dict()
    assert same(read_checkpoint(tmp_path / "shards").model.state_dict(), before)
    as_bin(folder, load_file(folder / "model.safetensors"))
    assert same(read_checkpoint(folder).model.state_dict(), before)


def test_an_export_into_a_used_folder_leaves_no_older_weights(folder: Path, tmp_path: Path) -> None:
    loaded, out = read_checkpoint(folder), tmp_path / "out"
    ours = ModelToWrite(kind="bert", model=loaded.model, sizes=loaded.plan.sizes)
    out.mkdir()
    (out / "model-card.safetensors").touch()  # none of ours
    for size in (2000, 10**9, 4000, 2000):
        nn.init.normal_(loaded.model.encoder.norm.weight)
        files = write_checkpoint(ours, out, shard_bytes=size)
        assert same(read_checkpoint(out).model.state_dict(), loaded.model.state_dict())
        assert {each.name for each in out.iterdir()} == {
            "model-card.safetensors",
            *(each.name for each in files),
        }


def test_shards_load_in_transformers(folder: Path, tmp_path: Path) -> None:
    import transformers

    loaded = read_checkpoint(folder)
    ours = ModelToWrite(kind="bert", model=loaded.model, sizes=loaded.plan.sizes)
    write_checkpoint(ours, tmp_path / "shards", shard_bytes=2000)
    back = transformers.BertForMaskedLM.from_pretrained(tmp_path / "shards")
    there = transformers.BertForMaskedLM.from_pretrained(folder)
    assert same(dict(back.state_dict()), dict(there.state_dict()))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_read_as_float32_and_can_be_written(
    folder: Path, tmp_path: Path, dtype: str
) -> None:
    whole = read_checkpoint(folder)
    ours = ModelToWrite(kind="bert", model=whole.model, sizes=whole.plan.sizes)
    write_checkpoint(ours, tmp_path / "half", dtype=dtype)
    assert {str(each.dtype) for each in read_tensors(tmp_path / "half").values()} == {
        f"torch.{dtype}"
    }
    half = read_checkpoint(tmp_path / "half")
    assert half.notes == (f"read as float32, and kept there as {dtype}",)
    for name, each in half.model.state_dict().items():
        rounded = whole.model.state_dict()[name].to(getattr(torch, dtype)).float()
        assert torch.equal(each, rounded), name


def test_names_of_old_and_of_bare_files_are_known(folder: Path) -> None:
    expected = read_checkpoint(folder).model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    old = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): each
        for name, each in tensors.items()
    }
    save_file(old, folder / "model.safetensors")
    assert same(read_checkpoint(folder).model.state_dict(), expected)


def test_tied_missing_and_surplus_tensors_are_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    table = "bert.embeddings.word_embeddings.weight"
    twice = {**tensors, "cls.predictions.decoder.weight": tensors[table].clone()}
    save_file(twice, folder / "model.safetensors")
    assert read_checkpoint(folder).notes == ()
    twice["cls.predictions.decoder.weight"] = tensors[table] + 1
    twice["bert.pooler.dense.bias"] = torch.zeros(8)
    save_file(twice, folder / "model.safetensors")
    differs, surplus = read_checkpoint(folder).notes
    assert differs.startswith(f"cls.predictions.decoder.weight is not {table}")
    assert surplus.endswith("no place for it: bert.pooler.dense.bias")
    only = {name: each for name, each in twice.items() if name != table}
    save_file(only, folder / "model.safetensors")  # what is tied to it stands for it
    found = read_checkpoint(folder).model.state_dict()["encoder.embed.table.weight"]
    assert torch.equal(found, tensors[table] + 1)
    del only["bert.encoder.layer.1.attention.self.key.bias"]
    save_file(only, folder / "model.safetensors")
    refused(folder, r"lack bert\.encoder\.layer\.1\.attention\.self\.key\.bias")


def test_an_encoder_saved_without_its_pooler_is_one_without(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path, "BertModel")
    assert read_checkpoint(folder).model.config.pooled
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: each for name, each in tensors.items() if not name.startswith("pooler")},
        folder / "model.safetensors",
    )
    assert not read_checkpoint(folder).model.config.pooled


def test_a_checkpoint_is_read_as_another_architecture_on_demand(folder: Path) -> None:
    loaded = read_checkpoint(folder, "BertModel")
    assert loaded.model.words is None
    assert "cls.predictions" in loaded.notes[0]
    with pytest.raises(UserError, match=r"'BertLMHeadModel' of bert is not known here\. Known: B"):
        read_checkpoint(folder, "BertLMHeadModel")


def test_a_config_that_names_no_architecture_is_told_which_would_do(folder: Path) -> None:
    changed(folder, architectures=None)
    assert read_checkpoint(folder).plan.model.words  # the first of the family
    bert_folder(folder, "BertForSequenceClassification")
    changed(folder, architectures=None)
    refused(
        folder, r"config\.json: names no .* --architecture, .* BertForSequenceC\w+ or BertModel"
    )


@pytest.mark.parametrize("keep", [0, 7, 8, 100, -1])
def test_a_torn_safetensors_file_is_refused(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(folder, "is not a whole safetensors file")


@pytest.mark.parametrize(
    "header",
    [
        b"{" * 100_000,
        b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,400]}}',
        b'{"a":{"dtype":"F999","shape":[1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}',
        b"\xff\xfe",
    ],
)
def test_an_altered_header_is_refused(folder: Path, header: bytes) -> None:
    data = struct.pack("<Q", len(header)) + header + bytes(4)
    (folder / "model.safetensors").write_bytes(data)
    refused(folder, "is not a whole safetensors file")


def test_a_header_that_claims_more_than_there_is_does_not_take_memory(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(folder, "is not a whole safetensors file")


def test_a_header_with_any_bytes_altered_is_loaded_or_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    size = struct.unpack("<Q", whole[:8])[0] + 8
    refusals = []
    for place in torch.randint(0, size, (150,)).tolist():
        altered = bytearray(whole)
        altered[place] ^= 1 << (place % 8)
        path.write_bytes(altered)
        try:
            read_checkpoint(folder)
        except UserError as told:
            refusals.append(str(told))
    assert len(refusals) > 100
    assert not [each for each in refusals if "\n" in each]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder: Path, value: float) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.encoder.layer.0.output.dense.weight"][1, 2] = value
    save_file(tensors, folder / "model.safetensors")
    refused(folder, r"layer\.0\.output\.dense\.weight holds infinite numbers or none at all")


def test_of_a_tensor_held_under_two_names_the_right_one_counts(folder: Path) -> None:
    expected = read_checkpoint(folder).model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    name = "bert.embeddings.LayerNorm.weight"
    for order in (0, 1):  # files keep tensors in the order of their names or in any other
        twice = {**tensors, name.removeprefix("bert."): tensors[name] + 1}
        ours = TensorTable([TensorRow("norm", (name,))], prefix="bert.")
        renamed = ours.renamed([*twice][:: -1 if order else 1])
        assert renamed[name] == name
    save_file(twice, folder / "model.safetensors")
    loaded = read_checkpoint(folder)
    assert same(loaded.model.state_dict(), expected)
    assert loaded.notes[0].endswith("no place for it: embeddings.LayerNorm.weight")


class Runs:
    """What would leave a file behind, were it unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_a_malicious_bin_is_refused_and_nothing_of_it_runs(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    as_bin(folder, {"bert.weight": torch.ones(2), "trap": Runs(trap)})
    refused(folder, r"nothing of it was run \(it asks for getattr, .* do not trust it")
    assert not trap.exists()


def test_a_bin_without_numbers_is_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    as_bin(folder, {name: each.to("meta") for name, each in tensors.items()})
    refused(folder, r"pytorch_model\.bin: .* has a shape and no numbers")


@pytest.mark.parametrize("given", [[1, 2], {"a": 3}, {1: torch.ones(2)}, torch.ones(2)])
def test_a_bin_of_something_else_is_refused(folder: Path, given: object) -> None:
    as_bin(folder, given)
    refused(folder, r"pytorch_model\.bin: (holds a|.* is a)")


def test_a_torn_bin_is_refused(folder: Path) -> None:
    as_bin(folder, load_file(folder / "model.safetensors"))
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-200])
    refused(folder, r"pytorch_model\.bin: cannot be read as weights alone")
    path.write_bytes(b"not a file of torch")
    refused(folder, r"pytorch_model\.bin: cannot be read as weights alone")


def test_a_zip_in_place_of_a_bin_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with ZipFile(folder / "pytorch_model.bin", "w") as file:
        file.writestr("archive/data.pkl", b"cos\nsystem\n(S'true'\ntR.")
    refused(folder, r"pytorch_model\.bin: cannot be read as weights alone")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, r"there are no weights: neither model\.safetensors nor pytorch_model\.bin$")
    (folder / "tf_model.h5").touch()
    refused(folder, r"tf_model\.h5 cannot be read here")


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ({}, "has no weight_map"),
        ({"weight_map": {"a": "../secret.safetensors"}}, "which is none of this folder"),
        ({"weight_map": {"a": ""}}, 'names the file "", which is none of this folder'),
        ({"weight_map": {"a": ".."}}, "which is none of this folder"),
        ({"weight_map": {"a": "x" * 5000}}, "which is none of this folder"),
        ({"weight_map": {"a": "absent.safetensors"}}, "this shard is missing"),
        ({"weight_map": {"a": "part.safetensors"}}, "no shard holds a"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(folder: Path, index: object, match: str) -> None:
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(folder, match)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"model_type": "brt"}, "'brt' .* are not known here. Known: bert, "),
        ({"model_type": "robrta"}, "Known: roberta, "),
        ({"model_type": None}, "model_type is missing"),
        ({"architectures": ["BertForMultipleChoice"]}, "BertForMultipleChoice.* is not known here"),
        ({"architectures": ["BertForTokenClass"]}, r"is not known here\. Known: BertForTokenC"),
        ({"architectures": ["BertForTokenClassification"], "id2label": {}}, "id2label={} must be"),
        ({"architectures": "BertModel"}, "architectures=.* must be a list of texts"),
        ({"hidden_size": 16}, r"is \[17, 8\], and the config makes it \[17, 16\]"),
        ({"hidden_size": 9}, "width=9 is not divisible by heads=2"),
        ({"hidden_size": "8"}, 'hidden_size="8" must be a whole number'),
        ({"hidden_size": 10**12}, "hidden_size=1000000000000 must be a whole number"),
        ({"hidden_size": 2**24}, "and the config makes it"),
        ({"num_hidden_layers": 3}, r"lack bert\.encoder\.layer\.2\."),
        ({"num_hidden_layers": 10**6}, "must be a whole number from 0 to 4096"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"vocab_size": 30}, r"word_embeddings\.weight is \[17, 8\], .* makes it \[30, 8\]"),
        ({"hidden_act": "glu"}, "unknown hidden_act 'glu': did you mean 'gelu'?"),
        ({"is_decoder": True}, "is_decoder=true is not known here, only false"),
        ({"position_embedding_type": "relative_key"}, 'only "absolute"'),
        ({"layer_norm_eps": -1.0}, "layer_norm_eps=-1.0 must be a number of at least 0"),
        ({"hidden_dropout_prob": 1.0}, "dropout=1.0 must be less than 1"),
        ({"type_vocab_size": 0}, "type_vocab_size=0 must be a whole number from 1 to"),
        ({"vocab_size": 0}, r"config\.json: vocab_size=0 must be a whole number from 1"),
        ({"num_attention_heads": 0}, "heads=0 must be greater than 0"),
        ({"max_position_embeddings": 0}, "context=0 must be greater than 0"),
        ({"num_hidden_layers": 0}, "layers=0 must be greater than 0"),
        ({"layer_norm_eps": 0.0}, r"norm_eps=0\.0 must be greater than 0"),
        ({"type_vocab_size": True}, "type_vocab_size=true must be a whole number"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    folder: Path, settings: dict[str, object], match: str
) -> None:
    changed(folder, **settings)
    refused(folder, match)


ODD_VALUES = ([], {"0": 1}, "x" * 5000, -1, 1e308, 10**30)


@pytest.mark.parametrize("make", [bert_folder, gpt2_folder])
def test_any_value_anywhere_in_a_config_is_taken_or_refused(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    make(tmp_path)
    whole = (tmp_path / "config.json").read_text()
    refusals = []
    for name in json.loads(whole):
        for value in ODD_VALUES:
            changed(tmp_path, **{name: value})
            try:
                read_checkpoint(tmp_path)
            except UserError as told:
                refusals.append(str(told))
            (tmp_path / "config.json").write_text(whole)
    assert len(refusals) > 50
    assert not [each for each in refusals if "\n" in each or len(each) > 600]
    assert all(str(tmp_path) in each for each in refusals)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"model_type": NaN'])
def test_a_config_that_is_no_json_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refused(folder, r"config\.json: not (a )?JSON")


def test_what_no_family_holds_is_refused_with_the_reason(folder: Path, tmp_path: Path) -> None:
    loaded = read_checkpoint(folder)
    other = ModelToWrite(kind="rnn_lm", model=loaded.model, sizes=loaded.plan.sizes)
    with pytest.raises(UserError, match=r"a rnn_lm cannot be written .* these can: bert, "):
        write_checkpoint(other, tmp_path / "out")
    ours = ModelToWrite(kind="bert", model=loaded.model, sizes=loaded.plan.sizes)
    with pytest.raises(UserError, match="distilbert has segments=0, not 2"):
        write_checkpoint(ours, tmp_path / "out", family="distilbert")
    assert not (tmp_path / "out").exists()


def test_every_family_knows_the_architectures_it_lists() -> None:
    assert {"bert", "roberta", "distilbert"} <= set(FAMILIES)
    for family in FAMILIES.values():
        assert family.kinds


def test_tensors_that_are_larger_than_their_file_are_refused(folder: Path) -> None:
    """An expanded tensor holds one number however large it is; a compressed archive, anything."""
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save({"a": torch.zeros(1).expand(10**12)}, path)
    refused(folder, r"a has 4,000,000,000,000 bytes by its shape, and the file holds 4")
    torch.save({"a": torch.zeros(10**6)}, path)
    with zipfile.ZipFile(path) as held:
        parts = {each.filename: held.read(each) for each in held.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in parts.items():
            packed.writestr(name, data)
    refused(folder, r"would unpack to 4,0\d\d,\d\d\d bytes")
