// Lock libraries of others in Go, each as a contender of the comparison: `peers NAME URL…`.
//
// Every library is used as its documentation shows, with its defaults.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

func main() {
	var name string
	var urls []string
	if len(os.Args) > 1 {
		name, urls = os.Args[1], os.Args[2:]
	}
	switch name {
	case "go-mutex":
		if mutex := newGoMutex(urls); mutex != nil {
			serve(mutex)
		} else {
			fmt.Println("missing it is not built: run comparison/peers/go/build")
		}
	case "redislock":
		serve(redislockLocks{urls: urls})
	case "redsync":
		serve(redsyncLocks{urls: urls})
	default:
		fmt.Printf("missing nobody here is called %q\n", name)
	}
}

// versionOf says with which version of a module this program was built.
func versionOf(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return "unknown"
}
