// A holder of go-zookeeper's Lock, driven by lines on its standard input.
//
//	acquire PATH  -> held         when it is
//	release       -> released
//
// Arguments: HOST:PORT SESSION_SECONDS
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

func main() {
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	check(err)
	quiet := zk.WithLogger(log.New(io.Discard, "", 0))
	client, events, err := zk.Connect(strings.Split(os.Args[1], ","), time.Duration(seconds*float64(time.Second)), quiet)
	check(err)
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	fmt.Println("ready")
	var lock *zk.Lock
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch order := strings.Fields(lines.Text()); order[0] {
		case "acquire":
			lock = zk.NewLock(client, order[1], zk.WorldACL(zk.PermAll))
			check(lock.Lock())
			fmt.Println("held")
		case "release":
			check(lock.Unlock())
			fmt.Println("released")
		default:
			panic(order[0])
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
