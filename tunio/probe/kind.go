package probe

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"sluice/tunio"
	"sluice/tunio/release"
	"sluice/vnet"
)

// Kind is what was found out about one kind of port. A length is that of the longest super-packet
// that arrived, of the few that were tried.
type Kind struct {
	Name string // "tap", "packet", "macvtap"
	// Err says why it could not be opened, or why the trial ended early. What was found before that
	// is valid.
	Err error

	Ability       // what a switch uses
	HeaderLen int // of the virtio-net header

	// Out is what reaches the IP layer behind the port whole, of what is written to it.
	Out struct {
		IPv4, HBH, Plain int // the last two: IPv6 above 64 KiB in this form
		Types
	}
	// In is what can be read whole of what is sent to the port's netdev.
	In struct {
		IPv4, IPv6 int
		Types
	}
}

// Types says which GSO types pass.
type Types struct{ TCPv4, TCPv6, UDP, ECN bool }

// Report is what Examine found.
type Report struct {
	Result
	Kinds []Kind // tap, packet, macvtap; none where there is no namespace to try in
	// HostDrop says why frames for a packet port cannot be kept from the host's own stack.
	HostDrop error
}

// Examine does what Run does, and also examines each kind of port. hide keeps the frames that a
// netdev of the calling thread's network namespace receives from the host's own stack, until its
// result is closed.
func Examine(hide func(index int) (io.Closer, error)) Report {
	r := Report{Result: Result{Release: release.Current()}}
	r.Tap, r.Packet = byRelease(r.Release)
	var err error
	onThread(func() { err = r.examine(hide) })
	r.Probed = err == nil
	if err != nil {
		r.Why = err.Error()
	}
	return r
}

// examine replaces in r what can be tried. It changes the calling thread for good.
func (r *Report) examine(hide func(index int) (io.Closer, error)) error {
	l, err := enter()
	if err != nil {
		r.HostDrop = err
		return err
	}
	defer l.close()
	r.HostDrop = errors.New("no packet port could be opened")
	r.Kinds = []Kind{{Name: "tap"}, {Name: "packet"}, {Name: "macvtap"}}
	tap, packet, macvtap := &r.Kinds[0], &r.Kinds[1], &r.Kinds[2]
	alike := r.Packet // a switch uses Packet for a macvtap too
	for _, k := range []struct {
		*Kind
		ability *Ability
		open    func() (*way, error)
	}{{tap, &r.Tap, l.tap}, {packet, &r.Packet, l.packet}, {macvtap, &alike, l.macvtap}} {
		w, err := k.open()
		if err != nil {
			k.Err = err
			continue
		}
		k.Ability = *k.ability
		k.Err = l.try(k.Kind, w)
		*k.ability = k.Ability
		if k.Err == nil {
			k.Err = l.tryMore(k.Kind, w)
		}
		if k.Kind == packet && k.Err == nil {
			r.HostDrop = l.tryHide(w, hide)
		}
		w.close()
	}
	return errors.Join(wrap("TAP", tap.Err), wrap("packet socket", packet.Err))
}

// typed is the length of the super-packets that try GSO types. Every netdev takes it.
const typed = 20000

