"""Judges an interleaving: there must be an order in which the sessions could have come one by one, with the same answers.

Who had ended before another one began comes before it in that order, too. Each key is judged by itself: a batch promises
nothing about several jobs at once. What may differ from all orders is said by contract, and is three things:

- Claim, sweep, redrive and prune pass over what is locked, and a heartbeat says so. Beside a transaction that may have
  locked it they may have found nothing; the others must then have come as if these had not been there.
- Where a heartbeat finds the row locked, and the lease that others see is over, it says that it is lost: it cannot know
  that it is being extended. That is on the safe side, and for a worker whose own heartbeat takes longer than its lease.
- What was rolled back, or whose session was killed, was not there at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations

from tests.permutations.acts import LOOKING, PASSING, Told, may_lock, passed_over
from tests.permutations.interleaving import Played, Scene
from tests.permutations.orders import TIME
from tests.permutations.pictures import PARTS, about, key_of
from tests.permutations.serial import Outcome, serial
from tests.permutations.stage import Stage


def hold_all(stage: Stage, scenes: Iterable[Scene]) -> None:
    """Play interleavings, and see of each that it ends as if one session had come after the other."""
    for scene in scenes:
        hold(stage, scene)


def hold(stage: Stage, scene: Scene) -> None:
    """The same of one."""
    try:
        played = stage.play(scene)
    except AssertionError as error:
        raise AssertionError(f"{scene}: {error}") from error
    if played is not None:
        for part in PARTS:
            assert any(_same(played, one, part) for one in _one_by_one(scene, played, part)), _said(scene, played, part)
        impatient = [nth for nth in played.waited if scene.acts[nth] in PASSING]
        assert not impatient, f"{scene}: {scene.acts[impatient[0]]} waits"


def _same(played: Played, one_by_one: Outcome, part: str) -> bool:
    """Whether it came to the same for this part."""
    return played.kept[part] == one_by_one.kept[part] and all(
        about(told, part) == about(played.told[nth], part) for nth, told in one_by_one.told.items()
    )


def _one_by_one(scene: Scene, played: Played, part: str) -> Iterator[Outcome]:
    """What it may have come to: in each order of those that committed, with or without those that passed over."""
    before = _before(scene, played)
    for there in _were_there(scene, played, part):
        for order in permutations([*there, TIME] if TIME in scene.order else there):
            if not any((later, earlier) in before for earlier, later in combinations(order, 2)):
                yield serial(scene.start, scene.acts, order)


def _were_there(scene: Scene, played: Played, part: str) -> Iterator[list[int]]:
    """Those that committed, and those but for some that have passed over the key's rows."""
    key = key_of(part)
    may_miss = [
        nth
        for nth in played.committed
        if _may_miss(scene, scene.acts[nth], about(played.told[nth], key)) and _beside_a_lock(scene, played, nth, key)
    ]
    for number in range(len(may_miss) + 1):
        for missing in combinations(may_miss, number):
            yield [nth for nth in played.committed if nth not in missing]


def _may_miss(scene: Scene, act: str, told: Told) -> bool:
    """Whether it may have passed over the rows, or taken a lease for lost whose extension it could not see."""
    return passed_over(act, told) or (act == "extend" and TIME in scene.order and not told)


def _before(scene: Scene, played: Played) -> set[tuple[int, int]]:
    """Of whom it is certain that one came before the other; of those that look at leases, whether that was in time."""
    at = {moment: place for place, moment in enumerate(played.log)}
    both = permutations(played.committed, 2)
    pairs = {(one, other) for one, other in both if at["ended", one] < at["begun", other]}
    if (passed := at.get(("ended", TIME))) is not None:
        looking = [nth for nth in played.committed if scene.acts[nth] in LOOKING]
        pairs |= {(nth, TIME) if at["answered", nth] < passed else (TIME, nth) for nth in looking}
    return pairs


def _beside_a_lock(scene: Scene, played: Played, nth: int, key: str) -> bool:
    """Whether one was under way that may have locked rows of this key, when this one said what it had to say."""
    earlier = played.log[: played.log.index(("begun", nth))]
    return any(
        what == "begun"
        and ("ended", other) not in earlier
        and (other not in played.told or may_lock(scene.acts[other], about(played.told[other], key)))
        for what, other in earlier
    )


def _said(scene: Scene, played: Played, part: str) -> str:
    def told(answers: dict[int, Told]) -> str:
        return f"    { ({nth: about(answer, part) for nth, answer in answers.items()}) }"

    lines = [f"{scene}: of {part} there is", f"  {played.kept[part]}", told(played.told), "and one by one it would be"]
    for one in _one_by_one(scene, played, part):
        lines += [f"  {one.kept[part]}", told(one.told)]
    return "\n".join(lines)
