"""The OpenAPI file: whatever it allows, and whatever it does not, makes no server error."""

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.serve.live import Live

FEW = hypothesis.settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    derandomize=True,
    database=None,
)
CHECKS = [schemathesis.checks.not_a_server_error, response_schema_conformance]


# other threads of this process, the server's among them, draw while a case is made
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_a_server_error(mode: GenerationMode, live: Live) -> None:
    schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
    asked: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and operation.method.upper() == "GET":
            continue

        @FEW
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            if case.body != schemathesis.core.NOT_SET and isinstance(case.body, dict):
                case.body["model"] = "bahdanau" if "translate" in case.path else "gpt"
            answer = case.call(timeout=30)
            asked.setdefault(case.path, set()).add(answer.status_code)
            case.validate_response(answer, checks=CHECKS)

        ask()
    assert {"/v1/completions", "/api/translate", "/api/attention", "/api/intervene"} <= asked.keys()
    if mode is GenerationMode.NEGATIVE:
        assert all(statuses & {400, 422} for statuses in asked.values())
