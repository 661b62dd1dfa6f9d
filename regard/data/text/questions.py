"""Questions about passages, with answers that stand in them: SQuAD's JSON, JSONL, and bAbI.

SQuAD (Rajpurkar et al. 2016, 2018) is one JSON object with articles, paragraphs and questions; in
its second version some questions have no answer. JSONL has a question a line: `question`,
`context`, and `answers` as a list of `{"text", "answer_start"}` or as two lists, if they are known.
bAbI's stories (data/text/babi.py) name the sentence that tells the answer.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "one.jsonl"
>>> _ = path.write_text('{"question": "Who?", "context": "It was Ann.", "answers": '
...                     '[{"text": "Ann", "answer_start": 7}]}')
>>> [each.answers for each in questions(str(path))]
[((7, 'Ann'),)]
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import UserError
from regard.data.text.babi import asked
from regard.data.text.files import lines, object_in, opened, shown, text_in, unpacked_name

_MOST_BYTES = 1 << 30
"""How large a JSON file may be; it is read whole."""


@dataclass(frozen=True)
class Question:
    """A question, the passage it is about, and the answers that people gave."""

    name: str
    """As the file calls it."""
    text: str
    passage: str
    answers: tuple[tuple[int, str], ...]
    """Where in the passage each begins, and the answer; none if there is no answer."""
    where: str
    """As errors say it."""


def questions(path: str) -> Iterator[Question]:
    """Every question of a file; .jsonl has one a line, .txt is bAbI's form."""
    if Path(unpacked_name(path)).suffix == ".txt":
        for each in asked(path):
            answers = ((each.place(), each.answer),)
            yield Question(str(each.line), each.question, each.story, answers, each.where)
        return
    if Path(unpacked_name(path)).suffix in (".jsonl", ".ndjson"):
        for number, (line,) in lines(path):
            if line.strip():
                where = f"{shown(path)}:{number}"
                held = object_in(line, where)
                yield _question(held, text_in(held, "context", where), where, str(number))
        return
    with opened(path) as file:
        raw = file.read(_MOST_BYTES)
    if len(raw) == _MOST_BYTES:
        raise UserError(f"{shown(path)}: a JSON file is read whole; give a .jsonl of that size")
    try:
        whole: object = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{shown(path)}: not JSON: {problem}") from None
    found = False
    for article in _list(_object(whole, shown(path)), "data", shown(path)):
        about = _object(article, shown(path))
        for paragraph in _list(about, "paragraphs", shown(path)):
            held = _object(paragraph, shown(path))
            passage = text_in(held, "context", shown(path))
            for number, one in enumerate(_list(held, "qas", shown(path)), start=1):
                question = _object(one, shown(path))
                where = f"{shown(path)}: question {question.get('id', number)}"
                found = True
                yield _question(question, passage, where, str(number))
    if not found:
        raise UserError(f"{shown(path)}: there are no questions in it")


def _question(held: dict[str, object], passage: str, where: str, number: str) -> Question:
    answers = () if held.get("is_impossible") is True else tuple(_answers(held, where))
    for begin, answer in answers:
        if not answer or passage[begin : begin + len(answer)] != answer:
            raise UserError(
                f"{where}: the answer {answer!r} does not stand at character {begin} of the passage"
            )
    name = held.get("id", number)
    return Question(str(name), text_in(held, "question", where), passage, answers, where)


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
        yield begin, text_in(answer, "text", where)


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
