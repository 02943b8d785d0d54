package main

import (
	"context"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// settled waits until the request has a condition and returns it.
func settled(t *testing.T, client *fake.Clientset) certificates.CertificateSigningRequestCondition {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		csr, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "csr-1", meta.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(csr.Status.Conditions) > 0 {
			return csr.Status.Conditions[0]
		}
	}
	t.Fatal("the request was not settled")
	return certificates.CertificateSigningRequestCondition{}
}

func start(t *testing.T, client *fake.Clientset) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, client, allowed, 1) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAGoodRequestIsApproved(t *testing.T) {
	client := fake.NewClientset(node("10.98.0.7"), request(t, ecKey(t), nil))
	start(t, client)
	if got := settled(t, client); got.Type != certificates.CertificateApproved || got.Reason != "SlipwayApproved" {
		t.Errorf("%+v", got)
	}
}

func TestABadRequestIsDenied(t *testing.T) {
	csr := request(t, ecKey(t), nil)
	csr.Spec.Username = "jane"
	client := fake.NewClientset(node("10.98.0.7"), csr)
	start(t, client)
	if got := settled(t, client); got.Type != certificates.CertificateDenied {
		t.Errorf("%+v", got)
	}
}

func TestARequestWaitsForItsNode(t *testing.T) {
	client := fake.NewClientset(request(t, ecKey(t), nil))
	start(t, client)
	time.Sleep(200 * time.Millisecond)
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node("10.98.0.7"), meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := settled(t, client); got.Type != certificates.CertificateApproved {
		t.Errorf("%+v", got)
	}
}

func TestOtherSignersAreLeftAlone(t *testing.T) {
	csr := request(t, ecKey(t), nil)
	csr.Spec.SignerName = certificates.KubeAPIServerClientKubeletSignerName
	if isPending(csr) {
		t.Error("a request of another signer is not ours")
	}
}
