"""Folders and files of other programs that are no checkpoints here: what they are, what to do.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "model_index.json").write_text("{}")
>>> foreign_folder(folder)
'a diffusers pipeline, which makes images; its text encoder is a folder of its own in it'
"""

from pathlib import Path

from regard.hub.store import read_json_list, read_optional_json

_ADAPTER = "adapter_config.json"
_MODULES = "modules.json"


def foreign_folder(folder: Path) -> str | None:
    """What a folder without config.json is, and what to do with it; None if it is not known."""
    if (folder / _ADAPTER).exists():
        return adapter_hint(folder)
    if (folder / "model_index.json").exists():
        return (
            "a diffusers pipeline, which makes images; its text encoder is a folder of its own in "
            "it"
        )
    if (folder / _MODULES).exists() or (folder / "config_sentence_transformers.json").exists():
        inner = [
            each.parent.name for each in sorted(folder.glob("*/config.json")) if each.is_file()
        ]
        at = " or ".join(str(folder / each) for each in inner if "Pooling" not in each)
        return (
            "a sentence-transformers folder whose encoder is in a folder of its own; "
            f"import {at or 'the one that has config.json and weights'}"
        )
    if any(each.suffix == ".gguf" for each in folder.iterdir()):
        return gguf_hint()
    return None


def adapter_hint(folder: Path) -> str:
    """What to do with an adapter."""
    base = read_optional_json(folder / _ADAPTER).get("base_model_name_or_path")
    named = f" for {base[:100]}" if isinstance(base, str) and base else ""
    return (
        f"a PEFT adapter{named}, not a whole model; merge it there with "
        "PeftModel.from_pretrained(...).merge_and_unload().save_pretrained(FOLDER), and import "
        "that folder"
    )


def gguf_hint() -> str:
    """What to do with weights of llama.cpp."""
    return (
        "GGUF, the weights of llama.cpp, usually quantised, which are not read here; get the model "
        "that they were made of as safetensors"
    )


def folder_notes(folder: Path) -> tuple[str, ...]:
    """What there is to tell of a checkpoint folder that holds more than its model."""
    notes = []
    if (folder / _MODULES).exists() and (more := _beyond_the_mean(folder)):
        notes.append(
            f"a sentence-transformers folder, of which this is the encoder alone: {more} is not "
            "applied, and regard.runs.pretrained.sentence_vectors takes the mean over tokens"
        )
    if (folder / _ADAPTER).exists():
        notes.append(f"{_ADAPTER} is not applied: it is that of {adapter_hint(folder)}")
    return tuple(notes)


def _beyond_the_mean(folder: Path) -> str:
    """What a sentence-transformers folder does but for the mean over tokens of unit length."""
    held = read_json_list(folder / _MODULES)
    kinds = [str(each.get("type")).rpartition(".")[2] for each in held if isinstance(each, dict)]
    more = [each for each in kinds if each not in ("Transformer", "Pooling", "Normalize")]
    pooling = read_optional_json(folder / "1_Pooling" / "config.json")
    modes = [
        name for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True
    ]
    return ", ".join([*more, *(each for each in modes if each != "pooling_mode_mean_tokens")])
