"""Kinds: which handlers can be one, and what their door refuses. The queue of these apps cannot be reached."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tenure import Job, Tenure
from tenure.errors import ConfigError, InvalidArguments, InvalidPayload, PayloadTooLarge, Refused, TenureError
from tenure.kind import Kind

NOWHERE = "host=/nowhere dbname=none"


@pytest.fixture
def app() -> Tenure:
    return Tenure(NOWHERE)


@pytest.fixture
def kind(app: Tenure) -> Kind:
    @app.job()
    def number(n: int) -> None: ...

    return number


@pytest.fixture
def other(app: Tenure) -> Kind:
    @app.job()
    def text(s: str) -> None: ...

    return text


def many(kind: Kind, requests: Any, way: str) -> None:
    if way == "sync":
        kind.enqueue_many_sync(requests)
    else:
        asyncio.run(kind.enqueue_many(requests))


def synchronous() -> Iterator[int]:
    yield 1


async def asynchronous() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [synchronous, asynchronous])
@pytest.mark.parametrize("options", [{}, {"cpu": True}, {"effect": True}], ids=["plain", "cpu", "effect"])
def test_a_generator_function_is_no_handler(
    app: Tenure, handler: Callable[[], object], options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="is a generator function"):
        app.job(**options)(handler)
    assert app.kinds == {}


@pytest.mark.parametrize("version", [True, "1", 1.0, None, 0, 1001])
def test_a_version_is_a_whole_number_in_its_range(app: Tenure, version: Any) -> None:
    with pytest.raises(ConfigError, match="version"):
        app.job(version=version)(test_a_version_is_a_whole_number_in_its_range)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_many_takes_no_request_of_another_kind(kind: Kind, other: Kind, way: str) -> None:
    with pytest.raises(Refused, match="Request 2: It was made by <Kind text v1 on default>, not by <Kind number"):
        many(kind, [kind.request(1), other.request("x")], way)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_many_takes_no_request_of_a_namesake_in_another_app(kind: Kind, way: str) -> None:
    @Tenure(NOWHERE).job()
    def number(n: str) -> None: ...

    with pytest.raises(Refused, match="Request 1: It was made by"):
        many(kind, [number.request("x")], way)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("requests", [[5], [None], ["n"], [[("n", 1)]], [{1: 2}]])
def test_many_takes_requests_and_mappings(kind: Kind, requests: Any, way: str) -> None:
    with pytest.raises(Refused, match="Request 1: It is neither"):
        many(kind, requests, way)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"n": "many"}, InvalidArguments, "The arguments do not fit number: n: "),
        ({"n": float("nan")}, InvalidPayload, "The value cannot be written"),
        ({"n": 1, "priority": 12}, Refused, "Priority 12 is not one"),
        ({"n": 1, "delay": "soon"}, ConfigError, "delay: 'soon' is not a duration"),
    ],
    ids=["arguments", "payload", "option", "duration"],
)
def test_many_names_the_request_that_it_was_stopped_by(
    kind: Kind, wrong: dict[str, Any], error: type[TenureError], told: str, way: str
) -> None:
    with pytest.raises(error, match=f"^Request 3: {told}") as caught:
        many(kind, [{"n": 1}, kind.request(2), wrong, {"n": 4}], way)
    assert caught.value.request == 3


@pytest.mark.parametrize("way", ["sync", "async"])
def test_many_names_a_request_that_could_not_be_made_on_the_way(kind: Kind, way: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^Request 2: ") as caught:
        many(kind, (kind.request(n) for n in (1, "x", 3)), way)
    assert caught.value.request == 2


def test_a_request_alone_has_no_place(kind: Kind) -> None:
    with pytest.raises(InvalidArguments, match=r"^The arguments do not fit") as caught:
        kind.request("x")
    assert caught.value.request is None


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"lease": "1ms"}, {"backoff": 5}, {"key_ttl": "soon"}], ids=str
)
def test_an_option_that_cannot_be_names_its_kind(app: Tenure, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^mail\.send: {next(iter(options))}"):
        app.job(name="mail.send", **options)(test_a_request_alone_has_no_place)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_many_takes_a_list(kind: Kind, way: str) -> None:
    for requests in (kind.request(1), {"n": 1}, "n", 5, None):
        with pytest.raises(Refused, match="no list of requests"):
            many(kind, requests, way)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key": 5}, Refused),
        ({"priority": "5"}, Refused),
        ({"priority": True}, Refused),
        ({"delay": True}, ConfigError),
        ({"at": "tomorrow"}, Refused),
        ({"expires": [5]}, ConfigError),
        ({"queue": 5}, ConfigError),
        ({"queue": ""}, ConfigError),
        ({"headers": [1]}, Refused),
        ({"headers": {"a": itertools.count()}}, InvalidPayload),
        ({"headers": {"a": "x" * 16384}}, PayloadTooLarge),
    ],
)
def test_options_that_cannot_be_are_refused(kind: Kind, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        kind.request(1, **options)
    with pytest.raises(error):
        kind.enqueue_many_sync([{"n": 1, **options}])


def test_an_iterator_is_no_argument(app: Tenure) -> None:
    @app.job()
    def takes(numbers: list[int]) -> None: ...

    numbers = iter([1, 2])
    with pytest.raises(InvalidPayload, match="an iterator"):
        takes.request(numbers)
    assert list(numbers) == [1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": 5}, "is no effect"),
        ({"effect": True, "group": 5, "cpu": True}, "one job at a time"),
        ({"effect": True, "group": 0}, "from 1 to 50"),
        ({"effect": True, "group": 51}, "from 1 to 50"),
        ({"effect": True, "group": True}, "from 1 to 50"),
        ({"effect": True, "group": "5"}, "from 1 to 50"),
    ],
    ids=str,
)
def test_a_group_that_cannot_be_is_refused(app: Tenure, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):

        @app.job(**options)
        async def work(tx: Any) -> None: ...


def test_effects_are_not_grouped_unless_the_kind_says_so(app: Tenure) -> None:
    @app.job(effect=True)
    async def single(tx: Any) -> None: ...

    @app.job(effect=True, group=20)
    async def grouped(tx: Any) -> None: ...

    assert (single.group, grouped.group) == (1, 20)


def test_several_jobs_are_for_a_batch_handler() -> None:
    app = Tenure()
    with pytest.raises(ConfigError, match=r"asks for several jobs \(jobs: list\[Job\]\)"):

        @app.job()
        async def send(jobs: list[Job], order_id: int) -> None: ...
