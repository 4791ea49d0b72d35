package peer

import (
	_ "unsafe" // for go:linkname

	_ "golang.zx2c4.com/wireguard/tun"
)

// wireguardSplit is the splitter behind wireguard/tun's Device.Read. It takes what
// one read of a TUN device gives, a 10-byte header and a packet without Ethernet
// header, copies each segment into a buffer of its own, and reports how many.
//
// SAFETY: no memory is touched unsafely; the signature is that of the version in
// go.mod, and only the benchmark and the test beside it call this.
//
//go:linkname wireguardSplit golang.zx2c4.com/wireguard/tun.handleVirtioRead
func wireguardSplit(in []byte, bufs [][]byte, sizes []int, offset int) (int, error)
