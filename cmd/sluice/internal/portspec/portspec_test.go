package portspec

import (
	"strings"
	"testing"

	"sluice/dataplane"
)

// long is as long as an altname gets.
var long = strings.Repeat("0123456", 18) + "7"

func TestParseTakesEveryKey(t *testing.T) {
	for arg, want := range map[string]Port{
		"a=packet:vA": {Name: "a", Kind: Packet, Device: "vA", Queues: 1, Offload: OffloadAuto},
		"b=tap:tB,netns=B,mtu=9000,queues=4,gso_max_size=65536,gso_ipv4_max_size=131072,gso_max_segs=16,oversize=segment,offload=csum": {
			Name: "b", Kind: Tap, Device: "tB", Netns: "B", MTU: 9000, Queues: 4,
			GSOMaxSize: 65536, GSOIPv4MaxSize: 131072, GSOMaxSegs: 16,
			Oversize: dataplane.OversizeSegment, Offload: OffloadCsum,
		},
		"m=macvtap:m0,lower=eth0,oversize=pass,offload=none": {
			Name: "m", Kind: Macvtap, Device: "m0", Lower: "eth0", Queues: 1,
			Oversize: dataplane.OversizePass, Offload: OffloadNone,
		},
		"a=packet:" + long:             {Name: "a", Kind: Packet, Device: long, Queues: 1, Offload: OffloadAuto},
		"p=packet:eth0.100,host=keep":  {Name: "p", Kind: Packet, Device: "eth0.100", Queues: 1, Offload: OffloadAuto, Host: HostKeep},
		"r=packet:vA,reserved=forward": {Name: "r", Kind: Packet, Device: "vA", Queues: 1, Offload: OffloadAuto, Reserved: ReservedForward},
	} {
		got, err := Parse(arg)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", arg, got, err, want)
		}
	}
}

func TestParseSaysWhatIsWrongAndWhatIsRight(t *testing.T) {
	for arg, want := range map[string]string{
		"":                                "want NAME=KIND:DEVICE",
		"vA":                              "want NAME=KIND:DEVICE",
		"a=vA":                            "want NAME=KIND:DEVICE",
		"=packet:vA":                      "no name",
		"a=veth:vA":                       `no such port kind "veth": use tap, packet or macvtap`,
		"a=packet:":                       "the device has no name",
		"a=packet:" + long + "x":          "has 128 bytes, and the kernel takes at most 127",
		"a=packet:a/b":                    "not one that a netdev can have",
		"a=packet:vA,mtu":                 `"mtu" is not key=value`,
		"a=packet:vA,":                    "",
		"a=packet:vA,,mtu=1500":           `"" is not key=value`,
		"a=packet:vA,mtu=":                `"mtu=" is not key=value`,
		"a=packet:vA,mtu=67":              `mtu: "67" is not a number from 68 to 65535`,
		"a=packet:vA,mtu=x":               `mtu: "x" is not a number`,
		"a=packet:vA,mtu=1500,mtu=9000":   "given twice",
		"a=packet:vA,gso_max_size=524281": `gso_max_size: "524281" is not a number from 128 to 524280`,
		"a=packet:vA,queues=0":            `queues: "0" is not a number from 1 to 256`,
		"a=packet:vA,netns=B":             "key netns is for tap ports, and a is a packet port",
		"a=tap:tA,lower=eth0":             "key lower is for macvtap ports",
		"a=tap:tA,host=drop":              "key host is for packet ports",
		"a=packet:vA,host=maybe":          `host: "maybe" is not drop or keep`,
		"a=packet:vA,offload=some":        `offload: "some" is not auto, full, csum or none`,
		"a=packet:vA,oversize=drop":       `oversize: "drop" is not resegment, segment or pass`,
		"a=packet:vA,reserved=flood":      `reserved: "flood" is not drop or forward`,
		"a=packet:vA,speed=1":             `no such key "speed": use netns`,
	} {
		_, err := Parse(arg)
		switch {
		case want == "":
			if err != nil {
				t.Errorf("Parse(%q): %v", arg, err)
			}
		case err == nil:
			t.Errorf("Parse(%q): no error; want %q", arg, want)
		case !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "-p "+arg+": "):
			t.Errorf("Parse(%q): %v; want the argument and %q", arg, err, want)
		}
	}
}
