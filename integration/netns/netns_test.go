package netns_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// cable is two hosts on one veth.
func cable(t *testing.T, link netns.Link) (*netns.Lab, *netns.Namespace, *netns.Namespace) {
	lab := netnstest.New(t)
	a, b := lab.Namespace("a"), lab.Namespace("b")
	lab.Veth(a, "eth0", b, "eth0", link)
	a.Address("eth0", "10.0.0.1/24", "fd00::1/64")
	b.Address("eth0", "10.0.0.2/24", "fd00::2/64")
	netnstest.Need(t, lab.Err())
	return lab, a, b
}

func TestCloseRemovesEverything(t *testing.T) {
	lab := netns.New("test")
	defer lab.Close()
	a, b := lab.Namespace("a"), lab.Namespace("b")
	lab.Veth(a, "eth0", b, "eth0", netns.Link{})
	netnstest.Need(t, lab.Err())
	sleeper, err := a.Start(t.Context(), nil, "sleep", "1000")
	netnstest.Need(t, err)
	capture, err := b.CaptureFrames("eth0")
	netnstest.Need(t, err)

	for range 2 { // Close is idempotent
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := unix.Kill(sleeper.PID(), 0); err != unix.ESRCH {
		t.Errorf("the process still runs: %v", err)
	}
	if err := capture.Stop(); err != nil {
		t.Errorf("stop of a capture after Close: %v", err)
	}
	for _, ns := range []*netns.Namespace{a, b} {
		if _, err := os.Lstat("/run/netns/" + ns.Name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", ns.Name, err)
		}
		if err := ns.Do(func() error { return nil }); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Do after Close: %v, want ErrClosed", err)
		}
	}
	if _, err := a.Run(t.Context(), "true"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Run after Close: %v, want ErrClosed", err)
	}
}

