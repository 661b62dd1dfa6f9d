"""Results: a run is recorded with what it came from, and the table tells fresh from stale."""

import json
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.experiments.results import digest_now, read_results, record_result
from regard.experiments.summary import HEADS, replace_summary, summary_table
from regard.runs.recipe import Figure, shipped_recipes

ROOT = Path(__file__).parent.parent.parent


def finished(folder: Path, exact: float, **training: object) -> Path:
    """A run folder, as far as a record needs one."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"seconds": 90.0, "commit": "abc", "processor": "P", "threads": 1, "torch": "2"}
    held = {"test": {"exact": exact}, "training": {**about, **training}}
    (folder / "metrics.json").write_text(json.dumps(held))
    return folder


def row(results: Path, name: str) -> dict[str, str]:
    """The row of a recipe or of one of its variants, by column."""
    for line in summary_table(results).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == name:
            return dict(zip(HEADS, cells, strict=True))
    raise AssertionError(f"{name} has no row")


def test_a_run_is_recorded_with_what_it_came_from(tmp_path: Path) -> None:
    path = record_result("dates", [], finished(tmp_path / "run", 99.0), tmp_path / "results")
    (made,) = read_results(path).runs
    assert (made.seed, made.commit, made.processor, made.minutes) == (1, "abc", "P", 1.5)
    assert made.digest == digest_now("dates")
    assert made.metrics == {"test": {"exact": 99.0}}


def test_seeds_make_a_mean_and_a_spread_and_a_repeat_takes_its_place(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for seed, exact in ((1, 50.0), (2, 98.0), (3, 100.0), (1, 99.0)):
        run = finished(tmp_path / f"run{seed}", exact)
        record_result("dates", [f"train.seed={seed}"], run, results)
    held = row(results, "`dates`")
    assert held["ours"] == "99.00 (98.00 to 100.00), 3 seeds"
    assert (held["verdict"], held["minutes"], held["published"]) == ("own goal met", "1.5", "")


def test_a_result_of_another_recipe_is_stale(tmp_path: Path) -> None:
    path = record_result("dates", [], finished(tmp_path / "run", 99.0), tmp_path / "results")
    assert row(path.parent, "`dates`")["ours"] == "99.00, one seed"
    held = json.loads(path.read_text())
    held["runs"][0]["digest"] = "0" * 16
    path.write_text(json.dumps(held))
    assert row(path.parent, "`dates`")["ours"] == "99.00, one seed; stale"


def test_a_changed_source_makes_a_result_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_now("sst-bert"), digest_now("sst-cnn")
    texts = shipped_recipes()
    texts["imdb-bert-short"] = texts["imdb-bert-short"].replace("window = 32", "window = 16")
    monkeypatch.setattr("regard.experiments.results.shipped_recipes", lambda: texts)
    assert digest_now("sst-bert") != before[0]
    assert digest_now("sst-cnn") == before[1]


def test_figures_by_hand_give_way_to_a_recorded_run(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    by_hand = {"seed": 2, "metrics": {"test": {"exact": 10.0}}, "by_hand": "a page"}
    (results / "dates.json").write_text(json.dumps({"recipe": "dates", "runs": [by_hand]}))
    held = row(results, "`dates`")
    assert (held["ours"], held["verdict"]) == ("10.00, one seed; by hand", "missed")
    record_result("dates", [], finished(tmp_path / "run", 99.0), results)
    assert row(results, "`dates`")["ours"] == "99.00, one seed"


def test_a_variant_has_a_row_without_a_verdict(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", 40.0)
    record_result("dates", ["model.score=dot"], run, tmp_path / "results")
    assert row(tmp_path / "results", "`dates`")["ours"] == "not run"
    held = row(tmp_path / "results", "`dates` model.score=dot")
    assert (held["ours"], held["verdict"], held["to reach"]) == ("40.00, one seed", "", "")


def test_every_shipped_recipe_has_one_row(tmp_path: Path) -> None:
    lines = summary_table(tmp_path).splitlines()
    assert len(lines) == len(shipped_recipes()) + 2
    assert all(line.count(" | ") == len(HEADS) - 1 for line in lines)


def test_a_published_figure_and_an_own_goal_are_told_apart() -> None:
    about = {"metric": "f1", "split": "test", "better": "higher", "source": "s"}
    own = Figure.model_validate({**about, "value": 90.0, "reach": 80.0})
    after = own.model_copy(update={"set_after_run": True})
    published = own.model_copy(update={"published": True})
    stricter = published.model_copy(update={"reach": 95.0})
    assert [own.verdict(each) for each in (70.0, 85.0, 95.0)] == ["missed", *["own goal met"] * 2]
    assert after.verdict(85.0) == "own goal met, set after a run"
    assert [published.verdict(each) for each in (85.0, 90.0)] == ["own goal met", "published met"]
    assert stricter.verdict(91.0) == "published met, own goal missed"


def test_what_cannot_be_recorded_is_named(tmp_path: Path, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="results of shipped recipes"):
        record_result("mine.toml", [], tmp_path, tmp_path)
    with pytest.raises(UserError, match="these two lines"):
        replace_summary("a page", "a table")
    (tmp_path / "dates.json").write_text('{"recipe": "dates", "runs": [{"seed": 1}]}')
    with pytest.raises(UserError, match=r"dates\.json\.runs.*metrics is missing"):
        summary_table(tmp_path)
    held = {"recipe": "dates", "runs": [{"seed": 1, "metrics": {"test": {"loss": 1.0}}}]}
    (tmp_path / "dates.json").write_text(json.dumps(held))
    with pytest.raises(UserError, match="has no test exact; it has: loss"):
        summary_table(tmp_path)


def test_the_files_of_the_project_are_named_after_shipped_recipes() -> None:
    for path in (ROOT / "results").iterdir():
        held = read_results(path)
        assert held.recipe == path.stem
        assert path.stem in shipped_recipes()
        assert all(each.digest or each.by_hand for each in held.runs)
