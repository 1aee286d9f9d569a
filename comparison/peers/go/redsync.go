package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

// redsyncLocks is Redlock on one server or several, or on one fleet, through go-redis. Waits by trying again.
//
// Its defaults stay: a random pause of 50 to 250 ms between tries, a twentieth of the ttl for a try, a
// hundredth of it for the drift of clocks. By default the ttl is 8 s and it gives up after 32 tries; here
// it waits as long as it takes. It does not renew.
type redsyncLocks struct{ urls []string }

func (redsyncLocks) version() string { return versionOf("github.com/go-redsync/redsync/v4") }

func (r redsyncLocks) open(ttl time.Duration) (session, error) {
	pools := make([]redis.Pool, len(r.urls))
	for index, url := range r.urls {
		client, err := clientOf(url)
		if err != nil {
			return nil, err
		}
		if err := client.Ping(context.Background()).Err(); err != nil {
			return nil, err
		}
		pools[index] = goredis.NewPool(client)
	}
	return redsyncSession{redsync.New(pools...), ttl}, nil
}

// clientOf is a client of one server, of the primary that sentinels name, or of a cluster.
func clientOf(url string) (goredislib.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	hosts, master, _ := strings.Cut(rest, "/")
	servers := strings.Split(hosts, ",")
	switch scheme {
	case "redis+sentinel":
		options := goredislib.FailoverOptions{MasterName: master, SentinelAddrs: servers}
		return goredislib.NewFailoverClient(&options), nil
	case "redis+cluster":
		return goredislib.NewClusterClient(&goredislib.ClusterOptions{Addrs: servers}), nil
	}
	options, err := goredislib.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return goredislib.NewClient(options), nil
}

type redsyncSession struct {
	locks *redsync.Redsync
	ttl   time.Duration
}

// lock makes one object for each contender, because it remembers the value that its owner has set.
func (s redsyncSession) lock(name string, _ int) (lock, error) {
	return redsyncLock{s.locks.NewMutex(name, redsync.WithExpiry(s.ttl), redsync.WithTries(math.MaxInt))}, nil
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) acquire() error { return l.mutex.Lock() }

func (l redsyncLock) try() (bool, error) {
	err := l.mutex.TryLock()
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) {
		return false, nil
	}
	return err == nil, err
}

func (l redsyncLock) extend() error {
	extended, err := l.mutex.Extend()
	if err == nil && !extended {
		return errors.New("the lock was not extended on a majority of servers")
	}
	return err
}

func (l redsyncLock) release() error {
	released, err := l.mutex.Unlock()
	if err == nil && !released {
		return errors.New("the lock was not released on a majority of servers")
	}
	return err
}
