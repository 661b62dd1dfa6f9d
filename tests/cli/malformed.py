"""A corpus of recipes and files that cannot work: each is refused in one line, and leaves nothing.

A case is the name of a base recipe, changes as `--set` takes them, texts to replace in the recipe,
and files. Bases and their files are at the top.
"""

from dataclasses import dataclass, field

TRAIN = '[train]\nupdates = 2\noptimiser = { name = "adam", lr = 1e-3 }\n'

BASES = {
    "classify": 'task = "classify"\n[data]\ntrain = "films.csv"\ntext = ["text"]\nlabel = "label"\n'
    '[model]\nkind = "text_cnn"\nwidth = 8\nfilters = 4\n' + TRAIN,
    "tag": 'task = "tag"\n[data]\ntrain = "tags.conll"\n'
    '[model]\nkind = "bilstm_crf"\nwidth = 8\nhidden = 8\n' + TRAIN,
    "translate": 'task = "translate"\n[data]\ntrain = ["a.txt", "b.txt"]\n'
    'validation = ["a.txt", "b.txt"]\n[model]\nkind = "bahdanau"\nwidth = 8\nhidden = 8\n' + TRAIN,
    "language": 'task = "language_model"\n[data]\ntrain = "text.txt"\ntokeniser = "char"\n'
    'batch = 2\nwindow = 8\n[model]\nkind = "gpt"\nwidth = 8\nheads = 2\nlayers = 1\ncontext = 8\n'
    + TRAIN,
    "masked": 'task = "masked_lm"\n[data]\ntrain = ["talk.txt"]\n'
    'validation = ["talk.txt"]\nwindow = 16\n'
    '[model]\nkind = "bert"\nencoder = { width = 8, heads = 2, layers = 1, context = 16 }\n'
    + TRAIN,
    "words": 'task = "word_vectors"\n[data]\ntrain = "text.txt"\nvalidation = 0.5\n'
    '[model]\nkind = "skip_gram"\nwidth = 8\n[train]\nupdates = 2\n'
    'optimiser = { name = "adagrad", lr = 0.1 }\n',
}

FILES: dict[str, str | bytes] = {
    "films.csv": "label,text\n" + "neg,a dull film\npos,a fine film\n" * 12,
    "tags.conll": "John B-PER\nSmith I-PER\nsleeps O\n\n" * 12,
    "a.txt": "a b c\n" * 16,
    "b.txt": "x y z\n" * 16,
    "talk.txt": "to be or not\nthat is it\n\n" * 40,
    "text.txt": "to be or not to be that is the question\n" * 40,
}


@dataclass(frozen=True)
class Case:
    """One thing that cannot work."""

    base: str
    changes: tuple[str, ...] = ()
    replaced: tuple[str, str] = ("", "")
    """A text of the recipe, and what stands in its place."""
    files: dict[str, str | bytes | None] = field(default_factory=dict)
    """Other contents; None removes a file."""


