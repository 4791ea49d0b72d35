package link

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/tunio/release"
)

// ipLink is what `ip -json -details -statistics link` prints.
type ipLink struct {
	Index     int      `json:"ifindex"`
	Name      string   `json:"ifname"`
	Flags     []string `json:"flags"`
	MTU       int      `json:"mtu"`
	Master    string   `json:"master"`
	Link      string   `json:"link"`
	LinkIndex int      `json:"link_index"`
	LinkNSID  *int     `json:"link_netnsid"`
	Info      struct {
		Kind string `json:"info_kind"`
		Data struct {
			Type       string `json:"type"`
			MultiQueue bool   `json:"multi_queue"`
			VnetHdr    bool   `json:"vnet_hdr"`
			Persist    bool   `json:"persist"`
		} `json:"info_data"`
	} `json:"linkinfo"`
	GSOMaxSize int `json:"gso_max_size"`
	GSOMaxSegs int `json:"gso_max_segs"`
	GROMaxSize int `json:"gro_max_size"`
	TSOMaxSize int `json:"tso_max_size"`
	TSOMaxSegs int `json:"tso_max_segs"`
	Stats      struct {
		Rx struct {
			Dropped uint64 `json:"dropped"`
		} `json:"rx"`
		Tx struct {
			Dropped uint64 `json:"dropped"`
		} `json:"tx"`
	} `json:"stats64"`
}

// wantFacts asks iproute2 and ethtool.
func wantFacts(t *testing.T, n *Namespace, name string) *Facts {
	t.Helper()
	var links []ipLink
	must(t, json.Unmarshal(n.ip(t, "-json -details -statistics link show"), &links))
	index := map[string]int{}
	var l ipLink
	for _, x := range links {
		index[x.Name] = x.Index
		if x.Name == name {
			l = x
		}
	}
	f := &Facts{
		Index: l.Index, Name: l.Name, Kind: l.Info.Kind, MTU: l.MTU,
		Up:             slices.Contains(l.Flags, "UP"),
		Carrier:        slices.Contains(l.Flags, "LOWER_UP"),
		Master:         index[l.Master],
		Lower:          max(index[l.Link], l.LinkIndex),
		LowerElsewhere: l.LinkNSID != nil,
		Sizes: Sizes{
			GSOMaxSize: l.GSOMaxSize, GSOMaxSegs: l.GSOMaxSegs, GROMaxSize: l.GROMaxSize,
			// iproute2 6.1 does not know the sizes for IPv4; see TestSetSizes.
			GSOIPv4MaxSize: n.get(t, name).GSOIPv4MaxSize,
			GROIPv4MaxSize: n.get(t, name).GROIPv4MaxSize,
		},
		TSOMaxSize: l.TSOMaxSize, TSOMaxSegs: l.TSOMaxSegs,
		Drops: Drops{Rx: l.Stats.Rx.Dropped, Tx: l.Stats.Tx.Dropped},
	}
	if l.Info.Kind == "tun" {
		d := l.Info.Data
		f.Tun = &Tun{
			Tap: d.Type == "tap", MultiQueue: d.MultiQueue, VnetHdr: d.VnetHdr, Persist: d.Persist,
		}
	}
	on := map[string]bool{}
	for line := range strings.Lines(string(run(t, "ip netns exec "+n.name+" ethtool -k "+name))) {
		if feature, state, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			on[feature] = strings.HasPrefix(state, "on")
		}
	}
	f.Features = Features{
		Csum: on["tx-checksum-ip-generic"] || on["tx-checksum-ipv4"] && on["tx-checksum-ipv6"],
		TSO4: on["tx-tcp-segmentation"],
		TSO6: on["tx-tcp6-segmentation"],
		USO:  on["tx-udp-segmentation"],
		GRO:  on["generic-receive-offload"],
	}
	return f
}

