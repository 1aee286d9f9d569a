"""Locks of redis-py, steered by lines: `peer.py PORT`.

acquire NAME TTL WAIT   TTL in seconds or `none`; WAIT in seconds; answers `held` or `busy`
release                 what was acquired last; answers `released` or `not owned`
count NAME TIMES KEY    adds 1 to KEY under the lock, by a read and a write; answers `counted`
"""

import sys

import redis


def main() -> None:
    client = redis.Redis(port=int(sys.argv[1]))
    client.ping()
    lock = None
    print("ready", flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        if order == "acquire":
            name, ttl, wait = words
            lock = client.lock(name, timeout=None if ttl == "none" else float(ttl))
            held = lock.acquire(blocking=float(wait) > 0, blocking_timeout=float(wait) or None)
            answer = "held" if held else "busy"
        elif order == "release":
            try:
                lock.release()
                answer = "released"
            except redis.exceptions.LockError:
                answer = "not owned"
        elif order == "count":
            name, times, key = words
            for _ in range(int(times)):
                with client.lock(name, timeout=60, sleep=0.005):
                    number = int(client.get(key))
                    client.set(key, number + 1)
            answer = "counted"
        else:
            sys.exit(f"no such order: {order}")
        print(answer, flush=True)


main()
