module slipway.build/runc

go 1.26

require github.com/opencontainers/runc v1.4.3
