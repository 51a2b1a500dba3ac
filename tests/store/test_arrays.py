"""An array of texts arrives as it was sent."""

from __future__ import annotations

import psycopg
from hypothesis import HealthCheck, settings

from tenure.store.arrays import Texts, register
from tests.support.properties import given, st

members = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(given_members=st.lists(members))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_array_arrives_as_it_was_sent(dsn: str, given_members: list[str | None]) -> None:
    with psycopg.connect(dsn) as taught, psycopg.connect(dsn) as plain:
        register(taught)
        for conn in (taught, plain):
            row = conn.execute("select %s::text[], array_ndims(%s::text[])", [Texts(given_members)] * 2).fetchone()
            assert row == (given_members, 1 if given_members else None)
