// Command csr-approver approves the serving certificates that kubelets ask for, and denies every other request to their signer.
//
// A request is approved when the node asks for itself: for its own name and for internal addresses of its Node object that lie
// in the networks given by --allow-cidr. One instance of the cluster leads; the others stand by.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

const leaseName = "slipway-csr-approver"

// version is set by the build.
var version = "unknown"

type options struct {
	kubeconfig string
	allowed    prefixes
	namespace  string
	health     string
	workers    int
	qps        float64
}

// prefixes is a flag of networks, separated by commas or repeated.
type prefixes []netip.Prefix

func (p *prefixes) String() string { return fmt.Sprint(*p) }

func (p *prefixes) Set(value string) error {
	for _, text := range strings.Split(value, ",") {
		network, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		*p = append(*p, network.Masked())
	}
	return nil
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the API server")
	flag.Var(&o.allowed, "allow-cidr", "networks that nodes' addresses lie in, separated by commas")
	flag.StringVar(&o.namespace, "lease-namespace", meta.NamespaceSystem, "namespace of the lease "+leaseName)
	flag.StringVar(&o.health, "health-address", "127.0.0.1:10270", "address that serves /healthz")
	flag.IntVar(&o.workers, "workers", 4, "requests settled at once")
	flag.Float64Var(&o.qps, "kube-api-qps", 100, "requests a second to the API server")
	showVersion := flag.Bool("version", false, "print the version and exit")
	klog.InitFlags(nil)
	flag.Parse()
	if *showVersion {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// serve leads or stands by until ctx ends; losing the lease is an error, so that systemd starts a fresh process.
func serve(ctx context.Context, o options) error {
	if o.kubeconfig == "" || len(o.allowed) == 0 || flag.NArg() > 0 {
		return errors.New("--kubeconfig and --allow-cidr are needed, and no arguments")
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("%s: %w", o.kubeconfig, err)
	}
	config.UserAgent = "slipway-csr-approver"
	config.QPS, config.Burst = float32(o.qps), int(2*o.qps)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	health := leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
	if err := serveHealth(ctx, o.health, health); err != nil {
		return err
	}
	leading, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	leaderelection.RunOrDie(leading, leaderelection.LeaderElectionConfig{
		Name: leaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  meta.ObjectMeta{Namespace: o.namespace, Name: leaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s_%d", hostname, os.Getpid())},
		},
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		WatchDog:        health,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if err := run(ctx, client, o.allowed, o.workers); err != nil {
					abandon(err)
				}
			},
			OnStoppedLeading: func() { klog.InfoS("No longer the leader") },
		},
	})
	if ctx.Err() != nil {
		return nil
	}
	if err := context.Cause(leading); err != nil {
		return err
	}
	return errors.New("lost the lease")
}

func serveHealth(ctx context.Context, address string, health *leaderelection.HealthzAdaptor) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := health.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "Health is not served any more")
		}
	}()
	return nil
}
