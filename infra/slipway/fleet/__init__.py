"""Where machines come from. Each kind of fleet has `build(cluster, ...) → Fleet`; see `types`."""
