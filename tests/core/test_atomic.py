"""Files that are replaced whole or not at all."""

from pathlib import Path

import pytest

from regard.core import atomic


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def stopped() -> None:
        with atomic.replace_atomically(tmp_path / "a") as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_who_reads_a_file_while_it_is_replaced_reads_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with (tmp_path / "a").open() as reader:
        with atomic.replace_atomically(tmp_path / "a") as file:
            file.write(b"new")
            assert (tmp_path / "a").read_text() == "old"
        assert reader.read() == "old"
    assert (tmp_path / "a").read_text() == "new"
