"""The Lock of redis-py. Waits by trying again.

Its defaults stay: a pause of 0.1 s between tries, no bound on the waiting, the owner's value kept per
thread. It has a default ttl of none and does not renew, so what is held longer than the ttl is lost.
"""

import redis


class RedisPy:
    version = redis.__version__

    def __init__(self, urls):
        self.url = urls[0]

    def open(self, ttl_ms):
        client = redis.Redis.from_url(self.url)
        client.ping()
        return Session(client, ttl_ms / 1000)


class Session:
    def __init__(self, client, ttl):
        self.client, self.ttl = client, ttl

    def lock(self, name):
        return self.client.lock(name, timeout=self.ttl)

    def extend(self, lock):
        lock.extend(self.ttl, replace_ttl=True)
