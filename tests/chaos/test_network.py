"""The network of a run: what is done to one way is not done to the others, and is over when it should be."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from tenure.chaos.network import Network, Way

LONG = 3600.0


@pytest.fixture
def network(dsn: str) -> Iterator[Network]:
    with Network(dsn, workers=2, producers=1) as network:
        yield network


def passes(way: Way) -> bool:
    try:
        with psycopg.connect(way.proxy.dsn()) as conn:
            return conn.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def test_what_is_done_to_one_is_not_done_to_the_others(network: Network) -> None:
    one, other = network.workers
    one.disturb("refuse", LONG, alone=True)
    assert [passes(way) for way in network.ways] == [False, True, True]
    assert (one.whole, other.whole) == (False, True)
    network.heal()
    assert [passes(way) for way in network.ways] == [True, True, True]
    assert one.whole


def test_what_is_done_to_all_spares_whoever_has_a_fault_alone(network: Network) -> None:
    one, _ = network.workers
    one.disturb("refuse", LONG, alone=True)
    network.disturb("reset", 1.0)
    assert [passes(way) for way in network.ways] == [False, False, False]
    network.heal(time.monotonic() + 2.0)
    assert [passes(way) for way in network.ways] == [False, True, True], "that one's own fault lasts longer"


def test_a_fault_is_healed_when_its_time_is_over_and_not_before(network: Network) -> None:
    network.disturb("refuse", LONG)
    network.heal(time.monotonic())
    assert not any(passes(way) for way in network.ways)
    network.heal(time.monotonic() + LONG)
    assert all(passes(way) for way in network.ways)


def test_a_drop_closes_what_is_open_and_nothing_else(network: Network) -> None:
    one, other = (psycopg.connect(way.proxy.dsn(), autocommit=True) for way in network.workers)
    with one, other:
        network.workers[0].disturb("drop", LONG, alone=True)
        with pytest.raises(psycopg.OperationalError):
            one.execute("select 1")
        assert other.execute("select 1").fetchone() == (1,)
    assert passes(network.workers[0])


def test_a_process_that_begins_has_nothing_of_what_was_done_to_another_alone(network: Network) -> None:
    one, other = network.workers
    one.disturb("refuse", LONG, alone=True)
    psycopg.connect(one.entered()).close()
    assert one.whole
    network.disturb("refuse", LONG)
    assert other.entered()
    assert not passes(other), "what is done to all is done to it, too"
