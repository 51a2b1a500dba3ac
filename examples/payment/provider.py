"""An outside world on 127.0.0.1: it moves money, counts by key how often, and fails after it has done the work.

=============================== ====================================================================================
``POST /charges``               a provider with idempotency keys: the work is done once for each ``Idempotency-Key``,
                                later calls get the stored answer
``GET /charges/KEY``            its look-up
``POST /transfers``             a provider without: each call does the work; the body carries a ``reference``
``GET /transfers?reference=R``  its look-up
``POST /payouts``               a provider that has neither
=============================== ====================================================================================

What goes wrong is planned by key, one fault for each call: ``provider.plan(key, "drop", "error")``.
"""

import json
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

Fault = Literal["none", "error", "drop", "hang", "hold", "lose", "decline", "throttle"]
"""What a call meets:

- ``error``: the work is done, then the answer is 500;
- ``drop``: the work is done, then the connection is closed without an answer;
- ``hang``: the work is done, then nothing is said until ``release``;
- ``hold``: the call is under way until ``release``; the work is done then, even if nobody listens any more;
- ``lose``: the same, but the work is never done;
- ``decline``: 402, and ``throttle``: 429 with ``Retry-After: 1``; nothing is done.
"""

RETRY_AFTER = 1
"""Seconds that a throttled caller is asked to wait."""

_LONGEST = 60.0  # seconds after which a call that nobody releases goes on by itself


class Call(NamedTuple):
    """A call that asked for work: its key, its path, what it asked for, and when on the machine's steady clock."""

    key: str
    path: str
    body: dict[str, Any]
    at: float


class Answer(NamedTuple):
    """What a call gets; None for the status closes the connection without a word."""

    status: int | None
    body: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}


class Provider:
    """The server and its books; ``with Provider() as provider`` runs it.

    Attributes:
        url: where it is.
        calls: each call that asked for work, in order of arrival.
        charges: by key, how often the work was done.
        looked_up: by key, how often somebody asked what became of it.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.charges: Counter[str] = Counter()
        self.looked_up: Counter[str] = Counter()
        self._done: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._stored: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # by idempotency key: request, answer
        self._under_way: set[str] = set()
        self._plans: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for gate in list(self._gates.values()):
            gate.set()
        self._server.shutdown()
        self._server.server_close()

    def plan(self, key: str, *faults: Fault) -> None:
        """Let the next calls of a key meet these faults; those after them are answered."""
        self._plans[key].extend(faults)
        self._gates[key].clear()

    def release(self, key: str) -> None:
        """Let the calls of a key go on that hang or are held."""
        self._gates[key].set()

    def forget_keys(self) -> None:
        """Idempotency keys live for a day or so at many providers; from now on a repeated one is a new one."""
        with self._lock:
            self._stored.clear()

    def called(self, key: str) -> int:
        """How many calls of a key asked for work."""
        return sum(call.key == key for call in self.calls)

    # ------------------------------------------------------------------------------------------------- answering

    def post(self, path: str, key: str | None, body: dict[str, Any]) -> Answer:
        """A call that asks for work."""
        idempotent = path == "/charges"
        name = key if idempotent else body.get("reference")
        if path not in ("/charges", "/transfers", "/payouts") or not isinstance(name, str):
            return Answer(400, {"error": "no such path, or no key"})
        with self._lock:
            self.calls.append(Call(name, path, body, time.monotonic()))
            fault = self._plans[name].popleft() if self._plans[name] else "none"
            if refusal := self._refused(idempotent, name, body, fault):
                return refusal
            self._under_way.add(name)
        if fault in ("hold", "lose"):
            self._gates[name].wait(_LONGEST)
        with self._lock:
            self._under_way.discard(name)
            answer = Answer(None) if fault == "lose" else self._worked(idempotent, name, body)
        return self._spoilt(name, fault, answer)

    def _refused(self, idempotent: bool, name: str, body: dict[str, Any], fault: Fault) -> Answer | None:
        if idempotent and name in self._under_way:
            return Answer(409, {"error": "a call with this key is under way"})
        if idempotent and name in self._stored and self._stored[name][0] != body:
            return Answer(422, {"error": "this key was used for something else"})
        if fault == "decline":
            return Answer(402, {"error": "the card was declined"})
        if fault == "throttle":
            return Answer(429, {"error": "too many calls"}, {"Retry-After": str(RETRY_AFTER)})
        return None

    def _worked(self, idempotent: bool, name: str, body: dict[str, Any]) -> Answer:
        if idempotent and name in self._stored:
            return Answer(201, self._stored[name][1])
        self.charges[name] += 1
        done = {**body, "id": f"ch_{next(self._numbers)}"}
        self._done[name].append(done)
        if idempotent:
            self._stored[name] = (body, done)
        return Answer(201, done)

    def _spoilt(self, name: str, fault: Fault, answer: Answer) -> Answer:
        if fault == "hang":
            self._gates[name].wait(_LONGEST)
        if fault == "error":
            return Answer(500, {"error": "something went wrong after the work"})
        return Answer(None) if fault in ("drop", "hang") else answer

    def get(self, path: str, query: Mapping[str, list[str]]) -> Answer:
        """A look-up: what was done under a key."""
        if path.startswith("/charges/"):
            name = unquote(path.removeprefix("/charges/"))
        elif path == "/transfers":
            name = query.get("reference", [""])[0]
        else:
            return Answer(404, {"error": "no such path"})
        with self._lock:
            self.looked_up[name] += 1
            return Answer(200, {"found": list(self._done[name])})


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed, or has given up waiting, takes no answer: that is no error here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        self._answer(self.server.provider.post(self.path, self.headers.get("Idempotency-Key"), body))

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        self._answer(self.server.provider.get(asked.path, parse_qs(asked.query)))

    def _answer(self, answer: Answer) -> None:
        if answer.status is None:
            return  # http.server closes the connection now
        text = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the books are what is read."""
