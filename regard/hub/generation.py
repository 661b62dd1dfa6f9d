"""The settings of `generate` in a folder: those that are followed here, and those that are told.

They stand in generation_config.json, which alone counts where there is one, or in config.json in
older folders.
"""

from collections.abc import Mapping

from regard.hub.store import ConfigValues, read_optional_json, short_json

GENERATION_FILE = "generation_config.json"


def generation_settings(settings: ConfigValues) -> ConfigValues:
    """How outputs are made: the values of generation_config.json, or without it of config.json."""
    path = settings.path.parent / GENERATION_FILE
    if path.exists():
        return ConfigValues(path, read_optional_json(path))
    return settings


def token_numbers(values: ConfigValues, name: str) -> tuple[int, ...]:
    """A setting that is a token, or a list of tokens; none if it is not there."""
    found = values.values.get(name)
    every = [] if found is None else found if isinstance(found, list) else [found]
    if len(every) > _MOST_TOKENS:
        raise values.wrong(name, found, f"at most {_MOST_TOKENS} tokens")
    each = (ConfigValues(values.path, {name: token}).integer(name) for token in every)
    return tuple(dict.fromkeys(each))


def banned_tokens(values: ConfigValues, ends: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens that are never written: single bad words, which an end is not, and suppressed ones."""
    words = values.values.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(each, list) for each in words):
        raise values.wrong("bad_words_ids", words, "a list of lists of tokens")
    singles = ConfigValues(values.path, {"bad_words_ids": [w[0] for w in words if len(w) == 1]})
    bad = [token for token in token_numbers(singles, "bad_words_ids") if token not in ends]
    suppressed = token_numbers(values, "suppress_tokens")
    if set(suppressed) & set(ends):
        raise values.wrong("suppress_tokens", list(suppressed), "tokens that do not end outputs")
    return tuple(dict.fromkeys((*bad, *suppressed)))


def long_bad_words(values: ConfigValues) -> bool:
    """Are there bad words of several tokens?"""
    words = values.values.get("bad_words_ids")
    return isinstance(words, list) and any(isinstance(w, list) and len(w) > 1 for w in words)


def unfollowed(values: ConfigValues, known: Mapping[str, object], what: str = "") -> list[str]:
    """What to tell of settings that change outputs there and are not followed here.

    `known` has the value of each that changes nothing.
    """
    return [
        f"{values.path.name}: {name}={short_json(values.values[name])} is not followed here{what}"
        for name, nothing in known.items()
        if values.has(name) and values.values[name] not in (nothing, [], {})
    ]


NEVER_FOLLOWED: dict[str, object] = {
    "do_sample": False,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "penalty_alpha": 0.0,
    "guidance_scale": 1.0,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
    "watermarking_config": None,
    "renormalize_logits": False,
    "num_return_sequences": 1,
    "stop_strings": None,
    "token_healing": False,
    "max_time": None,
}
"""Settings that nothing here follows, and the value of each that changes nothing."""

_MOST_TOKENS = 4096
