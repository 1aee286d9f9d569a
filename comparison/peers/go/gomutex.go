//go:build !noetcd

package main

import (
	"context"
	"math"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// goMutex is concurrency.Mutex of etcd's own client. Waits by watching the keys before its own.
//
// Nothing is set but the ttl, which is 60 s by default. The client renews the lease by itself.
type goMutex struct{ endpoints []string }

func newGoMutex(urls []string) library { return goMutex{endpoints: urls} }

func (goMutex) version() string { return versionOf("go.etcd.io/etcd/client/v3") }

func (g goMutex) open(ttl time.Duration) (session, error) {
	endpoints := make([]string, len(g.endpoints))
	for index, endpoint := range g.endpoints {
		_, endpoints[index], _ = strings.Cut(endpoint, "://")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	// Everything after this waits for ever for a server that is not there.
	bounded, cancel := context.WithTimeout(context.Background(), connecting)
	defer cancel()
	if _, err := client.Status(bounded, endpoints[0]); err != nil {
		return nil, err
	}
	connection := &etcdConnection{client: client, ttl: int(math.Max(1, ttl.Seconds()))}
	_, err = connection.lease(0)
	return connection, err
}

const connecting = 15 * time.Second

// etcdConnection has a lease for each contender that shares it: a lock's owner is a lease, and whoever
// asks again with the same one is told that it has the lock already.
type etcdConnection struct {
	client *clientv3.Client
	ttl    int
	leases []*concurrency.Session
}

func (c *etcdConnection) lease(slot int) (*concurrency.Session, error) {
	for len(c.leases) <= slot {
		lease, err := concurrency.NewSession(c.client, concurrency.WithTTL(c.ttl))
		if err != nil {
			return nil, err
		}
		c.leases = append(c.leases, lease)
	}
	return c.leases[slot], nil
}

func (c *etcdConnection) lock(name string, slot int) (lock, error) {
	// Several may ask for slot 0 at the same time; it was opened with the connection and is only read.
	lease, err := c.lease(slot)
	if err != nil {
		return nil, err
	}
	return etcdLock{concurrency.NewMutex(lease, name)}, nil
}

type etcdLock struct{ mutex *concurrency.Mutex }

func (l etcdLock) acquire() error { return l.mutex.Lock(context.Background()) }

func (l etcdLock) release() error { return l.mutex.Unlock(context.Background()) }
