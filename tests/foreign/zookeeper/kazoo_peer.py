"""A holder of kazoo's Lock, driven by lines on its standard input.

  acquire PATH [PATTERN...]  -> held                    when it is
  try PATH [PATTERN...]      -> held | busy
  release                    -> released
  state                      -> acquired | free, and what the connection is: CONNECTED, SUSPENDED, LOST

PATTERNs are kazoo's `extra_lock_patterns`. Arguments: HOST:PORT SESSION_SECONDS
"""

import logging
import sys

from kazoo.client import KazooClient


def main():
    logging.disable(logging.CRITICAL)
    client = KazooClient(hosts=sys.argv[1], timeout=float(sys.argv[2]))
    client.start(timeout=30)
    print("ready", flush=True)
    lock = None
    for line in sys.stdin:
        order, *words = line.split()
        if order in ("acquire", "try"):
            lock = client.Lock(words[0], "kazoo", extra_lock_patterns=words[1:])
            held = lock.acquire(blocking=order == "acquire")
            print("held" if held else "busy", flush=True)
        elif order == "release":
            lock.release()
            print("released", flush=True)
        elif order == "state":
            acquired = "acquired" if lock is not None and lock.is_acquired else "free"
            print(acquired, client.state, flush=True)
        else:
            raise ValueError(line)


main()
