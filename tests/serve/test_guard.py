"""The API key is compared whole."""

import random
import string

import pytest

from regard.serve.errors import Refused
from regard.serve.guard import Doors, Headers

KEY = "a-key-that-nobody-guesses"
LETTERS = string.ascii_letters + string.digits + "-_"


def allows(key: str) -> bool:
    """Is a request with this key let in?"""
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
    try:
        Doors(key=KEY).check(Headers(headers), "/v1/models")
    except Refused as refused:
        return refused.code != "invalid_api_key"
    return True


def test_a_thousand_random_keys_are_refused() -> None:
    draw = random.Random(0)
    keys = {"".join(draw.choices(LETTERS, k=draw.choice([1, len(KEY), 40]))) for _ in range(1500)}
    assert len(keys) > 1000
    assert not any(map(allows, keys))
    assert allows(KEY)


@pytest.mark.parametrize("place", range(len(KEY)))
def test_a_key_with_one_other_letter_or_a_piece_of_the_key_is_refused(place: int) -> None:
    assert not any(allows(KEY[:place] + other + KEY[place + 1 :]) for other in "#7Z")
    assert not allows(KEY[:place])
    assert not allows(KEY[place + 1 :])