def _recipes() -> dict[str, Case]:
    """Recipes that cannot be read, or not be trained."""
    changes = {
        "language": [
            "model.kind=gtp",
            "model.widht=8",
            "model.width=wide",
            "model.width=-1",
            "model.width=0",
            "model.heads=3",
            "model.context=4",
            "model.position=spiral",
            "model.dropout=1.5",
            "model.score=dto",
            "data.train=",
            "data.train=nowhere.txt",
            "data.validation=1.5",
            "data.validation=nowhere.txt",
            "data.tokeniser=letters",
            "data.window=0",
            "data.batch=true",
            "data.order=shuffled",
            "data.seed=123456789012345678901",
            "train.optimiser={name='adm',lr=0.1}",
            "train.optimiser={name='adam',lr=-1}",
            "train.optimiser={name='adam'}",
            "train.optimiser={lr=0.1}",
            "train.optimiser=adam",
            "train.schedule={name='cosin'}",
            "train.schedule={name='cosine',warmup=-3}",
            "train.stages={divide=0.5}",
            "train.clip=0",
            "train.clop=1",
            "train.epochs=3",
            "train.updates=0",
            "train.updates=1.5",
            "train.precision=float8",
            "train.weights=worst",
            "train.weights=average",
            "train.monitor=lss",
            "train.seed=-1",
            "train.seed=99999999999999999999999",
            "train.ema=2.0",
            "train.keep=1",
            "train.patience=0",
            "task=languages",
            "tasks.x=1",
            "figure.metric=loss",
            "about.minutes=-1",
            "about.titel=x",
            "model.kind=text_cnn",
            "model.kind=rnn_lm",
            "model.source=runs/none",
        ],
        "classify": [
            "model.kind=gpt",
            "model.kind=bilstm_crf",
            "model.kind=bahdanau",
            'data.text=["txt"]',
            "data.label=lable",
            'data.text=["text","text","text"]',
            "data.batch=0",
            "data.tokens_per_batch=-4",
            "data.class_weights={good=1.0}",
            "data.class_weights=heavy",
            "data.smoothing=1.0",
            "data.tokeniser=source",
            "data.vectors=none.txt",
            "data.format=xml",
            "data.max_length=0",
            "data.both_orders=true",
            "data.validation=-0.5",
            "train.optimiser={name='sgd',lr=0.1,nesterov=true}",
            "train.stages={unfreeze=1}",
        ],
        "tag": [
            "data.scheme=bieos",
            "data.scheme=bioes",
            "data.tag=7",
            "data.word=0",
            "model.kind=text_cnn",
            "model.hidden=many",
        ],
        "translate": [
            'data.train=["a.txt"]',
            'data.train=["a.txt","b.txt","c.txt"]',
            "data.train=a.txt",
            "data.max_length=1",
            "data.search={width=0}",
            'data.scores=["blue"]',
            "model.score=location_awre",
            "model.weigh=softmx",
            "model.cell=grue",
            "data.generate={name='days',train=10,validation=2,test=2}",
        ],
        "masked": ["data.window=512", "data.window=2", "model.encoder={width=9,heads=2}"],
        "words": [
            "train.optimiser={name='adam',lr=0.1}",
            "data.learn_from=counts",
            "model.kind=glove",
        ],
    }
    return {
        f"{base} {change}": Case(base, (change,))
        for base, some in changes.items()
        for change in some
    }


def _files() -> dict[str, Case]:
    """Files that cannot be read."""
    bad: dict[str, tuple[str, dict[str, str | bytes | None]]] = {
        "a CSV that is not there": ("classify", {"films.csv": None}),
        "an empty CSV": ("classify", {"films.csv": ""}),
        "a CSV of a head alone": ("classify", {"films.csv": "label,text\n"}),
        "a CSV of one class": ("classify", {"films.csv": "label,text\n" + "pos,fine\n" * 9}),
        "a CSV in Latin-1": ("classify", {"films.csv": b"label,text\npos,caf\xe9\nneg,x\n" * 9}),
        "a CSV with NUL": ("classify", {"films.csv": "label,text\npos,a\0b\nneg,x\n"}),
        "a CSV with a short row": ("classify", {"films.csv": "label,text\npos,fine\nneg\n"}),
        "a CSV with an open quote": ("classify", {"films.csv": 'label,text\npos,"fine\nneg,x\n'}),
        "a CSV of empty texts": ("classify", {"films.csv": "label,text\n" + "pos,\nneg,\n" * 9}),
        "a folder in place of a text": ("language", {"text.txt": None}),
        "an empty text": ("language", {"text.txt": ""}),
        "a text of one letter": ("language", {"text.txt": "a"}),
        "a text in UTF-16": ("language", {"text.txt": "to be".encode("utf-16")}),
        "CoNLL with columns missing": ("tag", {"tags.conll": "John B-PER\nSmith\n\n"}),
        "CoNLL with tags of no scheme": ("tag", {"tags.conll": "John PERSON\n\n" * 9}),
        "CoNLL with a chunk that does not begin": ("tag", {"tags.conll": "John I-PER\n\n" * 9}),
        "an empty CoNLL": ("tag", {"tags.conll": "\n\n"}),
        "sides of different length": ("translate", {"b.txt": "x y z\n" * 15}),
        "a side that is empty": ("translate", {"a.txt": "\n" * 16}),
        "a side that is not there": ("translate", {"b.txt": None}),
    }
    return {name: Case(base, files=files) for name, (base, files) in bad.items()}


def _texts() -> dict[str, Case]:
    """Recipes that are not TOML, or lack a table."""
    cut = {
        "no TOML": ("[model]", "[model"),
        "a value without quotes": ('"language_model"', "language model"),
        "no task": ('task = "language_model"\n', ""),
        "no data": ("[data]\n", "[date]\n"),
        "no kind": ('kind = "gpt"\n', ""),
        "no train": ("[train]\n", "[training]\n"),
        "a key twice": ("batch = 2\n", "batch = 2\nbatch = 3\n"),
        "nothing at all": (BASES["language"], ""),
    }
    return {name: Case("language", replaced=pair) for name, pair in cut.items()}


CASES: dict[str, Case] = {**_recipes(), **_files(), **_texts()}
