// Command netprobe is the test server of a cluster: an image with this one file
// is enough to prove pod networking, services, DNS, logs and exec, without a shell.
//
//	netprobe [serve] [--listen :8080]   answer every request with host name and time
//	netprobe get [--timeout 5s] URL     print the body; exit 1 unless the status is 2xx
//	netprobe resolve [--timeout 5s] NAME   print one address a line
//	netprobe sleep [DURATION]           wait for the duration, or until SIGTERM
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "netprobe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	command := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("netprobe "+command, flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "address to serve on")
	timeout := flags.Duration("timeout", 5*time.Second, "limit of get and resolve")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	switch command {
	case "serve":
		return serve(ctx, *listen)
	case "get":
		return get(ctx, out, flags.Arg(0), *timeout)
	case "resolve":
		return resolve(ctx, out, flags.Arg(0), *timeout)
	case "sleep":
		return sleep(ctx, flags.Arg(0))
	case "version":
		_, err := fmt.Fprintln(out, version)
		return err
	}
	return fmt.Errorf("unknown command %q: expected serve, get, resolve, sleep or version", command)
}

// answer is what the server says to every request.
type answer struct {
	Host   string `json:"host"`   // host name of the pod
	Time   string `json:"time"`   // RFC 3339, UTC
	Client string `json:"client"` // address that the request came from
	Path   string `json:"path"`
}

// serve answers until the context ends, then lets running requests finish.
func serve(ctx context.Context, listen string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Printf("%s %s from %s", r.Method, r.URL.Path, r.RemoteAddr)
		w.Header().Set("Content-Type", "application/json")
		// A client that went away is no failure of the server.
		_ = json.NewEncoder(w).Encode(answer{
			Host: host, Time: time.Now().UTC().Format(time.RFC3339Nano), Client: r.RemoteAddr, Path: r.URL.Path,
		})
	})
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	log.Printf("netprobe %s: %s listens on %s", version, host, listener.Addr())

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(limit)
}

// get prints the body of one request.
func get(ctx context.Context, out io.Writer, url string, timeout time.Duration) error {
	if url == "" {
		return errors.New("get: expected a URL")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(out, response.Body); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("get %s: status %s", url, response.Status)
	}
	return nil
}

// resolve prints the addresses of a name as this pod's resolver sees it.
func resolve(ctx context.Context, out io.Writer, name string, timeout time.Duration) error {
	if name == "" {
		return errors.New("resolve: expected a name")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.Join(addresses, "\n"))
	return err
}

// sleep waits for the duration (for ever when it is empty) or until the context ends.
func sleep(ctx context.Context, text string) error {
	if text == "" {
		<-ctx.Done()
		return nil
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("sleep: expected a duration such as 90s, got %q", text)
	}
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
	return nil
}
