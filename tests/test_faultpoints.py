"""Fault points: free when not armed, exact when armed, refused when misspelt."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenure
from tenure import faultpoints
from tenure.errors import ConfigError
from tenure.faultpoints import POINTS, Gate, InjectedError, arm, arm_from, armed, disarm, point

NAME = "claim.after_commit"
OTHER = "settle.before"


@pytest.fixture(autouse=True)
def nothing_armed() -> Iterator[None]:
    disarm()
    yield
    disarm()


def process(script: str, tmp_path: Path, faults: str) -> subprocess.Popen[str]:
    environment = os.environ | {"TENURE_FAULTS": faults, "TENURE_FAULT_LEDGER": str(tmp_path / "ledger.jsonl")}
    return subprocess.Popen(
        [sys.executable, "-c", f"from tenure.faultpoints import point\n{script}"],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ledger(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]


# -- in this process --------------------------------------------------------------------------------------------------


def test_an_unarmed_point_does_nothing() -> None:
    for name in POINTS:
        point(name)


def test_an_armed_point_leaves_the_others_alone() -> None:
    arm(NAME, "raise")
    point(OTHER)
    with pytest.raises(InjectedError, match=NAME):
        point(NAME)


def test_an_arming_happens_once() -> None:
    arm(NAME, "raise")
    with pytest.raises(InjectedError):
        point(NAME)
    point(NAME)


def test_an_arming_counts_arrivals() -> None:
    arm(NAME, "raise@3")
    point(NAME)
    point(NAME)
    with pytest.raises(InjectedError):
        point(NAME)


def test_a_function_is_called_at_its_arrival() -> None:
    calls: list[str] = []
    arm(NAME, lambda: calls.append("here"), at=2)
    point(NAME)
    assert calls == []
    point(NAME)
    point(NAME)
    assert calls == ["here"]


def test_what_a_function_raises_the_point_raises() -> None:
    def cut() -> None:
        raise ConnectionResetError

    arm(NAME, cut)
    with pytest.raises(ConnectionResetError):
        point(NAME)


def test_arming_again_replaces_the_former_action() -> None:
    arm(NAME, "kill")
    arm(NAME, "raise")
    with pytest.raises(InjectedError):
        point(NAME)


def test_a_block_disarms_at_its_end() -> None:
    with armed(NAME, "raise@2"):
        point(NAME)
    point(NAME)


def test_many_threads_set_it_off_once() -> None:
    struck: list[int] = []
    arm(NAME, lambda: struck.append(1), at=50)

    def walk() -> None:
        for _ in range(100):
            point(NAME)

    threads = [threading.Thread(target=walk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert struck == [1]


def test_a_gate_holds_a_thread_until_it_is_opened(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    passed = threading.Event()
    arm(NAME, gate.action)

    def walk() -> None:
        point(NAME)
        passed.set()

    thread = threading.Thread(target=walk)
    thread.start()
    gate.await_arrival()
    assert gate.arrived
    assert not passed.is_set()
    gate.open()
    thread.join()
    assert passed.is_set()


def test_a_gate_nobody_comes_to_times_out(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="nobody arrived"):
        Gate(tmp_path / "gate").await_arrival(timeout=0)


@pytest.mark.parametrize(
    "action",
    ["", "explode", "kill@0", "kill@-1", "kill@x", "kill@", "Kill", "wait", "wait:", "wait:relative/path", "stop:1"],
)
def test_an_unknown_action_is_refused(action: str) -> None:
    with pytest.raises(ConfigError, match="is no fault"):
        arm(NAME, action)


def test_an_unknown_point_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no fault point 'claim\.after'.*claim\.after_commit"):
        arm("claim.after", "kill")


@pytest.mark.parametrize(
    "text",
    [NAME, f"{NAME}=", f"{OTHER}=raise,claim.after=stop", f"{NAME}=stop,{NAME}=kill", f"{OTHER}=raise,{NAME}=boom"],
)
def test_a_malformed_environment_is_refused_and_arms_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match="TENURE_FAULTS"):
        arm_from(text)
    point(NAME)
    point(OTHER)


def test_an_environment_may_arm_several_points_or_none() -> None:
    arm_from("")
    arm_from(f" {NAME}=raise@2, {OTHER}=wait:/a@b/c@7 ,")
    assert {name: arming.at for name, arming in faultpoints._armed.items()} == {NAME: 2, OTHER: 7}


def test_every_point_in_the_code_is_registered() -> None:
    used: set[str] = set()
    for file in Path(tenure.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="point") | ast.Attribute(attr="point"), args=[ast.Constant(value=str(name))]
                ):
                    used.add(name)
    assert used <= set(POINTS)


# -- from outside -----------------------------------------------------------------------------------------------------


def test_a_kill_leaves_a_ledger_line_and_nothing_else(tmp_path: Path) -> None:
    script = f"for n in 1, 2, 3, 4: print(n, flush=True); point({NAME!r})"
    with process(script, tmp_path, f"{NAME}=kill@3") as victim:
        out, _ = victim.communicate(timeout=60)
    assert victim.returncode == -signal.SIGKILL
    assert out.split() == ["1", "2", "3"]
    (line,) = ledger(tmp_path)
    assert line.pop("t_monotonic")
    assert line == {"event": "fault", "point": NAME, "action": "kill", "arrival": 3, "pid": victim.pid}


def test_a_stopped_process_goes_on_when_continued(tmp_path: Path) -> None:
    with process(f"point({NAME!r}); print('went on')", tmp_path, f"{NAME}=stop") as zombie:
        _, status = os.waitpid(zombie.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        zombie.send_signal(signal.SIGCONT)
        out, _ = zombie.communicate(timeout=60)
    assert out == "went on\n"
    assert zombie.returncode == 0


def test_a_process_waits_at_a_gate(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with process(f"point({NAME!r}); print('passed')", tmp_path, f"{NAME}={gate.action}") as waiting:
        gate.await_arrival()
        assert waiting.poll() is None
        gate.open()
        out, _ = waiting.communicate(timeout=60)
    assert out == "passed\n"
    assert [line["action"] for line in ledger(tmp_path)] == [gate.action]


def test_a_process_with_a_misspelt_fault_does_not_start(tmp_path: Path) -> None:
    with process("print('started')", tmp_path, "claim.afterwards=kill") as misled:
        out, err = misled.communicate(timeout=60)
    assert misled.returncode == 1
    assert out == ""
    assert "ConfigError: TENURE_FAULTS: There is no fault point 'claim.afterwards'" in err
