"""Whatever the description of the API allows or forbids, no answer is a fault of the service."""

from contextlib import nullcontext, suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serve.asking import PATIENCE

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
def test_the_service_keeps_to_its_description(mode: GenerationMode, address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    tried = 0

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def keeps(case: Any) -> None:
            nonlocal tried
            tried += 1
            case.call_and_validate(checks=CHECKS, timeout=PATIENCE)

        # Where there is nothing to say, nothing forbidden can be said.
        with suppress(Unsatisfiable) if mode == GenerationMode.NEGATIVE else nullcontext():
            keeps()
    assert tried > 100
