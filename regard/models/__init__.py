"""Every model, one readable file each. A model knows nothing of loss, optimiser, files or text."""

from torch import nn

from regard.models.attention_pool import AttentionPooling
from regard.models.attention_rnn_lm import AttentionRNNLM
from regard.models.awd_lstm import AWDLSTM
from regard.models.bag_of_ngrams import BagOfNgrams
from regard.models.bahdanau import Bahdanau
from regard.models.bert import BERT
from regard.models.bert_classifier import BERTClassifier
from regard.models.bert_reader import BERTReader
from regard.models.bert_tagger import BERTTagger
from regard.models.bilstm_crf import BiLSTMCRF
from regard.models.cbow import CBOW
from regard.models.clockwork_rnn import ClockworkRNN
from regard.models.elmo import ELMo
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.glove import GloVe
from regard.models.gpt import GPT
from regard.models.gpt_classifier import GPTClassifier
from regard.models.han import HAN
from regard.models.hard_attention import HardAttention
from regard.models.hred import HRED
from regard.models.lstmn import LSTMN
from regard.models.luong import Luong
from regard.models.neural_cache import NeuralCache
from regard.models.online_aligner import OnlineAligner
from regard.models.pointer_generator import PointerGenerator
from regard.models.pointer_lm import PointerLM
from regard.models.question_attention import QuestionAttention
from regard.models.rnn_lm import RNNLM
from regard.models.skip_gram import SkipGram
from regard.models.subword_skip_gram import SubwordSkipGram
from regard.models.text_cnn import TextCNN
from regard.models.text_transformer import TextTransformer
from regard.models.transformer import Transformer
from regard.models.ulmfit import ULMFiT
from regard.models.window_lm import WindowLM

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
}
"""Every model by the name a recipe calls it."""
