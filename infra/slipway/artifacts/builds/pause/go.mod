module slipway.build/pause

go 1.26
