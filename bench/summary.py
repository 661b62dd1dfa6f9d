"""The summary table of RESULTS.md, made from results/: `python -m bench.summary`.

With `--check` nothing is written; the exit code is 1 if the page has another table.
"""

import sys
from pathlib import Path

from regard.experiments.summary import replace_summary, summary_table

ROOT = Path(__file__).parent.parent


def summarised() -> str:
    """RESULTS.md as it is to be."""
    page = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    return replace_summary(page, summary_table(ROOT / "results"))


if __name__ == "__main__":
    page = ROOT / "RESULTS.md"
    made = summarised()
    if "--check" in sys.argv[1:]:
        sys.exit(made != page.read_text(encoding="utf-8"))
    page.write_text(made, encoding="utf-8")
