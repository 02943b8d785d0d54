// Command pause holds the namespaces of a pod: it waits, reaps orphans when it
// is process 1 of a shared process namespace, and leaves at once on SIGTERM or
// SIGINT, so that stopping a pod never waits for its grace period.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "devel"

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "-v" || os.Args[1] == "--version") {
		fmt.Println("pause", version)
		return
	}
	runtime.GOMAXPROCS(1) // one waiting process a pod: keep its threads few

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended. Signals of the same kind are merged
// by the kernel, so one SIGCHLD can stand for many children.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}
