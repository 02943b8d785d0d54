package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var allowed = []netip.Prefix{netip.MustParsePrefix("10.98.0.0/24"), netip.MustParsePrefix("fd00:98::/64")}

func ecKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// request is a proper one of node-a; change edits the certificate request before it is signed.
func request(t *testing.T, key crypto.Signer, change func(*x509.CertificateRequest)) *certificates.CertificateSigningRequest {
	t.Helper()
	template := &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:node-a", Organization: []string{nodesGroup}},
		DNSNames:    []string{"node-a"},
		IPAddresses: []net.IP{net.ParseIP("10.98.0.7")},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificates.CertificateSigningRequest{
		ObjectMeta: meta.ObjectMeta{Name: "csr-1", CreationTimestamp: meta.Now()},
		Spec: certificates.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificates.KubeletServingSignerName,
			Username:   "system:node:node-a",
			Groups:     []string{"system:nodes", "system:authenticated"},
			Usages:     []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageServerAuth},
		},
	}
}

func node(addresses ...string) *core.Node {
	made := &core.Node{ObjectMeta: meta.ObjectMeta{Name: "node-a"}}
	made.Status.Addresses = []core.NodeAddress{{Type: core.NodeHostName, Address: "node-a"}}
	for _, address := range addresses {
		made.Status.Addresses = append(made.Status.Addresses, core.NodeAddress{Type: core.NodeInternalIP, Address: address})
	}
	return made
}

func TestRequestOfANodeForItself(t *testing.T) {
	addresses, bad := judgeRequest(request(t, ecKey(t), nil), allowed)
	if bad != nil {
		t.Fatal(bad.reason)
	}
	if got := judgeNode(addresses, "node-a", node("10.98.0.7")); got.action != approve {
		t.Fatalf("not approved: %s", got.reason)
	}
}

func TestDualStackAddressesAreCompared(t *testing.T) {
	both := func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP("fd00:98::7")) }
	addresses, bad := judgeRequest(request(t, ecKey(t), both), allowed)
	if bad != nil {
		t.Fatal(bad.reason)
	}
	if got := judgeNode(addresses, "node-a", node("10.98.0.7", "fd00:98::7")); got.action != approve {
		t.Fatalf("not approved: %s", got.reason)
	}
	if got := judgeNode(addresses, "node-a", node("10.98.0.7")); got.action != wait {
		t.Fatalf("expected to wait: %+v", got)
	}
}

func TestKeyEnciphermentOnlyForRSA(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key crypto.Signer
		ok  bool
	}{{rsaKey, true}, {ecKey(t), false}} {
		csr := request(t, c.key, nil)
		csr.Spec.Usages = append(csr.Spec.Usages, certificates.UsageKeyEncipherment)
		if _, bad := judgeRequest(csr, allowed); (bad == nil) != c.ok {
			t.Errorf("%T: got %+v", c.key, bad)
		}
	}
}

func TestRequestsThatAreDenied(t *testing.T) {
	type csrs = certificates.CertificateSigningRequest
	type template = x509.CertificateRequest
	cases := map[string]struct {
		change func(*template)
		edit   func(*csrs)
		reason string
	}{
		"another user":        {edit: func(c *csrs) { c.Spec.Username = "jane" }, reason: "is no node"},
		"bare prefix":         {edit: func(c *csrs) { c.Spec.Username = "system:node:" }, reason: "is no node"},
		"bootstrap token":     {edit: func(c *csrs) { c.Spec.Username = "system:bootstrap:abcdef" }, reason: "is no node"},
		"not in the group":    {edit: func(c *csrs) { c.Spec.Groups = []string{"system:authenticated"} }, reason: "not in the group"},
		"another node's name": {edit: func(c *csrs) { c.Spec.Username = "system:node:node-b" }, reason: "common name"},
		"organization":        {change: func(r *template) { r.Subject.Organization = []string{"system:masters"} }, reason: "organization"},
		"two organizations":   {change: func(r *template) { r.Subject.Organization = []string{nodesGroup, "system:masters"} }, reason: "organization"},
		"no organization":     {change: func(r *template) { r.Subject.Organization = nil }, reason: "organization"},
		"foreign DNS name":    {change: func(r *template) { r.DNSNames = []string{"node-a", "kubernetes.default"} }, reason: "DNS name"},
		"foreign network":     {change: func(r *template) { r.IPAddresses = []net.IP{net.ParseIP("10.97.0.1")} }, reason: "outside the networks"},
		"loopback":            {change: func(r *template) { r.IPAddresses = append(r.IPAddresses, net.ParseIP("127.0.0.1")) }, reason: "outside the networks"},
		"mail":                {change: func(r *template) { r.EmailAddresses = []string{"a@b"} }, reason: "only DNS names"},
		"URI":                 {change: func(r *template) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, reason: "only DNS names"},
		"no names":            {change: func(r *template) { r.DNSNames, r.IPAddresses = nil, nil }, reason: "neither"},
		"client auth": {edit: func(c *csrs) { c.Spec.Usages = append(c.Spec.Usages, certificates.UsageClientAuth) },
			reason: `usage "client auth" is not one of`},
		"no server auth": {edit: func(c *csrs) { c.Spec.Usages = c.Spec.Usages[:1] }, reason: `usage "server auth" is missing`},
		"no usages":      {edit: func(c *csrs) { c.Spec.Usages = nil }, reason: "is missing"},
		"no PEM":         {edit: func(c *csrs) { c.Spec.Request = []byte("x") }, reason: "not one PEM"},
		"two requests":   {edit: func(c *csrs) { c.Spec.Request = append(c.Spec.Request, c.Spec.Request...) }, reason: "not one PEM"},
		"broken":         {edit: func(c *csrs) { c.Spec.Request = broken(c.Spec.Request) }, reason: "not signed by its own key"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			csr := request(t, ecKey(t), c.change)
			if c.edit != nil {
				c.edit(csr)
			}
			_, bad := judgeRequest(csr, allowed)
			if bad == nil || bad.action != deny || !strings.Contains(bad.reason, c.reason) {
				t.Errorf("got %+v, expected a denial with %q", bad, c.reason)
			}
		})
	}
}

// broken flips the last byte of the signature.
func broken(request []byte) []byte {
	block, _ := pem.Decode(request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	return pem.EncodeToMemory(block)
}

func TestWaitingEndsInADenial(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("10.98.0.7")}
	for name, c := range map[string]struct {
		node     *core.Node
		patience time.Duration
	}{
		"no node":         {nil, patienceForNode},
		"no address":      {node(), patienceForNode},
		"another address": {node("10.98.0.8"), patienceForAddress},
	} {
		t.Run(name, func(t *testing.T) {
			found := judgeNode(addresses, "node-a", c.node)
			if got := found.settle(c.patience); got.action != wait {
				t.Errorf("at once: %+v", got)
			}
			if got := found.settle(c.patience + time.Second); got.action != deny {
				t.Errorf("later: %+v", got)
			}
		})
	}
}
