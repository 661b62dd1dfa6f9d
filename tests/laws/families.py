"""Which laws each model is held to: every row of MODELS is in one family.

A family is a file of laws that runs over all of its models. A new model goes into the family whose
laws it must keep; `test_families.py` fails until it does.
"""

FAMILIES: dict[str, tuple[str, ...]] = {
    "word vectors": ("skip_gram", "cbow", "glove", "subword_skip_gram"),
    "language models": (
        "window_lm",
        "rnn_lm",
        "awd_lstm",
        "attention_rnn_lm",
        "pointer_lm",
        "neural_cache",
        "lstmn",
        "clockwork_rnn",
        "hred",
        "gpt",
        "memn2n_lm",
    ),
    "text encoders": ("elmo", "bert", "bert_reader"),
    "translators": (
        "encoder_decoder",
        "bahdanau",
        "hard_attention",
        "luong",
        "online_aligner",
        "pointer_generator",
        "transformer",
    ),
    "captioners": ("show_and_tell", "show_attend_tell", "hard_attend_tell"),
    "classifiers": (
        "bert_classifier",
        "bert_tagger",
        "bag_of_ngrams",
        "text_cnn",
        "attention_pool",
        "question_attention",
        "han",
        "text_transformer",
        "ulmfit",
        "gpt_classifier",
        "bilstm_crf",
    ),
    "readers": ("memn2n", "dmn", "snail", "snail_policy"),
    "memory machines": ("sequence_lstm", "ntm", "dnc", "sam"),
}
"""The names in MODELS, by family."""
