"""Every answer is as the service's OpenAPI document says, to requests that follow it and to others."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import (
    ChecksConfig,
    GenerationConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.config._checks import NegativeDataRejectionConfig

from kvledger.api import ApiSettings, create_app
from kvledger.api.library import Library
from kvledger.core.events import EVENTS
from kvledger.journal import Journal
from kvledger.journal.database import store_url
from tests.support.service import library_over, recorded, served

EXAMPLES = 5
"""Requests of each address and kind, besides some sixty at the limits of its parameters."""

SEED = 4

ENDLESS = "/stream$"
"""The event stream has no end: what it sends is tested where it is read."""


def _document() -> dict[str, Any]:
    """What the service says of itself; it needs no database for that."""
    return create_app(ApiSettings(), Library(Journal(store_url("nowhere.db")))).openapi()


GENERATION = GenerationConfig(deterministic=True, max_examples=EXAMPLES)
# An address or a body may be refused for its length before anybody looks at what is wrong in it.
REFUSED = NegativeDataRejectionConfig(expected_statuses=[400, 403, 404, 405, 409, 410, 413, 414, 415, 422])
PROJECT = ProjectConfig(generation=GENERATION, checks=ChecksConfig(negative_data_rejection=REFUSED))
CONFIG = SchemathesisConfig(seed=SEED, projects=ProjectsConfig(default=PROJECT))
schema = schemathesis.openapi.from_dict(_document(), config=CONFIG).exclude(path_regex=ENDLESS)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    limits = {"requests_per_second": 1_000_000, "audits_waiting": 1_000_000, "audits_kept": 5}
    with (
        library_over(recorded(tmp_path_factory.mktemp("openapi"))) as library,
        served(library, **limits) as service,
    ):
        yield service.url


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@pytest.mark.slow
@schema.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_documented(
    case: schemathesis.Case, address: str, session: requests.Session
) -> None:
    if case.meta is not None and case.meta.generation.mode is schemathesis.GenerationMode.POSITIVE:
        # What a cursor may be no schema can say; that others are refused is tested beside the hostile inputs.
        case.query.pop("cursor", None)
    case.call_and_validate(base_url=address, session=session)


def test_every_kind_of_event_is_documented_with_an_example() -> None:
    schemas = _document()["components"]["schemas"]
    for kind, event_class in EVENTS.items():
        (example,) = schemas[f"{event_class.__name__}Data"]["examples"]
        assert example["kind"] == kind
