package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// controller settles the pending requests of one signer, kubernetes.io/kubelet-serving.
type controller struct {
	client  kubernetes.Interface
	allowed []netip.Prefix
	queue   workqueue.TypedRateLimitingInterface[string]
	lister  listers.CertificateSigningRequestLister
	now     func() time.Time
}

// run watches requests and settles them with as many workers until ctx ends.
func run(ctx context.Context, client kubernetes.Interface, allowed []netip.Prefix, workers int) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *meta.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.signerName", certificates.KubeletServingSignerName).String()
	}))
	requests := factory.Certificates().V1().CertificateSigningRequests()
	c := &controller{
		client:  client,
		allowed: allowed,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 5*time.Second)),
		lister: requests.Lister(),
		now:    time.Now,
	}
	defer c.queue.ShutDown()
	enqueue := func(object any) {
		if request, ok := object.(*certificates.CertificateSigningRequest); ok && isPending(request) {
			c.queue.Add(request.Name)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }}
	if _, err := requests.Informer().AddEventHandler(handler); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), requests.Informer().HasSynced) {
		return ctx.Err()
	}
	for range workers {
		go func() {
			for c.next(ctx) {
			}
		}()
	}
	<-ctx.Done()
	return nil
}

func isPending(request *certificates.CertificateSigningRequest) bool {
	return request.Spec.SignerName == certificates.KubeletServingSignerName &&
		len(request.Status.Certificate) == 0 && len(request.Status.Conditions) == 0
}

func (c *controller) next(ctx context.Context) bool {
	name, stop := c.queue.Get()
	if stop {
		return false
	}
	defer c.queue.Done(name)
	again, err := c.settle(ctx, name)
	if err != nil {
		klog.ErrorS(err, "Could not settle a request", "request", name)
	}
	if again || err != nil {
		c.queue.AddRateLimited(name)
	} else {
		c.queue.Forget(name)
	}
	return true
}

// settle approves or denies one request; again is true when it must be looked at later.
func (c *controller) settle(ctx context.Context, name string) (again bool, err error) {
	request, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !isPending(request) {
		return false, nil
	}
	found, err := c.judge(ctx, request)
	if err != nil {
		return false, err
	}
	if found.action == wait {
		klog.V(1).InfoS("Request stays pending", "request", name, "reason", found.reason)
		return true, nil
	}
	condition := certificates.CertificateSigningRequestCondition{
		Type: certificates.CertificateApproved, Status: core.ConditionTrue, Reason: "SlipwayApproved", Message: found.reason,
	}
	if found.action == deny {
		condition.Type, condition.Reason = certificates.CertificateDenied, "SlipwayDenied"
	}
	settled := request.DeepCopy()
	settled.Status.Conditions = append(settled.Status.Conditions, condition)
	_, err = c.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, name, settled, meta.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// Somebody else was faster; a pending request comes back by the watch.
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", condition.Type, err)
	}
	klog.InfoS("Request settled", "request", name, "user", request.Spec.Username, "as", condition.Type, "reason", found.reason)
	return false, nil
}

func (c *controller) judge(ctx context.Context, request *certificates.CertificateSigningRequest) (verdict, error) {
	addresses, bad := judgeRequest(request, c.allowed)
	if bad != nil {
		return *bad, nil
	}
	name, _ := nodeName(request)
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		node = nil
	} else if err != nil {
		return verdict{}, err
	}
	return judgeNode(addresses, name, node).settle(c.now().Sub(request.CreationTimestamp.Time)), nil
}
