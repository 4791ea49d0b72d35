package guests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"sluice/dataplane/summary"
	"sluice/integration/guests/seen"
	"sluice/integration/vm"
)

// nic is which properties of QEMU's virtio-net-pci a guest has, by the words of factors.
type nic map[string]bool

// factors are what the matrix switches, and the properties that each stands for.
// host_* is what the guest may send, guest_* what it takes.
var factors = []struct{ word, properties string }{
	{"host_tso4", "host_tso4"},
	{"host_tso6", "host_tso6"},
	{"host_uso", "host_uso"},
	{"guest_tso4", "guest_tso4"},
	{"guest_tso6", "guest_tso6"},
	{"guest_ecn", "guest_ecn"},
	{"guest_uso", "guest_uso4 guest_uso6"},
	{"mrg_rxbuf", "mrg_rxbuf"},
	// Everything else needs these, so that they have rows of their own.
	{"csum", "csum"},
	{"guest_csum", "guest_csum"},
	{"guest_uso6", "guest_uso6"},
}

// without has everything but some.
func without(words ...string) nic {
	n := nic{}
	for _, f := range factors {
		n[f.word] = !slices.Contains(words, f.word)
	}
	return n
}

// offloads is QEMU's properties.
func (n nic) offloads() string {
	var all []string
	for _, f := range factors {
		for p := range strings.FieldsSeq(f.properties) {
			if !n[f.word] {
				all = append(all, p+"=off")
			}
		}
	}
	return strings.Join(all, ",")
}

func (n nic) String() string {
	var off []string
	for _, f := range factors {
		if !n[f.word] {
			off = append(off, f.word)
		}
	}
	if off == nil {
		return "all"
	}
	return "not " + strings.Join(off, " ")
}

// takes reports whether the guest takes super-packets of a flow.
func (n nic) takes(f seen.Flow) bool {
	word := map[seen.Flow]string{
		seen.TCP4: "guest_tso4", seen.TCP6: "guest_tso6", seen.UDP4: "guest_uso", seen.UDP6: "guest_uso",
	}[f]
	// TUNSETOFFLOAD takes USO for both families or for none (drivers/net/tun.c:
	// set_offload). Where it refuses, QEMU asks again without.
	half := word == "guest_uso" && !n["guest_uso6"]
	return n.takesPartial() && n[word] && !half
}

// takesPartial reports whether the guest takes frames without their checksum.
func (n nic) takesPartial() bool { return n["guest_csum"] }

// sends reports whether the guest sends super-packets of a flow.
func (n nic) sends(f seen.Flow) bool {
	word := map[seen.Flow]string{
		seen.TCP4: "host_tso4", seen.TCP6: "host_tso6", seen.UDP4: "host_uso", seen.UDP6: "host_uso",
	}[f]
	return n["csum"] && n[word]
}

// rows are pairs of guests in which every two of the first eight factors, of one guest
// or of both, are met in all four ways: row 0 has all off; in the seven others each
// factor is on in its own set of four. Two sets of four out of seven always share a row,
// and each has one that the other has not. Then come rows for what depends on the rest.
func rows() (all [][2]nic) {
	const pairwise = 8
	sets := [][]int{}
	for bits := range 1 << (pairwise - 1) {
		var set []int
		for row := range pairwise - 1 {
			if bits>>row&1 == 1 {
				set = append(set, row+1)
			}
		}
		if len(set) == 4 {
			sets = append(sets, set)
		}
	}
	for row := range pairwise {
		var pair [2]nic
		for side := range pair {
			var off []string
			for i := range pairwise {
				if !slices.Contains(sets[side*pairwise+i], row) {
					off = append(off, factors[i].word)
				}
			}
			pair[side] = without(off...)
		}
		all = append(all, pair)
	}
	return append(all,
		[2]nic{without(), without()},
		[2]nic{without("guest_tso6", "host_tso4"), without()},
		[2]nic{without("guest_tso4", "guest_uso"), without("mrg_rxbuf")},
		[2]nic{without("csum"), without("guest_csum")},
		[2]nic{without("guest_csum", "csum"), without()},
		[2]nic{without("guest_uso6"), without()},
	)
}

// The rows cover what they claim to.
func TestMatrixIsPairwise(t *testing.T) {
	const n = 8
	all := rows()
	for i := range 2 * n {
		for j := range i {
			met := map[[2]bool]bool{}
			for _, r := range all[:n] {
				met[[2]bool{r[i/n][factors[i%n].word], r[j/n][factors[j%n].word]}] = true
			}
			if len(met) != 4 {
				t.Errorf("%s with %s: only %v", factors[i%n].word, factors[j%n].word, met)
			}
		}
	}
}

