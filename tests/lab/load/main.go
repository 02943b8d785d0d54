// Load uses a Kubernetes API as clients do, until its standard input ends, and then says in JSON how that went.
//
// One client writes and reads back over a connection that is kept, as client-go does (HTTP/2), one makes a new
// connection for each request, and one watches. A request that the server turns away with Retry-After is made again
// then, as by client-go; nothing else is forgiven.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const object = "/api/v1/namespaces/default/configmaps/load"

type report struct {
	sync.Mutex
	Written      int      `json:"written"`
	Read         int      `json:"read"`
	Fresh        int      `json:"fresh"`
	Seen         int      `json:"seen"`
	Watches      int      `json:"watches"`
	Retried      int      `json:"retried"`
	Failed       []string `json:"failed"`
	LongestPause float64  `json:"longest_pause_seconds"`
}

func (r *report) add(count *int) {
	r.Lock()
	*count++
	r.Unlock()
}

func (r *report) fail(what string, err error) {
	r.Lock()
	r.Failed = append(r.Failed, fmt.Sprintf("%s %s: %v", time.Now().UTC().Format("15:04:05.000"), what, err))
	r.Unlock()
}

type configMap struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Data map[string]string `json:"data"`
}

type load struct {
	server string
	tls    *tls.Config
	report report
	done   chan struct{}
}

func (l *load) client(keep bool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: l.tls.Clone(), ForceAttemptHTTP2: true, DisableKeepAlives: !keep,
	}}
}

// do makes a request; turned away with Retry-After, it makes it again.
func (l *load) do(client *http.Client, method, path, contentType string, body []byte) (*http.Response, error) {
	for {
		request, err := http.NewRequest(method, l.server+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", contentType)
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode < 300 {
			return response, nil
		}
		said, _ := io.ReadAll(response.Body)
		response.Body.Close()
		pause, noPause := strconv.Atoi(response.Header.Get("Retry-After"))
		if noPause != nil {
			return nil, fmt.Errorf("%s: %s", response.Status, said)
		}
		l.report.add(&l.report.Retried)
		time.Sleep(time.Duration(pause) * time.Second)
	}
}

func (l *load) get(client *http.Client) (configMap, error) {
	var found configMap
	response, err := l.do(client, "GET", object, "", nil)
	if err != nil {
		return found, err
	}
	defer response.Body.Close()
	return found, json.NewDecoder(response.Body).Decode(&found)
}

// until calls work again and again until the load ends.
func (l *load) until(pause time.Duration, work func()) {
	for {
		select {
		case <-l.done:
			return
		default:
			begin := time.Now()
			work()
			l.report.Lock()
			l.report.LongestPause = max(l.report.LongestPause, time.Since(begin).Seconds())
			l.report.Unlock()
			time.Sleep(pause)
		}
	}
}

func (l *load) write() {
	client, number := l.client(true), 0
	l.until(20*time.Millisecond, func() {
		number++
		patch := fmt.Sprintf(`{"data":{"number":"%d"}}`, number)
		response, err := l.do(client, "PATCH", object, "application/merge-patch+json", []byte(patch))
		if err != nil {
			l.report.fail("write", err)
			return
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		l.report.add(&l.report.Written)
		found, err := l.get(client)
		if err == nil && found.Data["number"] != strconv.Itoa(number) {
			err = fmt.Errorf("wrote %d, read %s", number, found.Data["number"])
		}
		if err != nil {
			l.report.fail("read", err)
			return
		}
		l.report.add(&l.report.Read)
	})
}

func (l *load) connect() {
	client := l.client(false)
	l.until(50*time.Millisecond, func() {
		if _, err := l.get(client); err != nil {
			l.report.fail("new connection", err)
			return
		}
		l.report.add(&l.report.Fresh)
	})
}

// watch sees every number once, in order, however often the server ends the watch.
func (l *load) watch() {
	client, seen := l.client(true), 0
	begin, err := l.get(client)
	if err != nil {
		l.report.fail("watch", err)
		return
	}
	version := begin.Metadata.ResourceVersion
	go func() {
		for {
			path := "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dload&resourceVersion=" + version
			response, err := l.do(client, "GET", path, "", nil)
			if err != nil {
				l.report.fail("watch", err)
				time.Sleep(time.Second)
				continue
			}
			l.report.add(&l.report.Watches)
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				var event struct {
					Type   string    `json:"type"`
					Object configMap `json:"object"`
				}
				if err := json.Unmarshal(lines.Bytes(), &event); err == nil && event.Type == "DELETED" {
					return
				} else if err != nil || event.Type != "MODIFIED" {
					l.report.fail("watch", fmt.Errorf("%s (%v)", lines.Text(), err))
					break
				}
				version = event.Object.Metadata.ResourceVersion
				number, _ := strconv.Atoi(event.Object.Data["number"])
				if number != seen+1 {
					l.report.fail("watch", fmt.Errorf("saw %d after %d", number, seen))
				}
				seen = number
				l.report.Lock()
				l.report.Seen = seen
				l.report.Unlock()
			}
			response.Body.Close()
		}
	}()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	server, authority, certificate, key := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	pem, err := os.ReadFile(authority)
	check(err)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	l := &load{server: server, tls: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, done: make(chan struct{})}
	l.report.Failed = []string{}
	made, err := l.do(l.client(false), "POST", "/api/v1/namespaces/default/configmaps", "application/json",
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"load"},"data":{"number":"0"}}`))
	check(err)
	made.Body.Close()
	l.watch()
	var working sync.WaitGroup
	for _, work := range []func(){l.write, l.connect} {
		working.Add(1)
		go func() { defer working.Done(); work() }()
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	close(l.done)
	working.Wait()
	time.Sleep(time.Second) // for the watch to see the last of it
	_, err = l.do(l.client(false), "DELETE", object, "", nil)
	check(err)
	l.report.Lock()
	check(json.NewEncoder(os.Stdout).Encode(&l.report))
}
