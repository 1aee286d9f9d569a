package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// contest is what is asked for in the order `run`.
type contest struct {
	name       string
	contenders int
	// cycles that all contenders together may begin, and how long they may begin any; no bound if 0.
	cycles int64
	bound  int64
	hold   time.Duration
	start  int64
	// Paths, or `-`.
	journal, counter string
	// Whether contenders of a session queue for a mutex of their own first.
	front bool

	begun atomic.Int64
}

// cycle is one time through the lock.
type cycle struct{ requested, granted, releasing, released int64 }

// unknown is when a lock was released whose release failed.
const unknown = -1

// contender goes through the lock again and again, and remembers the times until the contest is over.
type contender struct {
	lock lock
	// Of all contenders of the session; nil if nobody is in front.
	front   *sync.Mutex
	cycles  []cycle
	failure error
}

func newContest(words []string) (*contest, error) {
	var numbers [5]int64
	for index := range numbers {
		number, err := strconv.ParseInt(words[index+1], 10, 64)
		if err != nil {
			return nil, err
		}
		numbers[index] = number
	}
	return &contest{
		name:       words[0],
		contenders: int(numbers[0]),
		cycles:     numbers[1],
		bound:      numbers[2] * int64(time.Millisecond),
		hold:       time.Duration(numbers[3]) * time.Microsecond,
		start:      numbers[4],
		journal:    words[6],
		counter:    words[7],
		front:      len(words) == 9,
	}, nil
}

func (c *contest) carryOut(sessions []session) (string, error) {
	contenders := make([]contender, c.contenders)
	fronts := make([]sync.Mutex, len(sessions))
	for index := range contenders {
		lock, err := sessions[index%len(sessions)].lock(c.name, index/len(sessions))
		if err != nil {
			return "", err
		}
		contenders[index].lock = lock
		if c.front {
			contenders[index].front = &fronts[index%len(sessions)]
		}
	}
	var running sync.WaitGroup
	for index := range contenders {
		running.Go(func() { contenders[index].failure = c.goThrough(&contenders[index]) })
	}
	running.Wait()
	if c.journal != "-" {
		if err := write(c.journal, contenders); err != nil {
			return "", err
		}
	}
	cycles, stopped, reason := 0, 0, ""
	for _, contender := range contenders {
		cycles += len(contender.cycles)
		if contender.failure != nil {
			stopped++
			if reason == "" {
				reason = " " + oneLine(contender.failure)
			}
		}
	}
	return fmt.Sprintf("done %d %d%s", cycles, stopped, reason), nil
}

func (c *contest) goThrough(contender *contender) error {
	var number *os.File
	if c.counter != "-" {
		file, err := os.OpenFile(c.counter, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		number = file
	}
	time.Sleep(time.Duration(c.start - now()))
	start := now()
	for {
		requested := now()
		if c.bound != 0 && requested-start >= c.bound || !c.takeOne() {
			return nil
		}
		if contender.front != nil {
			contender.front.Lock()
		}
		if err := contender.lock.acquire(); err != nil {
			return err
		}
		granted := now()
		if number != nil {
			if err := addOne(number); err != nil {
				return err
			}
		}
		if c.hold != 0 {
			time.Sleep(c.hold)
		} else if c.contenders > 1 {
			runtime.Gosched()
		}
		releasing := now()
		err := contender.lock.release()
		released := now()
		if contender.front != nil {
			contender.front.Unlock()
		}
		if err != nil {
			released = unknown
		}
		contender.cycles = append(contender.cycles, cycle{requested, granted, releasing, released})
		if err != nil {
			return err
		}
	}
}

func (c *contest) takeOne() bool {
	return c.cycles == 0 || c.begun.Add(1) <= c.cycles
}

// addOne reads the number that nothing but the lock protects, adds and writes: two at once lose one.
func addOne(file *os.File) error {
	var text [20]byte
	// The file is shorter than the room for it, which counts as its end and not as a failure.
	length, err := file.ReadAt(text[:], 0)
	if length == 0 {
		return err
	}
	number, err := strconv.ParseUint(string(bytes.TrimSpace(text[:length])), 10, 64)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(strconv.AppendUint(nil, number+1, 10), 0)
	return err
}

func write(path string, contenders []contender) error {
	var text bytes.Buffer
	for index, contender := range contenders {
		for _, times := range contender.cycles {
			released := "-"
			if times.released != unknown {
				released = strconv.FormatInt(times.released, 10)
			}
			fmt.Fprintln(&text, index, times.requested, times.granted, times.releasing, released, "-")
		}
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}