// TestOffloadMatrix: what a guest did not negotiate it never gets, and what it can take
// it gets whole, whatever the guest at the other end can do.
func TestOffloadMatrix(t *testing.T) {
	onlyFull(t)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tguest\tlimits of its port\t"+
		"got of TCP4, TCP6, UDP4, UDP6: longest frame, with GSO of all\tunsummed\tECN\tok")
	ecn := 0
	for i, pair := range rows() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			b := newBed(t)
			for side, name := range []string{"a", "b"} {
				b.guest(name, "6.12", vm.NIC{Offloads: pair[side].offloads()})
			}
			b.run()
			row := offloadRow(b)
			ports := b.stop()
			for side, g := range b.guests {
				f, p := row[g.name], ports[g.name]
				sum := f.Sum()
				g.usoAtBoot(pair[side].sends(seen.UDP4))
				wrong := faults(g.name, f, p, pair[1-side], pair[side])
				for _, fault := range wrong {
					t.Error(fault)
				}
				ecn += sum.ECN
				fmt.Fprintf(w, "%d\t%s: %s\t%s\t%s\t%d\t%d\t%v\n", i, g.name, pair[side],
					limits(p.Limits), got(f), sum.Partial, sum.ECN, len(wrong) == 0)
				faultless(t, p)
			}
			corrupt(t, b)
		})
	}
	w.Flush()
	t.Logf("the matrix:\n%s", table.String())
	if ecn == 0 {
		t.Error("no super-packet with CWR was seen in any row")
	}
}

var flows = []seen.Flow{seen.TCP4, seen.TCP6, seen.UDP4, seen.UDP6}

// offloadRow moves everything both ways between two guests, and returns what each got.
func offloadRow(b *bed) map[string]seen.Frames {
	x, y := b.guests[0], b.guests[1]
	watches := map[string]*watch{x.name: x.watch(), y.name: y.watch()}
	for _, address := range []string{y.v4, y.v6} {
		x.exchange(address, quickSize)
		x.echo(address, 1400, 40)
	}
	// Some packets are marked as by a congested router (RFC 3168): their sender answers
	// with CWR on its next, which may be a super-packet.
	for _, g := range b.guests {
		g.run("tc qdisc add dev eth0 root netem loss 3% ecn")
	}
	x.exchange(y.v4, quickSize)
	row := map[string]seen.Frames{}
	for name, w := range watches {
		row[name] = w.stop()
	}
	return row
}

// faults compares what a guest got, and the limits of its port, with what it and the
// guest that sent to it have negotiated.
func faults(name string, f seen.Frames, p summary.Port, from, to nic) (wrong []string) {
	add := func(format string, args ...any) {
		wrong = append(wrong, "guest "+name+" "+fmt.Sprintf(format, args...))
	}
	l := p.Limits
	is := [4]bool{l.Csum, l.TSO4, l.TSO6, l.USO}
	want := [4]bool{to.takesPartial(), to.takes(seen.TCP4), to.takes(seen.TCP6), to.takes(seen.UDP4)}
	if is != want {
		add("has a port whose checksum, TSO4, TSO6, USO are %v, want %v", is, want)
	}
	for _, flow := range flows {
		got := f.Flows[flow]
		switch {
		case !to.takes(flow) && (got.GSO > 0 || got.Max > ethernetFrame):
			add("takes no %s with GSO, and got %+v", flow, got)
		case to.takes(flow) && from.sends(flow) && (got.GSO == 0 || got.Max < wholeFrame):
			add("takes %s whole, and got %+v", flow, got)
		case got.Plain > ethernetFrame:
			add("got %s of %d bytes without a GSO type", flow, got.Plain)
		case got.Frames == 0:
			add("got no %s", flow)
		}
	}
	sum := f.Sum()
	if sum.Partial > 0 && !to.takesPartial() {
		add("takes no frame without its checksum, and got %d", sum.Partial)
	}
	if sum.ECN > 0 && !to["guest_ecn"] {
		add("takes no CWR with GSO, and got %d", sum.ECN)
	}
	if takesAll(to) && sum.Max != p.TX.MaxFrame {
		add("got %d bytes at most, %d were sent", sum.Max, p.TX.MaxFrame)
	}
	return wrong
}

func takesAll(n nic) bool {
	return !slices.ContainsFunc(flows, func(f seen.Flow) bool { return !n.takes(f) })
}

// limits and got are cells of the table.
func limits(l summary.Limits) string {
	var on []string
	for _, c := range []struct {
		word string
		on   bool
	}{{"csum", l.Csum}, {"tso4", l.TSO4}, {"tso6", l.TSO6}, {"uso", l.USO}} {
		if c.on {
			on = append(on, c.word)
		}
	}
	if on == nil {
		return "-"
	}
	return strings.Join(on, " ")
}

func got(f seen.Frames) string {
	var cells []string
	for _, flow := range flows {
		t := f.Flows[flow]
		cells = append(cells, fmt.Sprintf("%d %d/%d", t.Max, t.GSO, t.Frames))
	}
	return strings.Join(cells, ", ")
}
