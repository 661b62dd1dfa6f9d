"""Every model, one readable file each. A model is independent of optimisers, files and text."""

from torch import nn

from regard.models.language.attention_rnn_lm import AttentionRNNLM
from regard.models.language.awd_lstm import AWDLSTM
from regard.models.language.clockwork_rnn import ClockworkRNN
from regard.models.language.gpt import GPT
from regard.models.language.hred import HRED
from regard.models.language.lstmn import LSTMN
from regard.models.language.neural_cache import NeuralCache
from regard.models.language.pointer_lm import PointerLM
from regard.models.language.rnn_lm import RNNLM
from regard.models.language.window_lm import WindowLM
from regard.models.memory.dmn import DMN
from regard.models.memory.dnc import DNC
from regard.models.memory.memn2n import MemN2N
from regard.models.memory.memn2n_lm import MemN2NLM
from regard.models.memory.ntm import NTM
from regard.models.memory.sam import SAM
from regard.models.memory.sequence_lstm import SequenceLSTM
from regard.models.memory.snail import SNAIL
from regard.models.memory.snail_policy import SnailPolicy
from regard.models.text.attention_pool import AttentionPooling
from regard.models.text.bag_of_ngrams import BagOfNgrams
from regard.models.text.bert import BERT
from regard.models.text.bert_classifier import BERTClassifier
from regard.models.text.bert_reader import BERTReader
from regard.models.text.bert_tagger import BERTTagger
from regard.models.text.bilstm_crf import BiLSTMCRF
from regard.models.text.elmo import ELMo
from regard.models.text.gpt_classifier import GPTClassifier
from regard.models.text.han import HAN
from regard.models.text.question_attention import QuestionAttention
from regard.models.text.text_cnn import TextCNN
from regard.models.text.text_transformer import TextTransformer
from regard.models.text.ulmfit import ULMFiT
from regard.models.translation.bahdanau import Bahdanau
from regard.models.translation.encoder_decoder import EncoderDecoder
from regard.models.translation.hard_attention import HardAttention
from regard.models.translation.luong import Luong
from regard.models.translation.online_aligner import OnlineAligner
from regard.models.translation.pointer_generator import PointerGenerator
from regard.models.translation.transformer import Transformer
from regard.models.vision.hard_attend_tell import HardAttendTell
from regard.models.vision.show_and_tell import ShowAndTell
from regard.models.vision.show_attend_tell import ShowAttendTell
from regard.models.words.cbow import CBOW
from regard.models.words.glove import GloVe
from regard.models.words.skip_gram import SkipGram
from regard.models.words.subword_skip_gram import SubwordSkipGram

MODELS: dict[str, type[nn.Module]] = {
    "skip_gram": SkipGram,
    "cbow": CBOW,
    "glove": GloVe,
    "subword_skip_gram": SubwordSkipGram,
    "window_lm": WindowLM,
    "rnn_lm": RNNLM,
    "awd_lstm": AWDLSTM,
    "attention_rnn_lm": AttentionRNNLM,
    "pointer_lm": PointerLM,
    "neural_cache": NeuralCache,
    "lstmn": LSTMN,
    "clockwork_rnn": ClockworkRNN,
    "hred": HRED,
    "gpt": GPT,
    "elmo": ELMo,
    "bert": BERT,
    "bert_classifier": BERTClassifier,
    "bert_tagger": BERTTagger,
    "bert_reader": BERTReader,
    "encoder_decoder": EncoderDecoder,
    "bahdanau": Bahdanau,
    "hard_attention": HardAttention,
    "luong": Luong,
    "online_aligner": OnlineAligner,
    "pointer_generator": PointerGenerator,
    "transformer": Transformer,
    "bag_of_ngrams": BagOfNgrams,
    "text_cnn": TextCNN,
    "attention_pool": AttentionPooling,
    "question_attention": QuestionAttention,
    "han": HAN,
    "text_transformer": TextTransformer,
    "ulmfit": ULMFiT,
    "gpt_classifier": GPTClassifier,
    "bilstm_crf": BiLSTMCRF,
    "sequence_lstm": SequenceLSTM,
    "ntm": NTM,
    "dnc": DNC,
    "sam": SAM,
    "memn2n": MemN2N,
    "memn2n_lm": MemN2NLM,
    "dmn": DMN,
    "snail": SNAIL,
    "snail_policy": SnailPolicy,
    "show_and_tell": ShowAndTell,
    "show_attend_tell": ShowAttendTell,
    "hard_attend_tell": HardAttendTell,
}
"""Every model by the name a recipe calls it."""
