"""The signature of a batch handler: what it can be, and how it says what a job's arguments are."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, NoReturn, NotRequired, Protocol, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, field_validator
from typing_extensions import TypedDict

from tenure import ConfigError, InvalidArguments, Job, Tenure
from tenure.kind import Kind
from tests.support.properties import given, st


@dataclass
class Mail:
    to: str
    copies: int = 1


class Dict(TypedDict):
    to: str
    copies: NotRequired[int]


class Model(BaseModel):
    to: str
    copies: int = 1


class StrictModel(Model):
    model_config = ConfigDict(extra="forbid")


@dataclass
class Tree:
    name: str
    below: list[Tree] = field(default_factory=list)


@dataclass
class Empty: ...


class Row(NamedTuple):
    to: str


@dataclass
class Unknown:
    lock: Callable[[int], str]
    other: Exception


class Rude(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _refuse(cls, n: int) -> int:
        if n < 0:
            raise KeyError("a validator of the user's own")
        return n


@pytest.fixture
def app() -> Tenure:
    return Tenure("host=/nowhere dbname=none")


def kind_of(app: Tenure, item: Any) -> Kind:
    async def send(batch: list[Any]) -> None: ...

    send.__annotations__["batch"] = list[item]
    return app.job(batch=10)(send)


@pytest.mark.parametrize("item", [Mail, Dict, Model, StrictModel])
def test_the_fields_of_an_item_are_the_arguments_of_a_job(app: Tenure, item: Any) -> None:
    kind = kind_of(app, item)
    assert kind.request("a@example.org", copies=2).job.payload == '{"to": "a@example.org", "copies": 2}'
    assert list(kind.arguments.schema["properties"]) == ["to", "copies"]
    assert kind.arguments.schema["required"] == ["to"]
    for wrong in ({}, {"to": 1}, {"to": "a", "copies": "many"}):
        with pytest.raises(InvalidArguments, match=r"do not fit send: (to|copies): "):
            kind.request(**wrong)


@pytest.mark.parametrize("item", [Mail, Dict, StrictModel])
def test_an_unknown_name_is_refused(app: Tenure, item: Any) -> None:
    kind = kind_of(app, item)
    with pytest.raises(InvalidArguments, match="surplus"):
        kind.request("a", surplus="secret")
    assert kind.arguments.schema["additionalProperties"] is False


def test_a_model_without_a_word_about_it_takes_any_name(app: Tenure) -> None:
    assert kind_of(app, Model).request("a", surplus=1).job.payload == '{"to": "a", "surplus": 1}'


def test_a_handler_gets_instances(app: Tenure) -> None:
    assert kind_of(app, Mail).arguments.parse('{"to": "a"}') == {"batch": [Mail("a")]}
    assert kind_of(Tenure("host=/nowhere"), Model).arguments.parse('{"to": "a"}') == {"batch": [Model(to="a")]}


def test_an_item_may_hold_items(app: Tenure) -> None:
    kind = kind_of(app, Tree)
    assert list(kind.arguments.schema["properties"]) == ["name", "below"]
    assert "$defs" in kind.arguments.schema
    kind.request("root", below=[{"name": "leaf"}])


def test_an_item_may_be_empty(app: Tenure) -> None:
    assert kind_of(app, Empty).request().job.payload == "{}"


def test_jobs_come_beside_the_items(app: Tenure) -> None:
    @app.job(batch=2)
    def send(mails: list[Mail], jobs: list[Job] | None = None) -> None: ...

    assert (send.arguments.job, send.arguments.names) == ("jobs", ("to", "copies"))


class Unchecked(Protocol):
    """Nobody can tell what is of this type while it runs."""

    def __len__(self) -> int: ...


def nothing() -> None: ...
def one(mail: Mail) -> None: ...
def two(mails: list[Mail], others: list[Mail]) -> None: ...
def unknown(mails) -> None: ...  # type: ignore[no-untyped-def]
def numbers(numbers: list[int]) -> None: ...
def anything(items: list[dict[str, Any]]) -> None: ...
def rows(rows: list[Row]) -> None: ...
def either(items: list[Mail | Model]) -> None: ...
def variadic(*mails: list[Mail]) -> None: ...
def named(mails: list[Mail], **more: Any) -> None: ...
def positional(mails: list[Mail], /) -> None: ...
def single_job(mails: list[Mail], job: Job) -> None: ...
def maybe_a_job(mails: list[Mail], job: Job | None = None) -> None: ...
def only_jobs(jobs: list[Job]) -> None: ...
def jobs_twice(jobs: list[Job], more: list[Job]) -> None: ...
def extra(mails: list[Mail], dry: bool = False) -> None: ...
def extra_first(dry: bool, mails: list[Mail]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (nothing, "no parameter gets the items"),
        (one, "its parameter mail is tests.test_items.Mail, and not a list of items"),
        (two, "nothing fills its parameter others: all arguments of a job are fields of its item"),
        (unknown, "its parameter mails has no annotation"),
        (numbers, "the items of numbers are of type int, which is no dataclass, TypedDict or model"),
        (anything, "the items of items are of type dict[str, "),
        (rows, "the items of rows are of type tests.test_items.Row, which is no"),
        (either, "the items of items are of type tests.test_items.Mail | tests.test_items.Model, which is no"),
        (variadic, "its parameter *mails cannot be given by name"),
        (named, "its parameter **more cannot be given by name"),
        (positional, "its parameter mails cannot be given by name"),
        (single_job, "its parameter job is one Job, and there are many: jobs: list[Job]"),
        (maybe_a_job, "its parameter job is one Job"),
        (only_jobs, "no parameter gets the items"),
        (jobs_twice, "the items of more are of type tenure.job.Job, which is no"),
        (extra, "nothing fills its parameter dry: "),
        (extra_first, "nothing fills its parameter dry: "),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.__name__,
)
def test_any_other_signature_is_refused_and_says_what_is_wrong_with_it(
    app: Tenure, handler: Callable[..., Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=r"Write async def send\(mails: list\[Mail\]\)") as caught:
        app.job(batch=10)(handler)
    assert caught.value.what.startswith(f"{handler.__name__} takes batches, but {told}")
    assert app.kinds == {}


def answering(hint: Any) -> Callable[..., Any]:
    async def send(mails: list[Mail]) -> Any: ...

    send.__annotations__["return"] = hint
    return send


@pytest.mark.parametrize(
    "hint", [int, str, dict[str, int], set[int], bool | str, Annotated[int, "sent"], Mail, Iterator]
)
def test_a_handler_that_can_answer_nothing_a_batch_may_is_refused(app: Tenure, hint: Any) -> None:
    with pytest.raises(ConfigError, match=r"send takes batches, but is to return .*Return None, where all") as caught:
        app.job(batch=10)(answering(hint))
    assert inspect.formatannotation(hint) in caught.value.what
    assert app.kinds == {}


@pytest.mark.parametrize(
    "hint",
    [
        None,
        list,
        list[str | Exception],
        Sequence[int],
        Iterable[int],
        tuple[int, ...],
        int | None,
        str | list[str],
        Annotated[list[int], "sent"],
        Any,
        object,
        NoReturn,
        TypeVar("T"),
        Unchecked,
    ],
)
def test_a_handler_that_may_answer_what_a_batch_may_is_taken(app: Tenure, hint: Any) -> None:
    assert app.job(batch=10)(answering(hint)).items is not None


def test_a_handler_that_does_not_say_what_it_answers_is_taken(app: Tenure) -> None:
    def send(mails: list[Mail]):  # type: ignore[no-untyped-def]
        ...

    assert app.job(batch=10)(send).items is not None


def test_fields_that_no_json_fills_are_refused(app: Tenure) -> None:
    with pytest.raises(ConfigError, match="items of send cannot be filled from JSON"):
        kind_of(app, Unknown)


def test_a_field_cannot_have_the_name_of_an_option(app: Tenure) -> None:
    item = dataclasses.make_dataclass("Keyed", [("key", str)])
    with pytest.raises(ConfigError, match="'key', which enqueue uses for itself"):
        kind_of(app, item)


@pytest.mark.parametrize("size", [0, -1, 10_001, True, 2.5, "500"])
def test_a_batch_has_a_size_in_its_range(app: Tenure, size: Any) -> None:
    with pytest.raises(ConfigError, match=r"batch of mail.send is .*, but must be a whole number from 1 to 10000"):
        app.job(name="mail.send", batch=size)(numbers)


@pytest.mark.parametrize("linger", [-1, "61s", "soon", float("inf")])
def test_a_linger_lies_in_its_range(app: Tenure, linger: Any) -> None:
    with pytest.raises(ConfigError, match=r"^linger of mail\.send"):
        app.job(name="mail.send", batch=10, linger=linger)(numbers)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"linger": "50ms"}, "has linger=, but takes no batches"),
        ({"batch": 10, "effect": True}, "is an effect, and takes batches"),
        ({"batch": 10, "cpu": True}, "is to run in a child process, and takes batches"),
        ({"batch": 10, "dedup": lambda to: to}, "has dedup=, but is no effect"),
    ],
    ids=["linger alone", "effect", "cpu", "dedup"],
)
def test_contradictions_are_refused(app: Tenure, options: dict[str, Any], told: str) -> None:
    async def send(mails: list[Mail]) -> None: ...

    with pytest.raises(ConfigError, match=told):
        app.job(**options)(send)
    assert app.kinds == {}


@given(st.lists(st.sampled_from(['{"n": 1}', '{"n": -1}', '{"n": "x"}', "{}"]), max_size=12))
def test_whatever_fits_is_read_and_the_rest_is_told_by_its_place(payloads: list[str]) -> None:
    items = kind_of(Tenure("host=/nowhere"), Rude).items
    assert items is not None
    read, refused = items.parse_all(payloads)
    assert read == [Rude(n=1)] * payloads.count('{"n": 1}')
    assert sorted(refused) == [place for place, payload in enumerate(payloads) if payload != '{"n": 1}']
    for place, error in refused.items():
        assert type(error) is (KeyError if payloads[place] == '{"n": -1}' else InvalidArguments)
