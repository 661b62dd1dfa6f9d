"""Questions about passages, with answers that stand in them: SQuAD's JSON, JSONL, and bAbI.

SQuAD (Rajpurkar et al. 2016, 2018) is one JSON object with articles, paragraphs and questions; in
its second version some questions have no answer. JSONL has a question a line: `question`,
`context`, and `answers` as a list of `{"text", "answer_start"}` or as two lists, if they are known.
bAbI's stories (data/text/babi.py) name the sentence that tells the answer.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "one.jsonl"
>>> _ = path.write_text('{"question": "Who?", "context": "It was Ann.", "answers": '
...                     '[{"text": "Ann", "answer_start": 7}]}')
>>> [each.answers for each in read_questions(str(path))]
[((7, 'Ann'),)]
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import UserError
from regard.data.text.files import (
    display_name,
    open_bytes,
    parse_json_object,
    read_lines,
    text_field,
    uncompressed_name,
)


@dataclass(frozen=True)
class BabiQuestion:
    """A question, and what was sentences before it."""

    line: int
    where: str
    """As errors say it."""
    question: str
    answer: str
    facts: str
    """The numbers of the sentences that tell the answer, as they are written."""
    sentences: dict[int, str]
    """The sentences by their numbers."""

    @property
    def story(self) -> str:
        """All sentences, with a space between them."""
        return " ".join(self.sentences.values())

    def answer_start(self) -> int:
        """Where the answer begins in the story: in the last of its facts that names it."""
        numbers = {str(number): number for number in self.sentences}
        for fact in reversed(self.facts.split()):
            number = numbers.get(fact, 0)
            sentence = self.sentences.get(number, "")
            if self.answer and self.answer in sentence:
                before = [each for other, each in self.sentences.items() if other < number]
                return sum(len(each) + 1 for each in before) + sentence.rindex(self.answer)
        raise UserError(
            f"{self.where}: the answer {self.answer!r} does not stand in the facts "
            f"{self.facts!r}; answers that a story does not name can be classified "
            '(task = "classify")'
        )


def babi_questions(path: str) -> Iterator[BabiQuestion]:
    """Every question of a file, in order."""
    sentences: dict[int, str] = {}
    last = 0
    for line, (text,) in read_lines(path):
        where = f"{display_name(path)}:{line}"
        written, _, rest = text.lstrip().partition(" ")
        if not (written.isdecimal() and len(written) < 10 and rest.strip()):
            raise UserError(f"{where}: a number and a sentence were expected, not {text[:40]!r}")
        number = int(written)
        if number == 1:
            sentences, last = {}, 0
        if number <= last:
            raise UserError(
                f"{where}: number {number} after {last}; a story's numbers go up from 1"
            )
        last = number
        cells = rest.split("\t")
        if len(cells) == 1:
            sentences[number] = rest.strip()
            continue
        if len(cells) != 3:
            raise UserError(
                f"{where}: a question, its answer and the numbers of facts were expected, with "
                f"tabs between them; there are {len(cells)} cells"
            )
        question, answer, facts = (each.strip() for each in cells)
        yield BabiQuestion(line, where, question, answer, facts, dict(sentences))


_MOST_BYTES = 1 << 30
"""How large a JSON file may be; it is read whole."""


@dataclass(frozen=True)
class PassageQuestion:
    """A question, the passage it is about, and the answers that people gave."""

    name: str
    """As the file calls it."""
    text: str
    passage: str
    answers: tuple[tuple[int, str], ...]
    """Where in the passage each begins, and the answer; none if there is no answer."""
    where: str
    """As errors say it."""


def read_questions(path: str) -> Iterator[PassageQuestion]:
    """Every question of a file; .jsonl has one a line, .txt is bAbI's form."""
    if Path(uncompressed_name(path)).suffix == ".txt":
        for each in babi_questions(path):
            answers = ((each.answer_start(), each.answer),)
            yield PassageQuestion(str(each.line), each.question, each.story, answers, each.where)
        return
    if Path(uncompressed_name(path)).suffix in (".jsonl", ".ndjson"):
        for number, (line,) in read_lines(path):
            if line.strip():
                where = f"{display_name(path)}:{number}"
                held = parse_json_object(line, where)
                yield _question(held, text_field(held, "context", where), where, str(number))
        return
    with open_bytes(path) as file:
        raw = file.read(_MOST_BYTES)
    if len(raw) == _MOST_BYTES:
        raise UserError(
            f"{display_name(path)}: a JSON file is read whole; give a .jsonl of that size"
        )
    try:
        whole: object = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{display_name(path)}: not JSON: {problem}") from None
    found = False
    for article in _list(_object(whole, display_name(path)), "data", display_name(path)):
        about = _object(article, display_name(path))
        for paragraph in _list(about, "paragraphs", display_name(path)):
            held = _object(paragraph, display_name(path))
            passage = text_field(held, "context", display_name(path))
            for number, one in enumerate(_list(held, "qas", display_name(path)), start=1):
                question = _object(one, display_name(path))
                where = f"{display_name(path)}: question {question.get('id', number)}"
                found = True
                yield _question(question, passage, where, str(number))
    if not found:
        raise UserError(f"{display_name(path)}: there are no questions in it")


def _question(held: dict[str, object], passage: str, where: str, number: str) -> PassageQuestion:
    answers = () if held.get("is_impossible") is True else tuple(_answers(held, where))
    for begin, answer in answers:
        if not answer or passage[begin : begin + len(answer)] != answer:
            raise UserError(
                f"{where}: the answer {answer!r} does not stand at character {begin} of the passage"
            )
    name = held.get("id", number)
    return PassageQuestion(str(name), text_field(held, "question", where), passage, answers, where)


def _answers(held: dict[str, object], where: str) -> Iterator[tuple[int, str]]:
    """The answers of a question, in either form; none if nothing is said of them."""
    given = held.get("answers", [])
    if isinstance(given, dict):
        texts, begins = _list(given, "text", where), _list(given, "answer_start", where)
        if len(texts) != len(begins):
            raise UserError(f"{where}: {len(texts)} texts of answers and {len(begins)} places")
        given = [{"text": a, "answer_start": b} for a, b in zip(texts, begins, strict=True)]
    if not isinstance(given, list):
        raise UserError(f"{where}: answers is no list")
    for each in given:
        answer = _object(each, where)
        begin = answer.get("answer_start")
        if not isinstance(begin, int) or isinstance(begin, bool) or begin < 0:
            raise UserError(f"{where}: answer_start={begin!r} is no place in the passage, from 0")
        yield begin, text_field(answer, "text", where)


def _object(held: object, where: str) -> dict[str, object]:
    if not isinstance(held, dict):
        raise UserError(f"{where}: a JSON object was expected, not {json.dumps(held)[:40]}")
    return held


def _list(held: dict[str, object], field: str, where: str) -> list[object]:
    found = held.get(field)
    if not isinstance(found, list):
        raise UserError(
            f"{where}: there is no list {field!r}; SQuAD's form is data, paragraphs, qas, answers"
        )
    return found
