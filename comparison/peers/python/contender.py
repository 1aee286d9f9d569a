"""The lines of comparison/peers/README.md and the contest, for any lock library in Python.

A library has a `version` and `open(ttl_ms)`, which gives a session; a session has `lock(name)`, which gives
what has `acquire(blocking=True)` and `release()`, and `extend(lock)` if its leases can be made longer. Contenders are
threads. The locks of these libraries may be used by
the thread that took them, so each contender has a lock object of its own.
"""

import itertools
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns as now

# How many locks `hold` asks for at the same time.
AT_ONCE = 64


def one_line(error):
    """An answer is one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


class Number:
    """A number in a file that nothing but the lock protects."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR)

    def add_one(self):
        """Reads, adds, writes: two at once lose one."""
        number = int(os.pread(self.file, 20, 0))
        os.pwrite(self.file, str(number + 1).encode(), 0)

    def close(self):
        os.close(self.file)


class Contender(threading.Thread):
    """Goes through the lock again and again, and remembers the times until the contest is over."""

    def __init__(self, index, lock, run):
        super().__init__(daemon=True)
        self.index, self.lock, self.contest = index, lock, run
        self.cycles = []
        self.failure = None

    def run(self):
        try:
            self.go_through()
        except Exception as error:
            self.failure = error

    def go_through(self):
        contest, lock = self.contest, self.lock
        number = Number(contest.counter) if contest.counter != "-" else None
        time.sleep(max(0, contest.start - now()) / 1e9)
        start = now()
        while True:
            requested = now()
            if contest.bound and requested - start >= contest.bound or not contest.take_one():
                break
            lock.acquire()
            granted = now()
            if number:
                number.add_one()
            if contest.hold:
                time.sleep(contest.hold)
            elif contest.contenders > 1:
                # Gives the interpreter away, so that the others of this process can ask for the lock.
                time.sleep(0)
            releasing = now()
            released = "-"
            try:
                lock.release()
                released = now()
            finally:
                # A hold whose release failed is one nonetheless.
                self.cycles.append((requested, granted, releasing, released))
        if number:
            number.close()


class Contest:
    """What is asked for in the order `run`."""

    def __init__(self, name, contenders, cycles, millis, hold_us, start, journal, counter):
        self.name, self.journal, self.counter = name, journal, counter
        self.contenders, self.most, self.start = int(contenders), int(cycles), int(start)
        self.bound = int(millis) * 1_000_000
        self.hold = int(hold_us) / 1e6
        self.begun = itertools.count()

    def take_one(self):
        # `next` of a count is one step of the interpreter, so no two threads get the same number.
        return self.most == 0 or next(self.begun) < self.most

    def carry_out(self, sessions):
        locks = [sessions[index % len(sessions)].lock(self.name) for index in range(self.contenders)]
        contenders = [Contender(index, lock, self) for index, lock in enumerate(locks)]
        for contender in contenders:
            contender.start()
        for contender in contenders:
            contender.join()
        if self.journal != "-":
            with open(self.journal, "w") as journal:
                for contender in contenders:
                    for cycle in contender.cycles:
                        print(contender.index, *cycle, "-", file=journal)
        failures = [one_line(contender.failure) for contender in contenders if contender.failure]
        cycles = sum(len(contender.cycles) for contender in contenders)
        return " ".join(["done", str(cycles), str(len(failures)), *failures[:1]])


class Program:
    """Carries out orders, one after the other."""

    def __init__(self, library):
        self.library = library
        self.sessions = []
        self.held = None
        self.kept = []

    def first(self):
        if not self.sessions:
            raise RuntimeError("no session is open")
        return self.sessions[0]

    def open(self, sessions, ttl_ms):
        while len(self.sessions) < int(sessions):
            self.sessions.append(self.library.open(int(ttl_ms)))
        return "opened"

    def run(self, *words):
        self.first()
        return Contest(*words).carry_out(self.sessions)

    def acquire(self, name):
        lock = self.first().lock(name)
        lock.acquire()
        at = now()
        self.held = lock
        return f"held {at} -"

    def try_once(self, name):
        lock = self.first().lock(name)
        if not lock.acquire(blocking=False):
            return "busy"
        self.held = lock
        return f"held {now()} -"

    def extend(self):
        self.first().extend(self.holding())
        return f"extended {now()}"

    def holding(self):
        if self.held is None:
            raise RuntimeError("nothing is held")
        return self.held

    def release(self):
        held, self.held = self.holding(), None
        before = now()
        held.release()
        return f"released {before} {now()}"

    def hold(self, name, count):
        session = self.first()

        def take(index):
            lock = session.lock(f"{name}-{index}")
            lock.acquire()
            return lock

        before = now()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self.kept.extend(threads.map(take, range(int(count))))
        return f"holding {count} {before} {now()}"

    def carry_out(self, line):
        orders = {
            "open": self.open,
            "run": self.run,
            "acquire": self.acquire,
            "try": self.try_once,
            "extend": self.extend,
            "release": self.release,
            "hold": self.hold,
        }
        order, *words = line.split(" ")
        try:
            if order not in orders:
                raise ValueError(f"no order: {line!r}")
            return orders[order](*words)
        except Exception as error:
            return f"failed {now()} {one_line(error)}"


def serve(library):
    """Speaks the protocol for `library` until standard input ends or says `quit`."""
    print("ready", library.version, flush=True)
    program = Program(library)
    for line in sys.stdin:
        line = line.rstrip("\n")
        if line == "quit":
            break
        print(program.carry_out(line), flush=True)
