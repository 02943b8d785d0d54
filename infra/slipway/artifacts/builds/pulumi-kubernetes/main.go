// The Kubernetes provider of Pulumi, with its schema as it is in the module.
//
// Upstream generates two more files before it builds: the schema with the version in it, and a smaller mapping. Neither
// is in the module, so the version goes into the schema here, at start.
package main

import (
	"bytes"
	_ "embed"
	"fmt"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// Set by the linker.
var version string

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

func main() {
	versioned := fmt.Appendf(nil, "{%q: %q,", "version", version)
	versioned = append(versioned, bytes.TrimPrefix(bytes.TrimSpace(schema), []byte("{"))...)
	provider.Serve("kubernetes", version, versioned, terraformMapping)
}