func TestFactsEqualWhatIproute2AndEthtoolSay(t *testing.T) {
	n, other := newNamespace(t), newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	n.ip(t, "link add e0 mtu 9000 type veth peer name e0 netns "+other.name)
	n.ip(t, "link add br0 type bridge")
	n.ip(t, "link set v1 master br0")
	n.ip(t, "link set v0 up")
	n.ip(t, "tuntap add dev t0 mode tap multi_queue vnet_hdr")
	n.ip(t, "tuntap add dev t1 mode tun")
	n.ip(t, "link add link e0 name m0 type macvtap mode passthru")
	run(t, "ip netns exec "+n.name+" ethtool -K v0 tso off")
	run(t, "ip netns exec "+n.name+" ethtool -K e0 tx off")
	n.ip(t, "link set e0 gso_max_size 100000 gro_max_size 200000 gso_max_segs 77")
	for _, name := range []string{"lo", "v0", "v1", "e0", "br0", "t0", "t1", "m0"} {
		got, want := n.get(t, name), wantFacts(t, n, name)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v %+v\nwant %+v %+v", name, got, got.Tun, want, want.Tun)
		}
		byIndex, err := n.GetIndex(got.Index)
		must(t, err)
		if byIndex.Name != name {
			t.Errorf("netdev %d is %s, want %s", got.Index, byIndex.Name, name)
		}
	}
	// The values that the comparison above relies on differ between these netdevs.
	if f := n.get(t, "v0"); f.TSO4 || f.TSO6 || !f.USO || !f.Csum || !f.Up || f.Carrier {
		t.Errorf("v0 with tso off, up without its peer: %+v", f)
	}
	// 6.1 keeps USO without checksums, 6.12 does not (netdev_fix_features).
	if f := n.get(t, "e0"); f.Csum || f.TSO4 || f.USO && release.Since(release.Current(), 6, 12) || !f.LowerElsewhere || f.MTU != 9000 ||
		f.GSOMaxSize != 100000 || f.GSOMaxSegs != 77 || f.GROMaxSize != 200000 {
		t.Errorf("e0 with tx off: %+v", f)
	}
	if f := n.get(t, "v1"); f.Master != n.get(t, "br0").Index ||
		f.Lower != n.get(t, "v0").Index || f.LowerElsewhere {
		t.Errorf("v1 in a bridge: %+v", f)
	}
	all := Tun{Tap: true, MultiQueue: true, VnetHdr: true, Persist: true}
	if f := n.get(t, "t0"); *f.Tun != all {
		t.Errorf("t0: %+v", f.Tun)
	}
	if f := n.get(t, "t1"); *f.Tun != (Tun{Persist: true}) {
		t.Errorf("t1: %+v", f.Tun)
	}
}

func TestDropsCountWhatATapNobodyReadsLoses(t *testing.T) {
	n := newNamespace(t)
	const frames, room = 20, 4
	must(t, n.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		req, err := unix.NewIfreq("t0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}))
	n.ip(t, fmt.Sprintf("link set t0 txqueuelen %d up", room)) // the TAP holds as many frames
	s := packetSocket(t, n, "t0")
	before := n.get(t, "t0")
	for range frames {
		must(t, unix.Sendto(s, make([]byte, 60), 0, &unix.SockaddrLinklayer{Ifindex: before.Index}))
	}
	if got := n.get(t, "t0").Tx - before.Tx; got < frames-room {
		t.Errorf("tx_dropped rose by %d, want %d or more", got, frames-room)
	}
}

func TestGetSaysThatThereIsNoSuchNetdev(t *testing.T) {
	n := newNamespace(t)
	_, err := n.Get("nix0")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want os.ErrNotExist", err)
	}
	want := "read facts about nix0 in network namespace " + n.name + ": no such netdev"
	if err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if _, err := n.GetIndex(4711); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want os.ErrNotExist", err)
	}
	if _, err := n.Get(strings.Repeat("x", 128)); !errors.Is(err, unix.EINVAL) ||
		!strings.Contains(err.Error(), "128 bytes") {
		t.Errorf("error %v, want one about the name's length", err)
	}
	if err := n.Delete("nix0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("delete: error %v, want os.ErrNotExist", err)
	}
}