func TestCloseEndsTheThreadsOfNamespaces(t *testing.T) {
	self, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	lab := netns.New("test")
	defer lab.Close()
	for i := range 8 {
		lab.Namespace(strconv.Itoa(i))
	}
	netnstest.Need(t, lab.Err())
	if err := lab.Close(); err != nil {
		t.Fatal(err)
	}
	err = netns.Until(t.Context(), "threads to end", func() (bool, error) {
		threads, err := filepath.Glob("/proc/self/task/*/ns/net")
		for _, file := range threads {
			if ns, err := os.Readlink(file); err == nil && ns != self {
				return false, nil
			}
		}
		return true, err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNextLabRemovesWhatAKilledProcessLeft(t *testing.T) {
	fresh(t, func(t *testing.T) {
		lab := netnstest.New(t)
		lab.Namespace("able")
		netnstest.Need(t, lab.Err())
		left, kill := startMaker(t)
		netnstest.New(t)
		for _, file := range left {
			if _, err := os.Lstat(file); err != nil {
				t.Errorf("the child lives, and has lost it: %v", err)
			}
		}
		kill()
		netnstest.New(t)
		gone(t, left)
	})
}

// TestNextLabLeavesStrangersAlone: no name is a proof that its maker is dead.
func TestNextLabLeavesStrangersAlone(t *testing.T) {
	fresh(t, func(t *testing.T) {
		tmp := os.TempDir()
		const nobody = "sluice-99999999" // no pid is as great as this one
		maker := func(name string) (dir string, lock *os.File) {
			dir = filepath.Join(tmp, name)
			need(t, os.Mkdir(dir, 0o700))
			lock, err := os.Create(filepath.Join(dir, "maker.lock"))
			need(t, err)
			t.Cleanup(func() { lock.Close() })
			return dir, lock
		}
		results := filepath.Join(tmp, nobody+"-results")
		need(t, os.Mkdir(results, 0o700))
		alive, lock := maker(nobody + "-1")
		need(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
		dead, _ := maker(nobody + "-2")
		others, _ := maker(nobody + "-3")
		need(t, os.Chown(others, 65534, -1))
		link := filepath.Join(tmp, nobody+"-4")
		target, _ := maker("elsewhere")
		need(t, os.Symlink(target, link))

		keep := []string{results, alive, others, link, filepath.Join(target, "maker.lock")}
		for _, name := range []string{nobody, nobody + "-1-a", nobody + "-20-a", nobody + "-2-a"} {
			ipNetns(t, "add", name)
			keep = append(keep, filepath.Join(runDir, name))
		}
		left := []string{keep[len(keep)-1], dead}
		keep = keep[:len(keep)-1]

		netnstest.New(t)
		for _, file := range keep {
			if _, err := os.Lstat(file); err != nil {
				t.Error(err)
			}
		}
		gone(t, left)
	})
}

// TestTempDirLeavesNothing wants the maker's own directory to go with what is in it. It
// may not have one yet, so this is a process of its own.
func TestTempDirLeavesNothing(t *testing.T) {
	fresh(t, func(t *testing.T) {
		tmp := os.TempDir()
		dir, err := netns.TempDir("word")
		need(t, err)
		if err := netns.New("test").Close(); err != nil { // leaves alone what is in use
			t.Error(err)
		}
		need(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		need(t, netns.RemoveDir(dir))
		if entries, err := os.ReadDir(tmp); err != nil || len(entries) != 0 {
			t.Errorf("left: %v, %v", entries, err)
		}
	})
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDoSurvivesGoexit(t *testing.T) {
	_, a, _ := cable(t, netns.Link{})
	if err := a.Do(func() error { runtime.Goexit(); return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Do whose function exits: %v, want ErrClosed", err)
	}
	if err := a.Do(func() error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the next Do: %v, want ErrClosed", err)
	}
}

func TestErrKeepsTheFirstError(t *testing.T) {
	lab := netnstest.New(t)
	a := lab.Namespace("a")
	netnstest.Need(t, lab.Err())
	a.SetLink("nosuch0", netns.Link{})
	a.Address("lo", "not an address")
	err := lab.Err()
	if err == nil || !strings.Contains(err.Error(), "nosuch0") {
		t.Errorf("got %v, want the error about nosuch0", err)
	}
}

func TestLinkLimitsAreSet(t *testing.T) {
	_, a, b := cable(t, netns.Link{MTU: 9000, GSO: 389120, GRO: 200000})
	b.SetLink("eth0", netns.Link{GSO: 65536, GSOIPv4: 60000})
	for _, c := range []struct {
		ns                    *netns.Namespace
		gso, gso4, gro, groV4 uint32
	}{{a, 389120, 389120, 200000, 200000}, {b, 65536, 60000, 200000, 200000}} {
		at, err := c.ns.Link("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if at.GSOMaxSize != c.gso || at.GSOIPv4MaxSize != c.gso4 || at.GROMaxSize != c.gro ||
			at.GROIPv4MaxSize != c.groV4 || at.MTU != 9000 {
			t.Errorf("%s: gso %d %d gro %d %d mtu %d, want %+v", c.ns.Name, at.GSOMaxSize,
				at.GSOIPv4MaxSize, at.GROMaxSize, at.GROIPv4MaxSize, at.MTU, c)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	_, a, _ := cable(t, netns.Link{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	// The grandchild is in the process group and holds the output open.
	if _, err := a.Run(ctx, "sh", "-c", "sleep 1000 & wait"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

func TestRunTellsTheLastWords(t *testing.T) {
	_, a, _ := cable(t, netns.Link{})
	_, err := a.Run(t.Context(), "sh", "-c", "echo why >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3: why") {
		t.Errorf("got %v", err)
	}
	if _, err := a.Run(t.Context(), "no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestRunSeesTheNamespacesOwnSys(t *testing.T) {
	_, a, _ := cable(t, netns.Link{})
	out, err := a.Run(t.Context(), "ls", "/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out, []byte("eth0")) {
		t.Errorf("/sys/class/net lists %q", out)
	}
}

func TestExchangeArrivesWhole(t *testing.T) {
	lab, a, b := cable(t, netns.Link{GSO: 389120})
	for _, address := range []string{"10.0.0.2", "fd00::2"} {
		if err := lab.Exchange(t.Context(), a, b, address, 8<<20); err != nil {
			t.Error(err)
		}
	}
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if bad := c.TCPErrors(); bad != "" {
		t.Error(bad)
	}
	if c["TcpInSegs"] == 0 || c["TcpExtTCPDelivered"] == 0 || c["Ip6InReceives"] == 0 {
		t.Errorf("counters saw no traffic: %v", c)
	}
}

func TestExchangeFailsWithoutACable(t *testing.T) {
	lab, a, b := cable(t, netns.Link{})
	a.DeleteLink("eth0")
	if err := lab.Exchange(t.Context(), a, b, "10.0.0.2", 1); err == nil {
		t.Error("bytes arrived over a cable that is gone")
	}
}

func TestIperfAndCaptureSeeSuperPackets(t *testing.T) {
	lab, a, b := cable(t, netns.Link{GSO: 389120})
	a.Eager()
	b.Eager()
	for _, address := range []string{"10.0.0.2", "fd00::2"} {
		sizes, err := b.MeasureFrames("eth0")
		netnstest.Need(t, err)
		load := netns.Load{Bytes: 64 << 20}
		r, err := lab.Iperf(t.Context(), a, b, address, load)
		netnstest.Need(t, err)
		if err := sizes.Stop(); err != nil {
			t.Error(err)
		}
		// The server does not read what its socket holds when the client has sent
		// all: as much as net.ipv4.tcp_rmem and tcp_wmem allow, maybe half of it.
		if r.Bytes <= 0 || r.Bytes > load.Bytes || r.Gbits <= 0 {
			t.Errorf("%s: %+v", address, r)
		}
		if r.WriteSize != netns.IperfWrite {
			t.Errorf("%s: the sender wrote %d bytes at a time, want %d", address, r.WriteSize, netns.IperfWrite)
		}
		if in := sizes.MaxIn(); in <= 65536 || in >= 389120 {
			t.Errorf("%s: greatest frame in %d, want above 65536 and below 389120", address, in)
		}
		if out := sizes.MaxOut(); out == 0 || out > 65536 {
			t.Errorf("%s: greatest frame out %d, want acknowledgements", address, out)
		}
	}
}

// TestIperfBindsItsEnds: each end of a stream that runs may use the CPU it was given, and
// no other.
func TestIperfBindsItsEnds(t *testing.T) {
	lab, a, b := cable(t, netns.Link{})
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < allowed.Count(); cpu++ {
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		t.Skip("with one CPU nothing can be bound to another")
	}
	want := netns.Binding{Sender: cpus[1], Receiver: cpus[0]}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // for as long as it takes to look
		_, err := lab.Iperf(ctx, a, b, "10.0.0.2", netns.Load{Seconds: 60, Binding: &want})
		ended <- err
	}()
	defer func() { cancel(); <-ended }()
	err := netns.Until(ctx, "iperf3 to be bound", func() (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			return false, errors.Join(os.ErrProcessDone, err)
		default:
		}
		return netnstest.IperfBound(want), nil
	})
	netnstest.Need(t, err)
}

func TestIperfTellsThatNobodyAnswers(t *testing.T) {
	lab, a, b := cable(t, netns.Link{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := lab.Iperf(ctx, a, b, "10.0.0.99", netns.Load{Seconds: 1})
	if err == nil {
		t.Error("a result from an address that nobody has")
	}
}

// TestCapturePutsTheTagBack sends one tagged frame, which the kernel hands to
// packet sockets with the tag out of band.
func TestCapturePutsTheTagBack(t *testing.T) {
	_, a, b := cable(t, netns.Link{})
	for _, c := range []struct{ name, frame string }{
		{"802.1Q", "ffffffffffff" + "020000000001" + "81006064" + "88b5" + "0102"},
		{"802.1ad over 802.1Q, VID 0", "ffffffffffff" + "020000000001" + "88a80000" + "8100e001" + "88b5" + "0304"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, err := hex.DecodeString(c.frame)
			if err != nil {
				t.Fatal(err)
			}
			capture, err := b.CaptureFrames("eth0")
			netnstest.Need(t, err)
			dev, err := a.Link("eth0")
			if err != nil {
				t.Fatal(err)
			}
			err = a.Do(func() error {
				fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return unix.Sendto(fd, want, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index})
			})
			netnstest.Need(t, err)
			if err := capture.Stop(); err != nil {
				t.Fatal(err)
			}
			for _, f := range capture.Frames() {
				if bytes.Equal(f.Data, want) && !f.Outgoing {
					return
				}
			}
			t.Errorf("%x is not among %d frames: %+v", want, len(capture.Frames()), capture.Frames())
		})
	}
}

func TestBridgeForwards(t *testing.T) {
	lab := netnstest.New(t)
	a, sw, b := lab.Namespace("a"), lab.Namespace("sw"), lab.Namespace("b")
	sw.Silent()
	lab.Veth(a, "eth0", sw, "vA", netns.Link{})
	lab.Veth(b, "eth0", sw, "vB", netns.Link{})
	sw.Offloads("vB", false, netns.TCPSegmentation...)
	sw.Offloads("vB", false, netns.TransmitChecksum...)
	sw.Bridge("br0", "vA", "vB")
	a.Address("eth0", "10.0.0.1/24")
	b.Address("eth0", "10.0.0.2/24")
	netnstest.Need(t, lab.Err())
	capture, err := b.CaptureFrames("eth0")
	netnstest.Need(t, err)
	if err := lab.Exchange(t.Context(), a, b, "10.0.0.2", 1<<20); err != nil {
		t.Error(err)
	}
	if err := capture.Stop(); err != nil {
		t.Error(err)
	}
	if capture.MaxIn() != 1514 {
		t.Errorf("greatest frame in %d, want 1514: vB's offloads are off", capture.MaxIn())
	}
	for _, f := range capture.Frames() {
		if !f.Outgoing && f.Unchecked {
			t.Fatalf("a frame without a full checksum came through vB: %x", f.Data)
		}
	}
}
