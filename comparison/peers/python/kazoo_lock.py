"""The Lock recipe of kazoo. Waits by watching the node before its own.

Its defaults stay: no bound on the waiting. The ttl is the session's timeout (10 s by default), which the
server may raise or lower to what it allows.
"""

from kazoo.client import KazooClient
from kazoo.version import __version__


class Kazoo:
    version = __version__

    def __init__(self, urls):
        self.hosts = ",".join(url.split("://", 1)[-1] for url in urls)

    def open(self, ttl_ms):
        client = KazooClient(hosts=self.hosts, timeout=ttl_ms / 1000)
        client.start()
        return Session(client)


class Session:
    def __init__(self, client):
        self.client = client

    def lock(self, name):
        return self.client.Lock(f"/locks/{name}")
