"""What models return: typed, frozen values that compute their loss against a batch.

Every model has one signature, `model(batch, carry=None) -> ModelOutput`. The batch is a mapping of
named tensors; the carry is the state that the batch before left (`output.carry`), None for models
without state. A task names the kind that it needs: `NextTokens.of(model, batch, carry)` calls the
model, checks the kind and has its type. `output.loss(batch)` is the loss, summed over the batch.

| file | kind | returned by |
| --- | --- | --- |
| output.py | `ModelOutput` | the base of all |
| next_token.py | `NextTokens`: `SoftmaxOutput` | language models, translators |
| pointer.py | `NextTokens`: `ExtendedSoftmax`, `PointerMixture` | models that copy tokens |
| both_directions.py | `BothDirections` | ELMo: the next and the previous word |
| masked_lm.py | `MaskedLMOutput`, with `MaskedWords` | BERT |
| classes.py | `Classes` | classifiers |
| tags.py, crf.py | `Tags`: `IndependentTags`, `ChainTags` | taggers |
| bits.py | `Bits` | memory machines |
| spans.py | `Spans` | readers of passages |
| word_pairs.py | `WordPairs`: `NegativeSampling`, `LogCounts` | word vectors |

The words are those of the field. `nll` is the negative log-likelihood, summed over all targets but
`IGNORE` (core/padding.py); `logits` are unnormalised log-probabilities; `auxiliary` is a further
loss that a model adds while it trains.
"""
