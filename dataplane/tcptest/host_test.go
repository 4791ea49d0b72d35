// Package tcptest moves real TCP through the switch without a kernel: the hosts are
// gVisor's network stacks, and their links speak virtio-net.
package tcptest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"sluice/dataplane"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// offload is what a host's link takes and gives.
type offload bool

const (
	gso      offload = true  // super-packets and unfinished checksums
	noneOfIt offload = false // wire-size frames with finished checksums
)

// host is a TCP/IP stack with one interface. Its link is a dataplane.Queue: what
// the stack sends is what the switch reads.
type host struct {
	t       testing.TB
	name    string
	offload offload
	stack   *stack.Stack
	addrs   [2]netip.Addr // IPv4, IPv6
	link    *link

	out      chan vnet.Frame // to the switch
	in       chan vnet.Frame // from the switch
	wake     chan struct{}
	end      chan struct{} // closed to end the goroutine that receives
	ended    chan struct{}
	room     chan struct{} // something was taken from in
	lost     atomic.Uint64 // frames that the stack sent faster than the switch read
	illegal  atomic.Uint64 // frames that this link should not have been sent
	greatest atomic.Int64  // longest frame that came in
}

// device is how many frames a link holds in each direction: four windows, in segments.
// gVisor repairs a burst of losses at a segment per time-out, which is no test of ours.
const device = 4 * window / 1024

// window is what TCP's buffers hold, in bytes.
const window = 4 << 20

// newHost makes the host of that number, on 192.0.2.0/24 and 2001:db8::/64.
func newHost(t testing.TB, number byte, mtu int, o offload) *host {
	t.Helper()
	h := &host{
		t: t, name: string('a' + rune(number)), offload: o,
		out: make(chan vnet.Frame, device), in: make(chan vnet.Frame, device),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		end: make(chan struct{}), ended: make(chan struct{}),
	}
	h.addrs = [2]netip.Addr{
		netip.AddrFrom4([4]byte{192, 0, 2, number + 1}),
		netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: number + 1}),
	}
	mac := tcpip.LinkAddress([]byte{0x02, 0, 0x5e, 0x10, 1, number})
	h.link = &link{host: h, mac: mac, mtu: uint32(mtu)}
	h.stack = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			arp.NewProtocol, ipv4.NewProtocol,
			// No duplicate address detection: an address is of use at once.
			ipv6.NewProtocolWithOptions(ipv6.Options{}),
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	const nic tcpip.NICID = 1
	h.must(h.stack.CreateNIC(nic, ethernet.New(h.link)))
	for i, a := range h.addrs {
		h.must(h.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{
			Protocol: protocols[i],
			AddressWithPrefix: tcpip.AddressWithPrefix{
				Address: tcpip.AddrFromSlice(a.AsSlice()), PrefixLen: []int{24, 64}[i]},
		}, stack.AddressProperties{}))
	}
	h.stack.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	h.tune()
	go h.receive()
	t.Cleanup(h.close)
	return h
}

var protocols = [2]tcpip.NetworkProtocolNumber{ipv4.ProtocolNumber, ipv6.ProtocolNumber}

// tune gives TCP buffers that let super-packets grow, and selective
// acknowledgements.
func (h *host) tune() {
	sack := tcpip.TCPSACKEnabled(true)
	h.must(h.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack))
	rcv := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: window, Max: window}
	h.must(h.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &rcv))
	snd := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: window, Max: window}
	h.must(h.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &snd))
}

func (h *host) must(err tcpip.Error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("host %s: %v", h.name, err)
	}
}

func (h *host) close() {
	h.stack.Close()
	h.stack.Wait()
	close(h.end)
	<-h.ended
}

func (h *host) address(family int, port uint16) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(h.addrs[family].AsSlice()),
		Port: port}
}

// listen listens on a port of the host's IPv4 (family 0) or IPv6 (1) address.
func (h *host) listen(family int, port uint16) net.Listener {
	h.t.Helper()
	l, err := gonet.ListenTCP(h.stack, h.address(family, port), protocols[family])
	if err != nil {
		h.t.Fatalf("host %s: %v", h.name, err)
	}
	return l
}

// dial connects to a port of the peer.
func (h *host) dial(ctx context.Context, peer *host, family int, port uint16) (net.Conn, error) {
	to := peer.address(family, port)
	return gonet.DialContextTCP(ctx, h.stack, to, protocols[family])
}

// badChecksums is how many packets the stack found to be corrupt.
func (h *host) badChecksums() uint64 {
	s := h.stack.Stats()
	return s.TCP.ChecksumErrors.Value() + s.TCP.InvalidSegmentsReceived.Value() +
		s.IP.MalformedPacketsReceived.Value()
}

// send puts what the stack sends on the way to the switch.
func (h *host) send(f vnet.Frame) {
	select {
	case h.out <- f:
	default:
		h.lost.Add(1)
	}
}

// receive gives the stack what came from the switch.
func (h *host) receive() {
	defer close(h.ended)
	for {
		select {
		case f := <-h.in:
			select {
			case h.room <- struct{}{}:
			default:
			}
			h.deliver(f)
		case <-h.end:
			return
		}
	}
}

