module slipway.build/cni-plugins

go 1.26

require github.com/containernetworking/plugins v1.9.1
