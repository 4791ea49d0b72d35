package accept

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
)

// transfer is how many bytes of TCP cross the switch, each way.
const transfer = 16 << 20

// cable is what is between host a and the switch, and between the switch and host b.
type cable struct{ from, to string }

var cables = []cable{
	{Packet, Packet}, {Packet, Narrow}, {Packet, Tap}, {Packet, Macvtap}, {Macvtap, Packet}, {Tap, Packet},
}

// bed is two hosts and a running switch between them.
type bed struct {
	*netns.Lab
	hosts map[string]*netns.Namespace // a and b, as the ports
	*netns.Sluice
}

// connect runs the switch between two hosts.
func connect(t *testing.T, c cable) bed {
	t.Helper()
	lab := netnstest.New(t)
	sw := lab.Namespace("sw")
	sw.Silent()
	hosts, ports := map[string]*netns.Namespace{}, []string{}
	for name, kind := range map[string]string{"a": c.from, "b": c.to} {
		h := lab.Namespace(name)
		h.Eager()
		hosts[name] = h
		size := wide
		switch kind {
		case Tap:
			// It stays when the switch ends, and with it the counters.
			_, err := h.Run(t.Context(), "ip", "tuntap", "add", "dev", "eth0", "mode", "tap")
			netnstest.Need(t, err)
			h.SetLink("eth0", netns.Link{})
			ports = append(ports, fmt.Sprintf("%s=tap:eth0,netns=%s,gso_max_size=%d,gso_ipv4_max_size=%[3]d",
				name, h.Name, wide))
			continue
		case Macvtap:
			ports = append(ports, fmt.Sprintf("%s=macvtap:m%[1]s,lower=v%[1]s,gso_max_size=%[2]d,gso_ipv4_max_size=%[2]d",
				name, wide))
		case Narrow:
			size = vnet.LegacyGSOMaxSize
			fallthrough
		default:
			ports = append(ports, fmt.Sprintf("%s=packet:v%s", name, name))
		}
		lab.Veth(h, "eth0", sw, "v"+name, netns.Link{GSO: size})
	}
	netnstest.Need(t, lab.Err())
	args := []string{}
	for _, p := range ports {
		args = append(args, "-p", p)
	}
	s := netnstest.Sluice(t, sw, args...)
	hosts["a"].Address("eth0", "10.0.0.1/24", "fd00::1/64")
	hosts["b"].Address("eth0", "10.0.0.2/24", "fd00::2/64")
	netnstest.Need(t, lab.Err())
	return bed{lab, hosts, s}
}

// carry has two hosts' TCP send what the kernel lets it, and wants every byte to
// arrive and every frame to be accounted for.
func carry(t *testing.T, c cable, v6 bool) Carried {
	b := connect(t, c)
	address := "10.0.0.2"
	if v6 {
		address = "fd00::2"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	err := b.Exchange(ctx, b.hosts["a"], b.hosts["b"], address, transfer)
	for errors.Is(err, unix.EHOSTUNREACH) && ctx.Err() == nil {
		// Three seconds without an answer to ARP: an emulated guest may be that slow. That
		// no frame was lost is looked at below.
		err = b.Exchange(ctx, b.hosts["a"], b.hosts["b"], address, transfer)
	}
	if err != nil {
		t.Error(err)
	}

	sum, err := b.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.Logf("%+v", sum)
	}
	for name, h := range b.hosts {
		account(t, h, sum.Port(name))
	}
	from, to := sum.Port("a"), sum.Port("b")
	return Carried{c.from, c.to, v6, from.RX.MaxFrame, to.TX.MaxFrame, to.Limits.IPv6Form}
}

// account fails the test if a host received anything corrupt, or not what its port
// has sent: fewer frames are lost, more were cut by the kernel.
func account(t *testing.T, h *netns.Namespace, p *summary.Port) {
	t.Helper()
	counters, err := h.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if bad := counters.TCPErrors(); bad != "" {
		t.Errorf("%s received corrupt packets: %s", h.Name, bad)
	}
	var received uint64
	err = netns.Until(t.Context(), "the last frame", func() (bool, error) {
		a, err := h.Link("eth0")
		if err != nil {
			return false, err
		}
		received = a.Statistics.RxPackets
		return received+p.KernelDrops >= p.TX.Frames, nil
	})
	if err != nil || received > p.TX.Frames {
		t.Errorf("%s received %d frames of %d that port %s has sent, and the kernel counts %d drops: %v",
			h.Name, received, p.TX.Frames, p.Name, p.KernelDrops, err)
	}
	drops := map[string]uint64{}
	maps.Copy(drops, p.Drops.Egress)
	for reason, n := range p.Drops.Ingress {
		drops[reason] += n
	}
	// Neighbour discovery comes in while the other port is not there; a host of an
	// emulated guest may be too slow for the switch.
	delete(drops, vnet.DropNoEgress.String())
	delete(drops, vnet.DropFull.String())
	if len(drops) > 0 {
		t.Errorf("port %s: drops %v", p.Name, drops)
	}
}