// deliver finishes the checksum of f, so that the stack verifies seed and payload
// alike, and hands f over.
func (h *host) deliver(f vnet.Frame) {
	b := f.Head
	h.greatest.Store(max(h.greatest.Load(), int64(len(b))))
	if f.Hdr.Flags&vnet.NeedsCsum != 0 {
		start := int(f.Hdr.CsumStart)
		sum := ^vnettest.Sum(b[start:])
		binary.BigEndian.PutUint16(b[start+int(f.Hdr.CsumOffset):], sum)
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b)})
	defer pkt.DecRef()
	if d := h.link.dispatcher.Load(); d != nil {
		(*d).DeliverNetworkPacket(0, pkt) // the Ethernet header says which protocol
	}
}

// ReadBatch implements dataplane.Queue.
func (h *host) ReadBatch(b *vnet.Batch, wait time.Duration) error {
	b.Reset()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case f := <-h.out:
		*b.Next() = f
	case <-h.wake:
		return nil
	case <-timer.C:
		return nil
	}
	for !b.Full() {
		select {
		case f := <-h.out:
			*b.Next() = f
		default:
			return nil
		}
	}
	return nil
}

// Wake implements dataplane.Queue.
func (h *host) Wake() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Transmitter implements dataplane.Queue.
func (h *host) Transmitter() dataplane.Transmitter { return transmitter{h} }

type transmitter struct{ h *host }

var errFull = errors.New("no room")

// WriteBatch implements dataplane.Transmitter.
func (x transmitter) WriteBatch(frames []vnet.Frame) (int, vnet.Refusal, error) {
	for i := range frames {
		hdr := &frames[i].Hdr
		if !x.h.offload && (hdr.GSO != vnet.GSONone || hdr.Flags&vnet.NeedsCsum != 0) {
			x.h.illegal.Add(1)
		}
		select {
		case x.h.in <- frames[i].Clone():
		default:
			return i, vnet.Full, errFull
		}
	}
	return len(frames), vnet.Accepted, nil
}

// WaitRoom implements dataplane.Transmitter.
func (x transmitter) WaitRoom(d time.Duration) {
	select {
	case <-x.h.room:
	case <-time.After(d):
	}
}

// link is the stack's side of a host's link, below the Ethernet header.
type link struct {
	host       *host
	mac        tcpip.LinkAddress
	mtu        uint32
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
}

// WritePackets implements stack.LinkWriter: a packet becomes a frame with its
// virtio-net header.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for _, pkt := range pkts.AsSlice() {
		view := pkt.ToView()
		f := vnet.Frame{Head: append([]byte{}, view.AsSlice()...)}
		view.Release()
		if o := pkt.GSOOptions; o.Type != stack.GSONone {
			l4 := len(pkt.LinkHeader().Slice()) + len(pkt.NetworkHeader().Slice())
			f.Hdr.HdrLen = uint16(l4 + len(pkt.TransportHeader().Slice()))
			f.Hdr.Flags = vnet.NeedsCsum
			f.Hdr.CsumStart, f.Hdr.CsumOffset = uint16(l4), o.CsumOffset
			if pkt.Data().Size() > int(o.MSS) {
				f.Hdr.GSOSize = o.MSS
				f.Hdr.GSO = vnet.GSOTCPv4
				if o.Type == stack.GSOTCPv6 {
					f.Hdr.GSO = vnet.GSOTCPv6
				}
			}
		}
		l.host.send(f)
	}
	return pkts.Len(), nil
}

// GSOMaxSize implements stack.GSOEndpoint: gVisor knows no BIG TCP.
func (l *link) GSOMaxSize() uint32 { return vnet.LegacyGSOMaxSize - 1 }

// SupportedGSO implements stack.GSOEndpoint.
func (l *link) SupportedGSO() stack.SupportedGSO {
	if l.host.offload {
		return stack.HostGSOSupported
	}
	return stack.GSONotSupported
}

// MTU implements stack.LinkEndpoint. The Ethernet endpoint above takes its header off.
func (l *link) MTU() uint32 { return l.mtu + header.EthernetMinimumSize }

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.dispatcher.Store(nil)
		return
	}
	l.dispatcher.Store(&d)
}

// The rest of stack.LinkEndpoint is that of a link without particulars.
func (l *link) IsAttached() bool                             { return l.dispatcher.Load() != nil }
func (l *link) LinkAddress() tcpip.LinkAddress               { return l.mac }
func (l *link) Capabilities() stack.LinkEndpointCapabilities { return 0 }
func (l *link) MaxHeaderLength() uint16                      { return 0 }
func (l *link) ARPHardwareType() header.ARPHardwareType      { return header.ARPHardwareEther }
func (l *link) SetMTU(uint32)                                {}
func (l *link) SetLinkAddress(tcpip.LinkAddress)             {}
func (l *link) AddHeader(*stack.PacketBuffer)                {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool         { return true }
func (l *link) SetOnCloseAction(func())                      {}
func (l *link) Wait()                                        {}
func (l *link) Close()                                       {}
