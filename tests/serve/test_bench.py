"""Parts of bench/serve.py in a small form: what they count must hold; times are for the bench."""

import asyncio

import pytest

from bench.serve import Place, Row, cancelled, slow, together
from regard.serve import Limits
from tests.serve.conftest import Start
from tests.serve.live import Live, soon


def place(live: Live, model: str) -> Place:
    host, port = live.address
    return Place(host, port, model)


def rows(found: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in found}


@pytest.mark.parametrize("model", ["gpt", "rnn"])
def test_texts_at_the_same_time_share_their_steps_and_are_the_same_texts(
    model: str, live: Live
) -> None:
    found = rows(asyncio.run(together(place(live, model), texts=16, tokens=32)))
    assert found["the same texts as alone"].holds
    assert float(found["tokens to a step"].value) > 4


def test_requests_that_are_given_up_leave_nothing_behind(live: Live) -> None:
    found = asyncio.run(cancelled(place(live, "gpt"), clients=8, requests=80, tokens=8))
    assert "no 5xx" in {row.goal for row in found}
    assert all(row.holds for row in found if row.goal == "no 5xx")
    engine = live.server.engine
    assert soon(lambda: engine.queued == 0 and engine.writing == 0, 1.0)


def test_slow_sockets_are_closed_and_others_are_answered(start: Start) -> None:
    quick = start(limits=Limits(head_seconds=1.0), only="gpt")
    found = asyncio.run(slow(place(quick, "gpt"), sockets=40, within=5, requests=5))
    assert found[0].holds, found[0].value
