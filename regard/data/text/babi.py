"""bAbI's stories: numbered sentences, and questions about all that was told before them.

A line is a number and a sentence, or a number, a question, its answer and the numbers of the
sentences that tell it, with tabs between them; a new story begins at 1 (Weston et al. 2015).

>>> import tempfile
>>> from pathlib import Path
>>> path = Path(tempfile.mkdtemp()) / "qa1.txt"
>>> _ = path.write_text("1 Mary went to the garden.\\n2 Where is Mary? \\tgarden\\t1\\n")
>>> [(each.question, each.answer, each.facts, each.story) for each in asked(str(path))]
[('Where is Mary?', 'garden', '1', 'Mary went to the garden.')]
>>> [each.place() for each in asked(str(path))]
[17]
"""

from collections.abc import Iterator
from dataclasses import dataclass

from regard.core.errors import UserError
from regard.data.text.files import lines, shown


@dataclass(frozen=True)
class Asked:
    """A question, and what was told before it."""

    line: int
    where: str
    """As errors say it."""
    question: str
    answer: str
    facts: str
    """The numbers of the sentences that tell the answer, as they are written."""
    told: dict[int, str]
    """The sentences by their numbers."""

    @property
    def story(self) -> str:
        """All sentences, with a space between them."""
        return " ".join(self.told.values())

    def place(self) -> int:
        """Where the answer begins in the story: in the last of its facts that names it."""
        numbers = {str(number): number for number in self.told}
        for fact in reversed(self.facts.split()):
            number = numbers.get(fact, 0)
            sentence = self.told.get(number, "")
            if self.answer and self.answer in sentence:
                before = [each for other, each in self.told.items() if other < number]
                return sum(len(each) + 1 for each in before) + sentence.rindex(self.answer)
        raise UserError(
            f"{self.where}: the answer {self.answer!r} does not stand in the facts "
            f"{self.facts!r}; answers that a story does not name can be classified "
            '(task = "classify")'
        )


def asked(path: str) -> Iterator[Asked]:
    """Every question of a file, in order."""
    told: dict[int, str] = {}
    last = 0
    for line, (text,) in lines(path):
        where = f"{shown(path)}:{line}"
        written, _, rest = text.lstrip().partition(" ")
        if not (written.isdecimal() and len(written) < 10 and rest.strip()):
            raise UserError(f"{where}: a number and a sentence were expected, not {text[:40]!r}")
        number = int(written)
        if number == 1:
            told, last = {}, 0
        if number <= last:
            raise UserError(
                f"{where}: number {number} after {last}; a story's numbers go up from 1"
            )
        last = number
        cells = rest.split("\t")
        if len(cells) == 1:
            told[number] = rest.strip()
            continue
        if len(cells) != 3:
            raise UserError(
                f"{where}: a question, its answer and the numbers of facts were expected, with "
                f"tabs between them; there are {len(cells)} cells"
            )
        question, answer, facts = (each.strip() for each in cells)
        yield Asked(line, where, question, answer, facts, dict(told))
