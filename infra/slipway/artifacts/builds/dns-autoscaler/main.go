// dns-autoscaler keeps the number of replicas of one Deployment in step with the number of nodes:
// one for every so many nodes, within limits. It asks once a minute, from the API server's cache, for metadata only.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

var version = "unknown"

type settings struct {
	namespace, deployment             string
	minimum, maximum, nodesPerReplica int
}

// replicas is one for each nodesPerReplica nodes, at least minimum, at most maximum and at most one a node.
func (s settings) replicas(nodes int) int32 {
	wanted := (nodes + s.nodesPerReplica - 1) / s.nodesPerReplica
	wanted = max(wanted, s.minimum)
	wanted = min(wanted, s.maximum, nodes)
	return int32(max(wanted, 1))
}

// countNodes reads metadata from the watch cache, so that thousands of nodes cost etcd nothing.
func countNodes(ctx context.Context, client metadata.Interface) (int, error) {
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	list, err := client.Resource(nodes).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("count nodes: %w", err)
	}
	return len(list.Items), nil
}

func (s settings) step(ctx context.Context, client kubernetes.Interface, meta metadata.Interface) error {
	nodes, err := countNodes(ctx, meta)
	if err != nil {
		return err
	}
	if nodes == 0 {
		return nil
	}
	deployments := client.AppsV1().Deployments(s.namespace)
	scale, err := deployments.GetScale(ctx, s.deployment, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read replicas of %s/%s: %w", s.namespace, s.deployment, err)
	}
	wanted := s.replicas(nodes)
	if scale.Spec.Replicas == wanted {
		return nil
	}
	klog.InfoS("scaling", "deployment", s.deployment, "nodes", nodes, "from", scale.Spec.Replicas, "to", wanted)
	scale.Spec.Replicas = wanted
	if _, err := deployments.UpdateScale(ctx, s.deployment, scale, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("scale %s/%s to %d: %w", s.namespace, s.deployment, wanted, err)
	}
	return nil
}

func main() {
	var s settings
	flag.StringVar(&s.namespace, "namespace", "kube-system", "namespace of the Deployment")
	flag.StringVar(&s.deployment, "deployment", "coredns", "the Deployment")
	flag.IntVar(&s.minimum, "min", 2, "fewest replicas, unless there are fewer nodes")
	flag.IntVar(&s.maximum, "max", 50, "most replicas")
	flag.IntVar(&s.nodesPerReplica, "nodes-per-replica", 100, "nodes that one replica serves")
	interval := flag.Duration("interval", time.Minute, "how often to look")
	listen := flag.String("listen", ":8080", "address of /healthz")
	show := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *show {
		fmt.Println(version)
		return
	}
	if s.minimum < 1 || s.maximum < s.minimum || s.nodesPerReplica < 1 {
		fmt.Fprintln(os.Stderr, "dns-autoscaler: expected 1 <= --min <= --max and --nodes-per-replica >= 1")
		os.Exit(2)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dns-autoscaler: runs only in a pod:", err)
		os.Exit(2)
	}
	config.UserAgent = "slipway-dns-autoscaler/" + version
	client, meta := kubernetes.NewForConfigOrDie(config), metadata.NewForConfigOrDie(config)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	var last atomic.Int64 // when a step last went well
	last.Store(time.Now().Unix())
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if age := time.Since(time.Unix(last.Load(), 0)); age > 5**interval+time.Minute {
			http.Error(w, fmt.Sprintf("no successful look for %s", age.Round(time.Second)), http.StatusServiceUnavailable)
		}
	})
	go func() { klog.Fatal(http.ListenAndServe(*listen, nil)) }()

	ticker := time.NewTicker(*interval)
	defer ticker.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 20*time.Second)
		if err := s.step(attempt, client, meta); err != nil {
			klog.ErrorS(err, "will try again", "in", *interval)
		} else {
			last.Store(time.Now().Unix())
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
