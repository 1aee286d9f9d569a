package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// library is what can be compared, told where its store is.
type library interface {
	version() string
	// open gives a session with a connection of its own and leases of that length.
	open(ttl time.Duration) (session, error)
}

// session is one participant of the store.
type session interface {
	// lock prepares the lock of that name for one contender. slot counts those who share this session,
	// for libraries in which a lease can own a lock only once.
	lock(name string, slot int) (lock, error)
}

// lock is used by one contender at a time.
type lock interface {
	// acquire waits as long as it takes.
	acquire() error
	// release returns when the store has confirmed it.
	release() error
}

// hastyLock is one that can be asked for without waiting, and whose lease can be made longer by hand.
type hastyLock interface {
	lock
	// try says whether it is held now.
	try() (bool, error)
	// extend gives the lease its whole length again.
	extend() error
}

// atOnce is how many locks `hold` asks for at the same time.
const atOnce = 64

// now is CLOCK_MONOTONIC in nanoseconds, which all processes of a host share. The time package does not
// tell it.
func now() int64 {
	var read unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &read); err != nil {
		panic(err)
	}
	return read.Nano()
}

// serve speaks the protocol of comparison/peers/README.md until standard input ends or says `quit`.
func serve(library library) {
	fmt.Println("ready", library.version())
	program := program{library: library}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() && orders.Text() != "quit" {
		answer, err := program.carryOut(strings.Split(orders.Text(), " "))
		if err != nil {
			answer = fmt.Sprintf("failed %d %s", now(), oneLine(err))
		}
		fmt.Println(answer)
	}
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// program carries out orders, one after the other.
type program struct {
	library  library
	sessions []session
	held     lock
	kept     []lock
}

func (p *program) carryOut(words []string) (string, error) {
	order, words := words[0], words[1:]
	switch {
	case order == "open" && len(words) == 2:
		return p.open(words[0], words[1])
	case order == "run" && (len(words) == 8 || len(words) == 9 && words[8] == "mutex"):
		return p.run(words)
	case order == "acquire" && len(words) == 1:
		return p.acquire(words[0])
	case order == "try" && len(words) == 1:
		return p.try(words[0])
	case order == "extend" && len(words) == 0:
		return p.extend()
	case order == "release" && len(words) == 0:
		return p.release()
	case order == "hold" && len(words) == 2:
		return p.hold(words[0], words[1])
	}
	return "", fmt.Errorf("no order: %q", order)
}

func (p *program) first() (session, error) {
	if len(p.sessions) == 0 {
		return nil, errors.New("no session is open")
	}
	return p.sessions[0], nil
}

func (p *program) open(sessions, ttlMillis string) (string, error) {
	count, err := strconv.Atoi(sessions)
	if err != nil {
		return "", err
	}
	millis, err := strconv.Atoi(ttlMillis)
	if err != nil {
		return "", err
	}
	for len(p.sessions) < count {
		opened, err := p.library.open(time.Duration(millis) * time.Millisecond)
		if err != nil {
			return "", err
		}
		p.sessions = append(p.sessions, opened)
	}
	return "opened", nil
}

func (p *program) run(words []string) (string, error) {
	if _, err := p.first(); err != nil {
		return "", err
	}
	contest, err := newContest(words)
	if err != nil {
		return "", err
	}
	return contest.carryOut(p.sessions)
}

func (p *program) acquire(name string) (string, error) {
	lock, err := p.taken(name)
	if err != nil {
		return "", err
	}
	at := now()
	p.held = lock
	return fmt.Sprintf("held %d -", at), nil
}

func (p *program) try(name string) (string, error) {
	lock, err := p.prepared(name)
	if err != nil {
		return "", err
	}
	hasty, is := lock.(hastyLock)
	if !is {
		return "", errors.New("it cannot try")
	}
	if held, err := hasty.try(); err != nil || !held {
		return "busy", err
	}
	at := now()
	p.held = hasty
	return fmt.Sprintf("held %d -", at), nil
}

func (p *program) extend() (string, error) {
	hasty, is := p.held.(hastyLock)
	if !is {
		return "", errors.New("nothing is held that can be extended")
	}
	if err := hasty.extend(); err != nil {
		return "", err
	}
	return fmt.Sprintf("extended %d", now()), nil
}

func (p *program) release() (string, error) {
	held := p.held
	if held == nil {
		return "", errors.New("nothing is held")
	}
	p.held = nil
	before := now()
	if err := held.release(); err != nil {
		return "", err
	}
	return fmt.Sprintf("released %d %d", before, now()), nil
}

func (p *program) hold(name, count string) (string, error) {
	number, err := strconv.Atoi(count)
	if err != nil {
		return "", err
	}
	before := now()
	locks := make([]lock, number)
	failures := make([]error, number)
	room := make(chan struct{}, atOnce)
	var taking sync.WaitGroup
	for index := range number {
		room <- struct{}{}
		taking.Go(func() {
			locks[index], failures[index] = p.taken(fmt.Sprintf("%s-%d", name, index))
			<-room
		})
	}
	taking.Wait()
	for _, failure := range failures {
		if failure != nil {
			return "", failure
		}
	}
	p.kept = append(p.kept, locks...)
	return fmt.Sprintf("holding %d %d %d", number, before, now()), nil
}

// prepared is the lock of that name on the first session.
func (p *program) prepared(name string) (lock, error) {
	session, err := p.first()
	if err != nil {
		return nil, err
	}
	return session.lock(name, 0)
}

// taken is that lock, once it is held.
func (p *program) taken(name string) (lock, error) {
	lock, err := p.prepared(name)
	if err != nil {
		return nil, err
	}
	return lock, lock.acquire()
}
