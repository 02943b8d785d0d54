"""What goes to a host and runs there: bundles by digest, and the runner that converges one host."""
