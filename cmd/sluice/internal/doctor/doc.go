// Package doctor is `sluice doctor`: it finds out what this kernel and the named netdevs really do,
// and says what that means for a switch and which command fixes it.
//
// Package probe, which `sluice run` uses too, finds out what a port of each kind carries. It writes
// and reads frames in a temporary network namespace. Package link, with the functions that `sluice
// run` uses, says what a port on a named netdev would take. Named netdevs are not changed, and
// nothing is sent on them.
//
// # The report
//
// A Report is a contract: scripts read it as JSON. Every field is always present. Fields may be
// added; schema becomes 2 when one changes its meaning.
//
//	{"schema":1, "version":"...", "seconds":0.4, "problems":0,
//	 "kernel":{"release":"6.18.44", "tried":true, "why":""},
//	 "kinds":{"tap":KIND, "packet":KIND, "macvtap":KIND},
//	 "host_drop":{"works":true, "why":""},
//	 "capabilities":{"have":["CAP_NET_RAW",...], "lack":[]},
//	 "netdevs":[NETDEV,...],
//	 "findings":[{"group","object","id","mark":"ok|note|problem","text","means","mend","advice"},...]}
//
// KIND is what a port of the kind carries, whatever the netdev's own limits:
//
//	{"error":"", "max_write", "ipv6_form":"hbh|plain|none",
//	 "max_out":{"ipv4","ipv6"},        longest super-packet that a switch sends through it
//	 "tried":{                         what was seen; null where nothing could be tried
//	   "header_len":12,
//	   "out":{"ipv4","ipv6_hbh","ipv6_plain","tcpv4","tcpv6","udp_l4","ecn"},
//	   "in":{"ipv4","ipv6","tcpv4","tcpv6","udp_l4","ecn"}}}
//
// NETDEV is a named netdev:
//
//	{"name","found","index","netdev","kind","altnames":[],"mtu","up","carrier","master",
//	 "addresses":[],"host_use","held_by":{"pid","name","uid"} or null,
//	 "sizes":{"gso_max_size","gso_ipv4_max_size","gso_max_segs","gro_max_size",
//	   "gro_ipv4_max_size","tso_max_size","tso_max_segs"},
//	 "features":{"csum","tso4","tso6","uso","gro"},
//	 "qdiscs":[],"xdp","tcx_ingress":[],"tcx_egress":[],"bridge_nf_call":[],
//	 "ports":{"packet":{"limits":LIMITS,"max_out":{"ipv4","ipv6"}},...}}
//
// with a port for each kind that can be opened on it, and LIMITS as in the summary.
//
// # Units
//
// Sizes are bytes from the Ethernet header on, tags included; an MTU counts from the IP
// header on.
//
// # Marks
//
// A problem means that a port cannot be opened, or that nothing passes through it. A note is a
// restriction, or a difference from what you might expect. If there is a problem, the command exits
// with 1. Programs should use a finding's id and object; texts are for people.
package doctor
