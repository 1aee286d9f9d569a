"""Lock libraries of others in Python, each as a contender of the comparison: `peers.py NAME URL…`.

Every library is used as its documentation shows, with its defaults.
"""

import sys

import contender


def main(name, urls):
    # Only what is asked for is imported: the memory of a process is measured.
    if name == "redis-py":
        from redis_py import RedisPy

        contender.serve(RedisPy(urls))
    elif name == "python-redis-lock":
        from python_redis_lock import PythonRedisLock

        contender.serve(PythonRedisLock(urls))
    elif name == "kazoo":
        from kazoo_lock import Kazoo

        contender.serve(Kazoo(urls))
    else:
        print(f"missing nobody here is called {name!r}", flush=True)


main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
