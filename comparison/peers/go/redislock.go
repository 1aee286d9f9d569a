package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	goredislib "github.com/redis/go-redis/v9"
)

// redislockLocks is redislock of bsm, through go-redis.
//
// By default it does not wait; told to try again, it gives up when the ttl is over. Here it tries again every
// 100 ms, which is the pause of its documentation's example, for as long as it takes. It does not renew.
type redislockLocks struct{ urls []string }

func (redislockLocks) version() string { return versionOf("github.com/bsm/redislock") }

func (r redislockLocks) open(ttl time.Duration) (session, error) {
	options, err := goredislib.ParseURL(r.urls[0])
	if err != nil {
		return nil, err
	}
	client := goredislib.NewClient(options)
	if err := client.Ping(context.Background()).Err(); err != nil {
		return nil, err
	}
	return redislockSession{redislock.New(client), ttl}, nil
}

type redislockSession struct {
	locks *redislock.Client
	ttl   time.Duration
}

func (s redislockSession) lock(name string, _ int) (lock, error) {
	return &redislockLock{session: s, name: name}, nil
}

type redislockLock struct {
	session redislockSession
	name    string
	held    *redislock.Lock
}

// patience is a bound that nobody reaches, instead of the ttl.
const patience = 24 * time.Hour

func (l *redislockLock) acquire() error {
	bounded, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return l.obtain(bounded, redislock.LinearBackoff(100*time.Millisecond))
}

func (l *redislockLock) try() (bool, error) {
	err := l.obtain(context.Background(), redislock.NoRetry())
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	return err == nil, err
}

func (l *redislockLock) obtain(ctx context.Context, again redislock.RetryStrategy) (err error) {
	l.held, err = l.session.locks.Obtain(ctx, l.name, l.session.ttl, &redislock.Options{RetryStrategy: again})
	return err
}

func (l *redislockLock) extend() error {
	return l.held.Refresh(context.Background(), l.session.ttl, nil)
}

func (l *redislockLock) release() error { return l.held.Release(context.Background()) }
