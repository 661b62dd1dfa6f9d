"""Files of folders from strangers: what is not a regular file of its folder is not read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.core.folder import (
    RECIPE_BYTES,
    open_file,
    parse_toml,
    read_json,
    read_json_object,
    read_text,
)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret.json", tmp_path / "run"
    folder.mkdir()
    secret.write_text('{"a": "hidden"}')
    for target in (secret, Path("../secret.json"), Path("/etc/hostname")):
        (folder / "config.json").symlink_to(target)
        with pytest.raises(UserError, match="outside of its folder") as caught:
            read_json_object(folder / "config.json")
        assert "hidden" not in str(caught.value)
        (folder / "config.json").unlink()


def test_links_inside_and_to_the_folder_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "old.json").write_text("[1]")
    (folder / "config.json").symlink_to("old.json")
    (tmp_path / "latest").symlink_to(folder)
    assert read_json(folder / "config.json") == [1]
    assert read_json(tmp_path / "latest" / "config.json") == [1]


def test_a_snapshot_of_the_hub_has_links_to_its_own_files_alone(tmp_path: Path) -> None:
    for name in ("models--a--b", "models--c"):
        (tmp_path / name / "blobs").mkdir(parents=True)
        (tmp_path / name / "blobs" / "1234").write_text("{}")
    snapshot = tmp_path / "models--a--b" / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/1234")
    assert read_json(snapshot / "config.json") == {}
    (snapshot / "other.json").symlink_to("../../../models--c/blobs/1234")
    with pytest.raises(UserError, match="outside of its folder"):
        read_json(snapshot / "other.json")


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "nothing": lambda path: None,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_regular_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    SPECIAL[name](path)
    with pytest.raises(UserError, match=r"config\.json: "):
        read_text(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    with path.open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(UserError, match=r"1,000,000,000,000 bytes; at most 64,000"):
        open_file(path, RECIPE_BYTES)


@pytest.mark.parametrize("depth", [65, 200, 900, 200_000])
def test_nested_lists_are_refused_at_any_depth(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" * depth + "]" * depth)
    with pytest.raises(UserError, match=r"nested more than|not JSON"):
        read_json(path)
    with pytest.raises(UserError, match=r"nested more than|not TOML"):
        parse_toml(f"a = {'[' * depth}{']' * depth}", "recipe.toml")


def test_a_key_of_many_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"recipe\.toml:2: the key has more than 16 parts"):
        parse_toml("task = 1\n" + "a." * 20_000 + "b = 1", "recipe.toml")
