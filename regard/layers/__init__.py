"""What models are made of: attention with its projections, positions, embeddings, recurrence."""

from regard.layers.block import DecoderBlock, EncoderBlock, Residual
from regard.layers.cache import Cache
from regard.layers.embedding import SegmentEmbedding, TokenEmbedding
from regard.layers.feedforward import ACTIVATIONS, FeedForward, GatedFeedForward
from regard.layers.multihead import CrossAttention, SelfAttention
from regard.layers.position import POSITIONS, Learned, Rotary, Sinusoidal
from regard.layers.recurrent import CELLS, Encoded, RecurrentEncoder
from regard.layers.source_memory import SourceMemory

__all__ = [
    "ACTIVATIONS",
    "CELLS",
    "POSITIONS",
    "Cache",
    "CrossAttention",
    "DecoderBlock",
    "Encoded",
    "EncoderBlock",
    "FeedForward",
    "GatedFeedForward",
    "Learned",
    "RecurrentEncoder",
    "Residual",
    "Rotary",
    "SegmentEmbedding",
    "SelfAttention",
    "Sinusoidal",
    "SourceMemory",
    "TokenEmbedding",
]
