package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
)

const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"

	// A kubelet may ask before its Node object, or the address in it, is there.
	patienceForNode = 10 * time.Minute
	// After a change of address the request and the Node's new status race by moments.
	patienceForAddress = 15 * time.Second
)

type action int

const (
	approve action = iota
	deny
	// wait leaves the request pending; it becomes deny when the request is older than the verdict's patience.
	wait
)

type verdict struct {
	action   action
	reason   string
	patience time.Duration
}

func denied(format string, args ...any) *verdict {
	return &verdict{action: deny, reason: fmt.Sprintf(format, args...)}
}

// nodeName returns the node that a request claims to come from; the API server has authenticated the user.
func nodeName(csr *certificates.CertificateSigningRequest) (string, *verdict) {
	name, isNode := strings.CutPrefix(csr.Spec.Username, userPrefix)
	if !isNode || name == "" {
		return "", denied("requested by %q, which is no node", csr.Spec.Username)
	}
	if !slices.Contains(csr.Spec.Groups, nodesGroup) {
		return "", denied("user %q is not in the group %s", csr.Spec.Username, nodesGroup)
	}
	return name, nil
}

// judgeRequest looks at everything that needs no Node object and returns the addresses that are asked for.
func judgeRequest(csr *certificates.CertificateSigningRequest, allowed []netip.Prefix) ([]netip.Addr, *verdict) {
	name, bad := nodeName(csr)
	if bad != nil {
		return nil, bad
	}
	block, rest := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, denied("the request is not one PEM certificate request")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, denied("the request cannot be read: %v", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, denied("the request is not signed by its own key: %v", err)
	}
	if request.Subject.CommonName != csr.Spec.Username {
		return nil, denied("common name is %q, expected %q", request.Subject.CommonName, csr.Spec.Username)
	}
	if !slices.Equal(request.Subject.Organization, []string{nodesGroup}) {
		return nil, denied("organization is %q, expected only %q", request.Subject.Organization, nodesGroup)
	}
	if bad := judgeUsages(csr.Spec.Usages, request.PublicKeyAlgorithm); bad != nil {
		return nil, bad
	}
	if len(request.EmailAddresses) > 0 || len(request.URIs) > 0 {
		return nil, denied("only DNS names and addresses may be asked for, not %q %q", request.EmailAddresses, request.URIs)
	}
	for _, dns := range request.DNSNames {
		if dns != name {
			return nil, denied("DNS name %q is not the node's own, %q", dns, name)
		}
	}
	if len(request.DNSNames) == 0 && len(request.IPAddresses) == 0 {
		return nil, denied("neither a DNS name nor an address is asked for")
	}
	var addresses []netip.Addr
	for _, ip := range request.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		address = address.Unmap()
		if !ok || !slices.ContainsFunc(allowed, func(network netip.Prefix) bool { return network.Contains(address) }) {
			return nil, denied("address %s is outside the networks of nodes, %v", ip, allowed)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// judgeUsages wants exactly server auth and digital signature; RSA keys may add key encipherment.
func judgeUsages(usages []certificates.KeyUsage, algorithm x509.PublicKeyAlgorithm) *verdict {
	allowed := []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageServerAuth}
	if algorithm == x509.RSA {
		allowed = append(allowed, certificates.UsageKeyEncipherment)
	}
	for _, usage := range usages {
		if !slices.Contains(allowed, usage) {
			return denied("usage %q is not one of %q", usage, allowed)
		}
	}
	for _, needed := range allowed[:2] {
		if !slices.Contains(usages, needed) {
			return denied("usage %q is missing", needed)
		}
	}
	return nil
}

// judgeNode compares the addresses of a request with those of its Node (nil when there is none).
func judgeNode(addresses []netip.Addr, name string, node *core.Node) verdict {
	if node == nil {
		return verdict{wait, fmt.Sprintf("there is no node %q", name), patienceForNode}
	}
	var own []netip.Addr
	for _, listed := range node.Status.Addresses {
		if listed.Type != core.NodeInternalIP {
			continue
		}
		if address, err := netip.ParseAddr(listed.Address); err == nil {
			own = append(own, address.Unmap())
		}
	}
	if len(addresses) > 0 && len(own) == 0 {
		return verdict{wait, fmt.Sprintf("node %q has no internal address yet", name), patienceForNode}
	}
	for _, address := range addresses {
		if !slices.Contains(own, address) {
			return verdict{wait, fmt.Sprintf("address %s is not an internal address of node %q, %v", address, name, own), patienceForAddress}
		}
	}
	return verdict{action: approve, reason: fmt.Sprintf("names and addresses are those of node %q", name)}
}

// settle turns a wait that has lasted too long into a denial.
func (v verdict) settle(age time.Duration) verdict {
	if v.action == wait && age > v.patience {
		return verdict{action: deny, reason: fmt.Sprintf("%s, after %s", v.reason, v.patience)}
	}
	return v
}
