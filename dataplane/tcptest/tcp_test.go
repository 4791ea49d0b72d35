package tcptest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"sluice/dataplane"
	"sluice/dataplane/summary"
	"sluice/integration/leaktest"
	"sluice/vnet"
)

// TestMain fails the run if tests leave descriptors or goroutines behind.
func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// deadline bounds a test: no transfer fails for a slow machine.
const deadline = 2 * time.Minute

// network is a switch with a port for each host.
type network struct {
	*dataplane.Switch
	t     *testing.T
	hosts []*host
	ports []*dataplane.Port
}

// attach adds h behind a port with limits l.
func (n *network) attach(h *host, l vnet.Limits) {
	n.t.Helper()
	p, err := n.AddPort(dataplane.PortConfig{Name: h.name})
	if err != nil {
		n.t.Fatal(err)
	}
	if err := p.Attach([]dataplane.Queue{h}, l, true); err != nil {
		n.t.Fatal(err)
	}
	n.hosts = append(n.hosts, h)
	n.ports = append(n.ports, p)
}

// newNetwork makes a switch that is closed, and whose hosts are checked, at the
// test's end.
func newNetwork(t *testing.T) *network {
	n := &network{Switch: dataplane.New(dataplane.Options{}), t: t}
	t.Cleanup(func() {
		n.Close()
		n.conserved()
		for i, h := range n.hosts {
			if c := h.badChecksums(); c != 0 {
				t.Errorf("host %s got %d corrupt packets", h.name, c)
			}
			if c := h.illegal.Load(); c != 0 {
				t.Errorf("host %s got %d frames that its link cannot take", h.name, c)
			}
			if t.Failed() {
				t.Logf("host %s: %d frames lost before the switch, longest in %d, %+v",
					h.name, h.lost.Load(), h.greatest.Load(), n.ports[i].Stats())
			}
		}
	})
	return n
}

// conserved checks both conservation laws of the switch's counters.
func (n *network) conserved() {
	n.t.Helper()
	var s summary.Summary
	for _, p := range n.ports {
		c := p.Stats()
		s.Ports = append(s.Ports, summary.Port{
			Name: p.Name(),
			RX:   summary.RX{Frames: c.RxFrames, Copies: c.RxCopies},
			TX: summary.TX{Offered: c.TxOffered, Frames: c.TxFrames,
				Resegmented: c.Resegmented, Chunks: c.Chunks,
				Segmented: c.Segmented, Segments: c.Segments},
			Drops: summary.Drops{
				Ingress: map[string]uint64{"all": total(c.IngressDrops)},
				Egress:  map[string]uint64{"all": total(c.EgressDrops)},
			},
		})
	}
	if err := s.Conserved(); err != nil {
		n.t.Error(err)
	}
}

func total(drops [vnet.NumDrops]uint64) (sum uint64) {
	for _, n := range drops {
		sum += n
	}
	return sum
}

// limits are those of a link with gso_max_size max, or without offload for 0.
func limits(mtu, max int) vnet.Limits {
	able := max > 0
	return vnet.Limits{
		GSOMaxSize: max, GSOIPv4MaxSize: max, GSOMaxSegs: vnet.MaxSegments,
		MTU: mtu, MaxWrite: vnet.MaxFrame,
		Csum: able, TSO4: able, TSO6: able, USO: able,
		IPv6Form: vnet.FormHBH,
	}
}

// exchange sends n bytes each way at once over one connection from a to b, and
// fails the test unless they arrive unchanged.
func exchange(ctx context.Context, a, b *host, family int, port uint16, n int) error {
	l := b.listen(family, port)
	defer l.Close()
	results := make(chan error, 2)
	go func() {
		c, err := l.Accept()
		if err != nil {
			results <- err
			return
		}
		results <- talk(c, n, uint64(port)*2, uint64(port)*2+1)
	}()
	c, err := a.dial(ctx, b, family, port)
	if err != nil {
		l.Close()
		<-results
		return fmt.Errorf("%s to %s: %w", a.name, b.name, err)
	}
	results <- talk(c, n, uint64(port)*2+1, uint64(port)*2)
	for range 2 {
		if e := <-results; e != nil && err == nil {
			err = fmt.Errorf("%s to %s: %w", a.name, b.name, e)
		}
	}
	return err
}

// talk writes the n bytes of seed mine, and reads and compares those of seed
// theirs.
func talk(c io.ReadWriteCloser, n int, mine, theirs uint64) error {
	defer c.Close()
	type deadliner interface{ SetDeadline(time.Time) error }
	if err := c.(deadliner).SetDeadline(time.Now().Add(deadline)); err != nil {
		return err
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(content(n, mine))
		wrote <- err
	}()
	got := sha256.New()
	read, err := io.CopyN(got, c, int64(n))
	if e := <-wrote; err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", read, n, err)
	}
	want := sha256.Sum256(content(n, theirs))
	if !bytes.Equal(got.Sum(nil), want[:]) {
		return fmt.Errorf("%d bytes arrived changed", n)
	}
	return nil
}