// tryMore fills in which GSO types pass, and what can be read from the port. The
// receiver has its addresses from try.
func (l *lab) tryMore(k *Kind, w *way) (err error) {
	out := trial{out: w.q.Transmitter(), dst: w.receiver.Attrs().HardwareAddr}
	out.tcp, out.udp = rawSink(l.v4.tcp), rawSink(l.v4.udp)
	out6 := out
	out6.v6, out6.tcp, out6.udp = true, rawSink(l.v6.tcp), rawSink(l.v6.udp)
	if k.Out.Types, err = types(&out, &out6); err != nil {
		return err
	}
	// The limit is 64 KiB at first. The kernel refuses a value above tso_max_size, a TAP's 64 KiB.
	a := w.receiver.Attrs()
	if most := int(a.TSOMaxSize); most > int(a.GSOMaxSize) {
		err = errors.Join(l.netlink.LinkSetGSOMaxSize(w.receiver, most),
			l.netlink.LinkSetGSOIPv4MaxSize(w.receiver, most))
		if err != nil {
			return err
		}
	}
	queues, err := tunio.OpenPacket(a.Name, 1)
	if err != nil {
		return fmt.Errorf("what is sent to it: %w", err)
	}
	defer queues[0].Close()
	in := trial{out: queues[0].Transmitter(), dst: a.HardwareAddr}
	s := &queueSink{q: w.q, batch: vnet.NewBatch(tunio.MaxBatch, 0, 0)}
	in.tcp, in.udp = s, s
	in6 := in
	in6.v6 = true
	if k.In.Types, err = types(&in, &in6); err != nil {
		return fmt.Errorf("what is sent to it: %w", err)
	}
	if k.In.IPv4, _, err = in.longest(shape{}, vnet.MaxFrame); err == nil {
		// The form is up to the sender: nothing that is read here was parsed as a packet yet.
		k.In.IPv6, _, err = in6.longest(shape{v6: true, form: vnet.FormPlain}, vnet.MaxFrame)
	}
	if err != nil {
		return fmt.Errorf("what is sent to it: %w", err)
	}
	return nil
}

// types are the GSO types that pass, over IPv4 and IPv6.
func types(v4, v6 *trial) (t Types, err error) {
	for _, c := range []struct {
		passes *bool
		shapes []shape
	}{
		{&t.TCPv4, []shape{{}}},
		{&t.TCPv6, []shape{{v6: true}}},
		{&t.UDP, []shape{{udp: true}, {udp: true, v6: true}}},
		{&t.ECN, []shape{{ecn: true}, {ecn: true, v6: true}}},
	} {
		*c.passes = true
		for _, s := range c.shapes {
			on := v4
			if s.v6 {
				on = v6
			}
			s.n = typed
			ok, err := on.passes(s)
			if err != nil {
				return t, err
			}
			*c.passes = *c.passes && ok
		}
	}
	return t, nil
}

// queueSink is a queue that reads what a trial sent.
type queueSink struct {
	q     *tunio.Queue
	batch *vnet.Batch
	seen  int // of batch
}

func (s *queueSink) next() (int, *vnet.GSO, error) {
	for {
		for s.seen < len(s.batch.Frames) {
			f := &s.batch.Frames[s.seen]
			s.seen++
			if f.Len() >= vnet.EthLen && [6]byte(f.Head[6:12]) == senderMAC {
				return f.Len(), &f.Hdr.GSO, nil
			}
		}
		s.seen = 0
		if err := s.q.ReadBatch(s.batch, markerWait); err != nil {
			return 0, nil, err
		}
		if len(s.batch.Frames) == 0 && s.batch.Discarded == [vnet.NumDrops]int{} {
			return 0, nil, unix.EAGAIN
		}
	}
}

func (*queueSink) measure(s *shape) int { return s.n }

// tryHide reports whether hide keeps what the receiver gets from its own stack, and
// nothing from a packet socket.
func (l *lab) tryHide(w *way, hide func(index int) (io.Closer, error)) error {
	a := w.receiver.Attrs()
	queues, err := tunio.OpenPacket(a.Name, 1)
	if err != nil {
		return err
	}
	defer queues[0].Close()
	h, err := hide(a.Index)
	if err != nil {
		return err
	}
	defer h.Close()
	t := trial{out: w.q.Transmitter(), dst: a.HardwareAddr}
	t.tcp = &queueSink{q: queues[0], batch: vnet.NewBatch(tunio.MaxBatch, 0, 0)}
	t.udp = t.tcp
	if _, err := l.drained(); err != nil {
		return err
	}
	if _, err := t.arrived(shape{}); err != nil {
		return fmt.Errorf("the packet port does not get the frames either: %w", err)
	}
	if n, err := l.drained(); n > 0 || err != nil {
		return errors.Join(err, errors.New("the host's own stack gets the frames all the same"))
	}
	return nil
}

// drained empties the raw socket that receives TCP over IPv4, and counts.
func (l *lab) drained() (packets int, err error) {
	for ; ; packets++ {
		if _, _, err := rawSink(l.v4.tcp).next(); errors.Is(err, unix.EAGAIN) {
			return packets, nil
		} else if err != nil {
			return packets, err
		}
	}
}
