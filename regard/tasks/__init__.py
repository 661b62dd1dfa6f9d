"""Tasks: from a recipe's data to batches, from a batch to a loss, from a loss to metrics."""

from regard.tasks.algorithm import AlgorithmTask
from regard.tasks.answer import Answering
from regard.tasks.bandits import Bandits
from regard.tasks.bidirectional_lm import BidirectionalLM
from regard.tasks.caption import Captioning
from regard.tasks.classify import Classification
from regard.tasks.few_shot import FewShot
from regard.tasks.language_model import LanguageModelling
from regard.tasks.masked_lm import MaskedLM
from regard.tasks.stories import StoryAnswering
from regard.tasks.tag import Tagging
from regard.tasks.task import OpenTask
from regard.tasks.translate import Translation
from regard.tasks.word_vectors import WordVectors

TASKS: dict[str, type[OpenTask]] = {
    "language_model": LanguageModelling,
    "bidirectional_lm": BidirectionalLM,
    "masked_lm": MaskedLM,
    "translate": Translation,
    "word_vectors": WordVectors,
    "classify": Classification,
    "tag": Tagging,
    "answer": Answering,
    "algorithm": AlgorithmTask,
    "stories": StoryAnswering,
    "few_shot": FewShot,
    "bandits": Bandits,
    "caption": Captioning,
}
"""Every task by the name a recipe calls it."""
