package probe

import (
	"fmt"

	"sluice/tunio/release"
	"sluice/vnet"
)

// Ability is what the kernel takes, and delivers, of super-packets above 64 KiB.
type Ability struct {
	IPv4     bool      // with tot_len 0
	IPv6     vnet.Form // in which form; FormNone if in none
	MaxWrite int       // longest frame that one write takes, at most vnet.MaxFrame
}

// Result is what Run found.
type Result struct {
	Release string  // uname -r
	Tap     Ability // of a write to a TAP

	// Packet is that of a send through a packet socket or a write to a macvtap, over a netdev whose
	// own limits allow it.
	Packet Ability

	// Probed says that everything here was tried. Otherwise Why says what was not tried and why,
	// and the values are those measured on other kernels of the release.
	Probed bool
	Why    string
}

// Check reports a result, read from a file, that Run has not found on the running kernel.
func (r *Result) Check() error {
	if now := release.Current(); r.Release != now {
		return fmt.Errorf("it is of the kernel %q, and %q runs", r.Release, now)
	}
	for _, a := range []Ability{r.Tap, r.Packet} {
		if a.MaxWrite < legacyMaxFrame || a.MaxWrite > vnet.MaxFrame || a.IPv6 > vnet.FormPlain {
			return fmt.Errorf("it has values that no kernel has: %+v", a)
		}
	}
	return nil
}

// byRelease is what was measured, with payloads of 70000 to 524000 bytes, on kernels 6.1, 6.12,
// 6.18 and 7.3: the answer where nothing can be tried. The releases in which the behaviour changed
// come from the kernel's history: since 6.6 alloc_skb_with_frags takes more than 17 pages, and 7.0
// removed the hop-by-hop header. Up to 6.19 no form survives a packet socket: ipv6_gso_segment
// removes the header before it finds that there is nothing to cut. Some stable kernels do better
// than their release: 6.12.117 accepts the packet without it.
func byRelease(running string) (tap, packet Ability) {
	switch {
	case release.Since(running, 7, 0):
		a := Ability{IPv4: true, IPv6: vnet.FormPlain, MaxWrite: vnet.MaxFrame}
		return a, a
	case release.Since(running, 6, 6):
		return Ability{IPv4: true, IPv6: vnet.FormHBH, MaxWrite: vnet.MaxFrame},
			Ability{IPv4: true, IPv6: vnet.FormNone, MaxWrite: vnet.MaxFrame}
	}
	a := Ability{MaxWrite: legacyMaxFrame}
	return a, a
}

// legacyMaxFrame is the longest super-packet below the limit that every kernel
// knows, and what every kernel takes in one write.
const legacyMaxFrame = vnet.LegacyGSOMaxSize - 1
