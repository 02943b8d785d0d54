module slipway.build/netprobe

go 1.26