// content is n bytes that only this seed gives.
func content(n int, seed uint64) []byte {
	var key [32]byte
	key[0], key[1], key[2] = byte(seed), byte(seed>>8), byte(seed>>16)
	b := make([]byte, n)
	if _, err := rand.NewChaCha8(key).Read(b); err != nil {
		panic(err) // it never fails
	}
	return b
}

var families = []string{"IPv4", "IPv6"}

// Two hosts, each with its own abilities: what one sends whole, the other gets as
// it can take it.
func TestTwoHosts(t *testing.T) {
	for _, c := range []struct {
		name   string
		a, b   offload
		sizes  [2]int // gso_max_size towards a and b; 0: no offload
		mtu    [2]int
		chunks bool // towards b
		cut    bool // towards b, into segments
	}{
		{name: "both take all", a: gso, b: gso, sizes: [2]int{65536, 65536},
			mtu: [2]int{1500, 1500}},
		{name: "b takes an eighth", a: gso, b: gso, sizes: [2]int{65536, 8192},
			mtu: [2]int{1500, 1500}, chunks: true},
		{name: "b has no offload", a: gso, b: noneOfIt, sizes: [2]int{65536, 0},
			mtu: [2]int{1500, 1500}, cut: true},
		{name: "nobody has", a: noneOfIt, b: noneOfIt, mtu: [2]int{1500, 1500}},
		{name: "MTU 9000", a: gso, b: noneOfIt, sizes: [2]int{65536, 0},
			mtu: [2]int{9000, 9000}, cut: true},
		// TCP agrees on the smaller MSS.
		{name: "MTU 9000 and 1500", a: gso, b: noneOfIt, sizes: [2]int{65536, 0},
			mtu: [2]int{9000, 1500}, cut: true},
	} {
		for family, name := range families {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				n := newNetwork(t)
				a, b := newHost(t, 0, c.mtu[0], c.a), newHost(t, 1, c.mtu[1], c.b)
				n.attach(a, limits(c.mtu[0], c.sizes[0]))
				n.attach(b, limits(c.mtu[1], c.sizes[1]))
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				if err := exchange(ctx, a, b, family, 5201, 8<<20); err != nil {
					t.Fatal(err)
				}
				n.Close() // the counters are final
				in, out := n.ports[0].Stats(), n.ports[1].Stats()
				// How great they become is for the scheduler to say.
				if bool(c.a) && in.RxMaxFrame <= c.mtu[0]+vnet.EthLen {
					t.Errorf("the greatest frame from a has %d bytes: no super-packets",
						in.RxMaxFrame)
				}
				if got := out.Resegmented > 0; got != c.chunks {
					t.Errorf("%d super-packets resegmented for b", out.Resegmented)
				}
				if got := out.Segmented > 0; got != c.cut {
					t.Errorf("%d super-packets segmented for b", out.Segmented)
				}
				most := c.mtu[1] + vnet.EthLen
				switch {
				case c.sizes[1] > in.RxMaxFrame: // whole
					most = in.RxMaxFrame
				case c.sizes[1] > 0:
					most = c.sizes[1] - 1
				}
				if n := int(b.greatest.Load()); n > most || out.TxMaxFrame > most || n < most/2 {
					t.Errorf("the longest frame to b has %d bytes, the switch says %d; want about %d",
						n, out.TxMaxFrame, most)
				}
				if in.RxCopies != 0 {
					t.Errorf("%d copies between two ports", in.RxCopies)
				}
			})
		}
	}
}

// Three hosts, every pair at once, in both families: each egress gets its own
// form, and what goes between two of them does not reach the third.
func TestThreeHostsAtOnce(t *testing.T) {
	n := newNetwork(t)
	a, b, c := newHost(t, 0, 1500, gso), newHost(t, 1, 1500, gso), newHost(t, 2, 1500, noneOfIt)
	n.attach(a, limits(1500, 65536))
	n.attach(b, limits(1500, 8192))
	n.attach(c, limits(1500, 0))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	var wg sync.WaitGroup
	const size = 4 << 20
	for i, pair := range [][2]*host{{a, b}, {b, c}, {c, a}} {
		for family := range families {
			port := uint16(6000 + 2*i + family)
			wg.Go(func() {
				if err := exchange(ctx, pair[0], pair[1], family, port, size); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	n.Close()
	for i, p := range n.ports {
		const due = 4 * size // four streams end at each host
		s := p.Stats()
		if s.TxBytes < due {
			t.Errorf("host %s was sent %d bytes, and got %d of payload", n.hosts[i].name,
				s.TxBytes, due)
		}
		if s.RxCopies > s.RxFrames/10 {
			t.Errorf("%d of %d frames from host %s were flooded", s.RxCopies, s.RxFrames,
				n.hosts[i].name)
		}
	}
	if s := n.ports[1].Stats(); s.Resegmented == 0 || s.TxMaxFrame > 8191 {
		t.Errorf("b: %+v", s)
	}
	if s := n.ports[2].Stats(); s.Segmented == 0 || s.TxMaxFrame > 1514 {
		t.Errorf("c: %+v", s)
	}
}
