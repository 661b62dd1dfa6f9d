"""Questions about passages, with answers from the passage: SQuAD's JSON, JSONL, and bAbI.

SQuAD (Rajpurkar et al. 2016, 2018) is one JSON object with articles, paragraphs and questions; in
its second version some questions have no answer. JSONL has one question per line: `question`,
`context`, and optionally `answers` as a list of `{"text", "answer_start"}` or as two lists.

A bAbI file (Weston et al. 2015) has numbered sentences, and questions about the sentences before
them. A line is a number and a sentence, or a number, a question, its answer and the numbers of the
sentences with the answer, separated by tabs; a new story starts at 1.

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
    """A question and the story before it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "qa1.txt"
    >>> _ = path.write_text("1 Mary went to the garden.\\n2 Where is Mary? \\tgarden\\t1\\n")
    >>> [(each.question, each.answer, each.facts, each.story) for each in babi_questions(str(path))]
    [('Where is Mary?', 'garden', '1', 'Mary went to the garden.')]
    >>> [each.answer_start() for each in babi_questions(str(path))]
    [17]
    """

    line: int
    where: str
    """Its position in error messages."""
    question: str
    answer: str
    facts: str
    """The numbers of the sentences with the answer, as in the file."""
    sentences: dict[int, str]
    """The sentences of the story by number."""

    @property
    def story(self) -> str:
        """All sentences, with a space between them."""
        return " ".join(self.sentences.values())

    def answer_start(self) -> int:
        """The first character of the answer in the story: in the last fact that contains it."""
        numbers = {str(number): number for number in self.sentences}
        for fact in reversed(self.facts.split()):
            number = numbers.get(fact, 0)
            sentence = self.sentences.get(number, "")
            if self.answer and self.answer in sentence:
                before = [each for other, each in self.sentences.items() if other < number]
                return sum(len(each) + 1 for each in before) + sentence.rindex(self.answer)
        raise UserError(
            f"{self.where}: the answer {self.answer!r} does not occur in the facts "
            f"{self.facts!r}; questions whose answers are not in the story can be classified "
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
            raise UserError(f"{where}: expected a number and a sentence, not {text[:40]!r}")
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
                f"{where}: expected a question, its answer and the numbers of facts, separated by "
                f"tabs; there are {len(cells)} cells"
            )
        question, answer, facts = (each.strip() for each in cells)
        yield BabiQuestion(line, where, question, answer, facts, dict(sentences))


_MOST_BYTES = 1 << 30
"""The maximum size of a JSON file, which is read at once."""


@dataclass(frozen=True)
class PassageQuestion:
    """A question, its passage, and the reference answers."""

    name: str
    """Its id in the file."""
    text: str
    passage: str
    answers: tuple[tuple[int, str], ...]
    """The first character in the passage and the text of each; empty if there is no answer."""
    where: str
    """Its position in error messages."""


def read_questions(path: str) -> Iterator[PassageQuestion]:
    """All questions of a file: .jsonl has one per line, .txt is bAbI, all else is SQuAD."""
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
        raise UserError(f"{display_name(path)}: too large for one JSON object; use .jsonl")
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
                f"{where}: the answer {answer!r} is not at character {begin} of the passage"
            )
    name = held.get("id", number)
    return PassageQuestion(str(name), text_field(held, "question", where), passage, answers, where)


def _answers(held: dict[str, object], where: str) -> Iterator[tuple[int, str]]:
    """The answers of a question, in either form; none if the field is missing."""
    given = held.get("answers", [])
    if isinstance(given, dict):
        texts, begins = _list(given, "text", where), _list(given, "answer_start", where)
        if len(texts) != len(begins):
            raise UserError(f"{where}: {len(texts)} texts of answers and {len(begins)} places")
        given = [{"text": a, "answer_start": b} for a, b in zip(texts, begins, strict=True)]
    if not isinstance(given, list):
        raise UserError(f"{where}: answers is not a list")
    for each in given:
        answer = _object(each, where)
        begin = answer.get("answer_start")
        if not isinstance(begin, int) or isinstance(begin, bool) or begin < 0:
            raise UserError(f"{where}: answer_start={begin!r} is not a character of the passage")
        yield begin, text_field(answer, "text", where)


def _object(held: object, where: str) -> dict[str, object]:
    if not isinstance(held, dict):
        raise UserError(f"{where}: expected a JSON object, not {json.dumps(held)[:40]}")
    return held


def _list(held: dict[str, object], field: str, where: str) -> list[object]:
    found = held.get(field)
    if not isinstance(found, list):
        raise UserError(
            f"{where}: there is no list {field!r}; SQuAD's form is data, paragraphs, qas, answers"
        )
    return found
