package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"sluice/integration/netns"
	"sluice/integration/vm/debian"
	"sluice/integration/vm/initramfs"
)

// programs are the userland's programs that every guest has, besides busybox.
var programs = []string{
	"dash", "setpriv", "ip", "tc", "bridge", "ss", "iperf3", "ethtool", "tcpdump", "dnsmasq", "sysctl",
	"fuser",
}

// atBoot are the modules that a guest needs before it can load others.
var atBoot = []string{"virtio_pci", "virtio_console", "virtio_net"}

// onDemand are those that the kernel loads through modprobe when they are used.
var onDemand = []string{
	"8021q", "bridge", "br_netfilter", "dummy", "ifb", "macvlan", "macvtap", "tap", "tun", "veth",
	"vhost_net", "vxlan", "act_mirred", "cls_bpf", "cls_matchall", "cls_u32", "sch_fq", "sch_ingress",
	"sch_netem", "tcp_bbr", "nf_tables", "nft_chain_nat",
	"geneve", "ip_gre", "ip6_gre", "ipip", "sit", "ip6_tunnel",
}

// texts are small files that programs expect.
var texts = map[string]string{
	"etc/passwd": "root:x:0:0::/:/bin/sh\ntcpdump:x:1:1::/:/bin/sh\ndnsmasq:x:2:2::/:/bin/sh\n" +
		"nobody:x:65534:65534::/:/bin/sh\n",
	"etc/group":         "root:x:0:\ntcpdump:x:1:\ndnsmasq:x:2:\ndip:x:3:\nnogroup:x:65534:\n",
	"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

// guestInit is the guest's init, built once a process.
var guestInit = sync.OnceValues(func() ([]byte, error) {
	dir, err := netns.TempDir("init")
	if err != nil {
		return nil, err
	}
	defer netns.RemoveDir(dir)
	file := filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", file, "sluice/integration/vm/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("vm: build init: %w: %s", err, out)
	}
	return os.ReadFile(file)
})

// writeImage writes the guest's file system.
func (g *Guest) writeImage() error {
	image, err := baseImage(g.lab.userland)
	if err != nil {
		return err
	}
	for _, p := range g.spec.programs {
		err := image.Program(path.Join("usr/bin", p.Name), p.File, g.lab.userland.Libraries())
		if err != nil {
			return err
		}
	}
	modules, err := initramfs.OpenModules(g.kernel.Modules)
	if err != nil {
		return err
	}
	if err := image.Modules(modules, append(onDemand, atBoot...)); err != nil {
		return err
	}
	var list strings.Builder
	for _, name := range atBoot {
		files, err := modules.Load(name)
		if err != nil {
			return err
		}
		for _, file := range files {
			fmt.Fprintln(&list, path.Join("/usr/lib/modules", g.kernel.Release, file))
		}
	}
	image.Text("etc/modules", []byte(list.String()))

	f, err := os.Create(g.imageFile())
	if err != nil {
		return fmt.Errorf("vm: %s: %w", g.name, err)
	}
	defer f.Close()
	if _, err := image.WriteTo(f); err != nil {
		return err
	}
	return f.Close()
}

// baseImage is the part that all guests share.
func baseImage(u *debian.Userland) (*initramfs.Image, error) {
	image := initramfs.New()
	for link, target := range map[string]string{
		"bin": "usr/bin", "sbin": "usr/bin", "usr/sbin": "bin", "lib": "usr/lib", "lib64": "usr/lib64",
	} {
		image.Link(link, target)
	}
	for name, text := range texts {
		image.Text(name, []byte(text))
	}
	init, err := guestInit()
	if err != nil {
		return nil, err
	}
	image.Executable("init", init)

	for _, name := range append([]string{"busybox"}, programs...) {
		file, err := u.Program(name)
		if err != nil {
			return nil, err
		}
		if err := image.Program(path.Join("usr/bin", name), file, u.Libraries()); err != nil {
			return nil, err
		}
	}
	// The C library loads it when a thread ends.
	if err := image.Library("libgcc_s.so.1", u.Libraries()); err != nil {
		return nil, err
	}
	busybox, err := u.Program("busybox")
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("vm: busybox: %w", err)
	}
	// Busybox's sh runs its own applet for ip and every other applet name.
	image.Link("usr/bin/sh", "dash")
	for applet := range strings.FieldsSeq(string(applets)) {
		if name := path.Join("usr/bin", applet); !image.Has(name) {
			image.Link(name, "busybox")
		}
	}
	return image, nil
}
