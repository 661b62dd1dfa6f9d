"""Word pieces (Wu et al. 2016), learnt from a text: the same ones every time.

>>> from regard.data.pipeline import by_piece
>>> learnt_pieces(["low lower lowest", "low low"], by_piece(), 21, 1)[-2:]
['lo', 'low']
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, trainers

from regard.core.errors import UserError
from regard.data.pipeline import MARKS, WITHIN, words

LETTERS = 1000
"""How many letters there may be, the most frequent ones, as in BERT's own vocabulary."""


def learnt_pieces(
    lines: Iterable[str], pipeline: Tokenizer, vocabulary: int, min_frequency: int
) -> list[str]:
    """All letters, then the most frequent pairs of what is already there; without the marks.

    The `pipeline` says how words are found and written.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(words(line))
    if not counts:
        raise UserError("there is no text to train a tokeniser on")
    seen: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in pipeline.normalizer.normalize_str(word):
            seen[letter] += count
    frequent = sorted(seen, key=lambda letter: (-seen[letter], letter))[:LETTERS]
    # The library numbers letters as it happens to meet them and breaks ties by these numbers; to
    # have the same pieces every time, all of them are numbered before it begins.
    known = [form for each in frequent if each.strip() for form in (each, WITHIN + each)]
    if len(MARKS) + len(known) > vocabulary:
        raise UserError(
            f"vocabulary={vocabulary} is too small for the letters of this text: at least "
            f"{len(MARKS) + len(known)}"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        min_frequency=min_frequency,
        special_tokens=[*MARKS, *known],
        limit_alphabet=LETTERS,
        show_progress=False,
    )
    repeated = (" ".join([word] * count) for word, count in counts.items())
    pipeline.train_from_iterator(repeated, trainer)
    found: dict[str, int] = pipeline.get_vocab(with_added_tokens=True)
    return sorted(found.keys() - set(MARKS), key=lambda piece: found[piece])
