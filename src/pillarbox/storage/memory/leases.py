"""One lease a process; lanes with an owner and a term."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pillarbox.ports import Held, LaneState, RelayState, Survey, Taken
from pillarbox.storage.memory.log import LIVE, Process
from pillarbox.storage.memory.source import Token

CLOCK_WENT_BACK = 150.0


class MemoryLeases:
    def __init__(self, token: Token) -> None:
        self._token = token
        self._log = token.log

    def join(self, relay: UUID, serves: Sequence[str], lease: float) -> None:
        with self._log.lock:
            now = self._log.clock.mono()
            self._log.processes[relay] = Process(tuple(sorted(serves)), now, now + lease)

    def renew(self, relay: UUID, serves: Sequence[str], lease: float, says: Sequence[str] = ()) -> bool:
        del says  # nobody asks
        with self._log.lock:
            process, now, names = self._log.processes.get(relay), self._log.clock.mono(), tuple(sorted(serves))
            if process is None:
                return False
            process.alive_until = now + lease
            if process.serves != names:
                process.serves, process.since = names, now
            return True

    def expel(self) -> int:
        with self._log.lock:
            now, processes = self._log.clock.mono(), self._log.processes
            over = [id for id, p in processes.items() if not now < p.alive_until <= now + CLOCK_WENT_BACK]
            for id in over:
                del processes[id]
            return len(over)

    def survey(self) -> Survey:
        with self._log.lock:
            now = self._log.clock.mono()
            relays = [RelayState(id, p.serves, now - p.since) for id, p in self._log.processes.items()]
            routes = [self._log.routes[name] for name in sorted(self._log.routes)]
            lanes = [
                LaneState(route.state.name, lane, owner, route.terms[lane])
                for route in routes
                for lane, owner in enumerate(route.owners)
            ]
            return Survey(relays, lanes, [route.state for route in routes])

    def take(self, relay: UUID, route: str, wanted: int) -> list[Taken]:
        with self._log.lock:
            if route not in self._log.routes:
                return []
            owners = self._log.routes[route].owners
            free = [n for n, owner in enumerate(owners) if owner is None or owner not in self._log.processes]
            return [self._own(relay, route, n) for n in self._log.random.sample(free, min(wanted, len(free)))]

    def _own(self, relay: UUID, name: str, lane: int) -> Taken:
        route = self._log.routes[name]
        route.owners[lane] = relay
        route.terms[lane] += 1
        return Taken(name, lane, route.terms[lane], route.cursors[lane])

    def retake(self, relay: UUID, lanes: Sequence[tuple[str, int]]) -> list[Taken]:
        with self._log.lock:
            all_of_them = self._token.value != self._log.token
            self._token.value = self._log.token
            mine = [(n, lane) for n, r in self._log.routes.items() for lane, o in enumerate(r.owners) if o == relay]
            return [self._own(relay, name, lane) for name, lane in mine if all_of_them or (name, lane) in lanes]

    def load(self, route: str, lanes: Sequence[int]) -> list[Held]:
        with self._log.lock:
            now = self._log.clock.mono()
            rows = [(h.held, h.due) for _, h in sorted(self._log.holds.items()) if h.route == route]
            return [
                held._replace(due_in=max(0.0, due - now), ids=list(held.ids))
                for held, due in rows
                if held.lane in lanes and (held.state in LIVE or held.ahead)
            ]

    def give_back(self, relay: UUID, route: str, lanes: Sequence[tuple[int, int]]) -> None:
        with self._log.lock:
            stored = self._log.routes.get(route)
            for lane, term in lanes if stored else ():
                if stored and stored.owners[lane] == relay and stored.terms[lane] == term:
                    stored.owners[lane] = None
