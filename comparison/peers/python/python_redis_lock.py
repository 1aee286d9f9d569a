"""The Lock of python-redis-lock. Waits for a list that each release fills with one element.

Its defaults stay, without renewal. Leases are whole seconds, and waiters ask again when one of theirs is over. The socket
has no timeout: with the 5 s that redis-py sets by default, who waits longer fails.
"""

import redis
import redis_lock


class PythonRedisLock:
    version = redis_lock.__version__

    def __init__(self, urls):
        self.url = urls[0]

    def open(self, ttl_ms):
        client = redis.Redis.from_url(self.url, socket_timeout=None)
        client.ping()
        return Session(client, ttl_ms // 1000)


class Session:
    def __init__(self, client, ttl):
        self.client, self.ttl = client, ttl

    def lock(self, name):
        return redis_lock.Lock(self.client, name, expire=self.ttl)

    def extend(self, lock):
        lock.extend()
