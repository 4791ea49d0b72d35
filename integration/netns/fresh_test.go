package netns_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

const (
	runDir = "/run/netns"
	// freshRole tells a child of fresh what its parent's mount namespace is.
	freshRole = "SLUICE_TEST_FRESH"
	// freshSource tells the child's own /run from that below it.
	freshSource = "sluice-test"
	// makerRole makes a child of startMaker.
	makerRole = "SLUICE_TEST_MAKER"
	// childLimit is how long a child may take.
	childLimit = 5 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(makerRole) != "" {
		beMaker()
	}
	os.Exit(m.Run())
}

// fresh runs the test's body as on a machine where nothing has run yet: in a process of
// its own, whose /run and temporary directory are its own too, and empty. The test must
// do nothing else.
func fresh(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	mounts, err := os.Readlink("/proc/self/ns/mnt")
	need(t, err)
	if parent := os.Getenv(freshRole); parent != "" {
		if parent == mounts {
			t.Fatalf("%s is set by hand: this would hide everybody's /run", freshRole)
		}
		need(t, unix.Mount(freshSource, "/run", "tmpfs", 0, "mode=0755"))
		t.Setenv("TMPDIR", t.TempDir()) // what others have left there is not for this /run
		body(t)
		return
	}
	var pattern []string
	for word := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(word)+"$")
	}
	ctx, cancel := context.WithTimeout(t.Context(), childLimit)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.run", strings.Join(pattern, "/"))
	child.Env = append(os.Environ(), freshRole+"="+mounts)
	child.WaitDelay = time.Second
	child.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS, // the runtime makes its mounts private
		Pdeathsig:    syscall.SIGKILL,
	}
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	runtime.LockOSThread() // which must not end before the child: see Pdeathsig
	defer runtime.UnlockOSThread()
	netnstest.Need(t, child.Start())
	err = child.Wait()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, &out)
	case strings.Contains(out.String(), "--- SKIP: "+t.Name()+" "):
		t.Skipf("%s", &out)
	case !strings.Contains(out.String(), "--- PASS: "+t.Name()+" "):
		t.Errorf("the child did not run the test:\n%s", &out)
	}
}

// TestFreshMachine makes labs and names of ip in every order, in a /run/netns in
// each state that a machine may have it in, and wants nothing but the directory left.
func TestFreshMachine(t *testing.T) {
	ip := func(t *testing.T) {
		ipNetns(t, "add", "x")
		ipNetns(t, "del", "x")
	}
	// open makes a lab. end closes it, if its namespace has kept its name till then.
	open := func(t *testing.T) (end func()) {
		lab := netns.New("fresh")
		t.Cleanup(func() { lab.Close() })
		ns := lab.Namespace("a")
		netnstest.Need(t, lab.Err())
		return func() {
			t.Helper()
			_, err := ns.Run(t.Context(), "true") // by ip netns exec
			netnstest.Need(t, err)
			need(t, lab.Close())
		}
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"lab alone", func(t *testing.T) { open(t)() }},
		{"lab, then ip", func(t *testing.T) {
			end := open(t)
			ip(t)
			end()
		}},
		{"ip, then lab", func(t *testing.T) {
			ip(t)
			open(t)()
		}},
		{"ip, lab, ip, lab", func(t *testing.T) {
			ip(t)
			first := open(t)
			ip(t)
			second := open(t)
			first()
			second()
		}},
		{"stopped after mkdir", func(t *testing.T) {
			need(t, os.Mkdir(runDir, 0o755))
			end := open(t)
			ip(t)
			end()
		}},
		{"stopped after the mount", func(t *testing.T) {
			need(t, os.Mkdir(runDir, 0o755))
			need(t, unix.Mount(runDir, runDir, "", unix.MS_BIND, ""))
			end := open(t)
			ip(t)
			end()
		}},
		{"lab killed, ip, lab", func(t *testing.T) {
			left, kill := startMaker(t)
			kill()
			ip(t)
			open(t)()
			gone(t, left)
		}},
		{"ip while the lab that is killed lives", func(t *testing.T) {
			left, kill := startMaker(t)
			ip(t)
			kill()
			open(t)()
			gone(t, left)
		}},
		{"name killed before the mount", func(t *testing.T) {
			left, kill := startMaker(t)
			need(t, unix.Unmount(left[0], unix.MNT_DETACH))
			kill()
			ip(t)
			open(t)()
			gone(t, left)
		}},
		// What a program leaves that is not as careful: an older Sluice, for one.
		{"name hidden under a mount", func(t *testing.T) {
			left, kill := startMaker(t)
			hide(t, left[0])
			kill()
			open(t)()
			gone(t, left)
		}},
		{"name hidden under two mounts", func(t *testing.T) {
			left, kill := startMaker(t)
			hide(t, left[0])
			need(t, unix.Mount(runDir, runDir, "", unix.MS_BIND|unix.MS_REC, ""))
			kill()
			open(t)()
			gone(t, left)
			for unix.Unmount(runDir, 0) == nil {
			}
			ip(t)
		}},
		{"name hidden while its lab lives", func(t *testing.T) {
			first := open(t)
			names, err := filepath.Glob(runDir + "/*")
			need(t, err)
			hide(t, names[0])
			second := open(t)
			first()
			second()
		}},
		{"name of another program in a directory that is not shared", func(t *testing.T) {
			left, kill := startMaker(t)
			unshare(t, left[0])
			end := open(t)
			ipNetns(t, "exec", filepath.Base(left[0]), "true")
			kill()
			end()
			open(t)()
			gone(t, left)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fresh(t, func(t *testing.T) {
				c.do(t)
				bare(t)
			})
		})
	}
}

// TestRunDirIsSharedOnce: ip locks the directory while it shares it, and a lab
// waits for the lock. Two at once would mount the directory twice.
func TestRunDirIsSharedOnce(t *testing.T) {
	fresh(t, func(t *testing.T) {
		need(t, os.Mkdir(runDir, 0o755))
		dir, err := os.Open(runDir)
		need(t, err)
		defer dir.Close()
		// ip's lock is exclusive. This one is shared: a lab that takes a shared lock too
		// does not wait.
		need(t, unix.Flock(int(dir.Fd()), unix.LOCK_SH))
		info, err := dir.Stat()
		need(t, err)
		waiter := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .* %d [0-9a-f:]+:%d `,
			os.Getpid(), info.Sys().(*syscall.Stat_t).Ino))

		lab := netns.New("test")
		defer lab.Close()
		made := make(chan struct{})
		go func() {
			defer close(made)
			lab.Namespace("a")
		}()
		need(t, netns.Until(t.Context(), "the lab to wait", func() (bool, error) {
			select {
			case <-made:
				return false, fmt.Errorf("it did not: %v", lab.Err())
			default:
			}
			locks, err := os.ReadFile("/proc/locks")
			return waiter.Match(locks), err
		}))
		need(t, unix.Mount(runDir, runDir, "", unix.MS_BIND|unix.MS_REC, "")) // as ip does
		need(t, unix.Mount("", runDir, "", unix.MS_SHARED|unix.MS_REC, ""))
		need(t, dir.Close())
		<-made
		netnstest.Need(t, lab.Err())
		need(t, lab.Close())
		bare(t)
	})
}

// unshare makes the directory what it is where a name was made before it was shared.
func unshare(t *testing.T, name string) {
	t.Helper()
	need(t, unix.Unmount(runDir, unix.MNT_DETACH))
	need(t, unix.Mount("/proc/thread-self/ns/net", name, "", unix.MS_BIND, ""))
}

// hide does to a name what the first ip netns add does then.
func hide(t *testing.T, name string) {
	t.Helper()
	unshare(t, name)
	need(t, unix.Mount("/proc/thread-self/ns/net", name, "", unix.MS_BIND, "")) // and once more
	ipNetns(t, "add", "hider")
	ipNetns(t, "del", "hider")
}

// bare wants no name in /run/netns, and one mount there, which is shared.
func bare(t *testing.T) {
	t.Helper()
	names, err := os.ReadDir(runDir)
	if err != nil || len(names) > 0 {
		t.Errorf("left in %s: %v, %v", runDir, names, err)
	}
	all, err := os.ReadFile("/proc/self/mountinfo")
	need(t, err)
	inside := map[string]bool{} // mounts in the test's own /run, by their ids
	var mounts []string
	for line := range strings.Lines(string(all)) {
		f := strings.Fields(line)
		if inside[f[1]] {
			mounts = append(mounts, line)
		}
		inside[f[0]] = inside[f[1]] || f[4] == "/run" && f[len(f)-2] == freshSource
	}
	if len(mounts) != 1 || strings.Fields(mounts[0])[4] != runDir || !strings.Contains(mounts[0], " shared:") {
		t.Errorf("want one shared mount on %s, got\n%s", runDir, strings.Join(mounts, ""))
	}
}

func ipNetns(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", append([]string{"netns"}, args...)...).CombinedOutput()
	if err != nil {
		netnstest.Need(t, fmt.Errorf("ip netns %v: %w: %s", args, err, out))
	}
}

// gone wants the files not to be there.
func gone(t *testing.T, files []string) {
	t.Helper()
	for _, file := range files {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", file, err)
		}
	}
}

// startMaker starts a process that builds a lab. It tells what a kill leaves of
// it: the name of a namespace, a temporary directory, and the maker's own.
func startMaker(t *testing.T) (left []string, kill func()) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), makerRole+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := child.StdoutPipe()
	need(t, err)
	runtime.LockOSThread() // which must not end before the child: see Pdeathsig
	netnstest.Need(t, child.Start())
	kill = sync.OnceFunc(func() {
		child.Process.Kill()
		child.Wait()
		runtime.UnlockOSThread()
	})
	t.Cleanup(kill)
	need(t, out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute)))
	line, err := bufio.NewReader(out).ReadString('\n')
	left = make([]string, 2)
	if _, scanErr := fmt.Sscanf(line, "left %q %q\n", &left[0], &left[1]); scanErr != nil {
		t.Fatalf("the child says %q, %v", line, errors.Join(err, scanErr))
	}
	return append(left, filepath.Dir(left[1])), kill
}

// beMaker is the child of startMaker.
func beMaker() {
	ns := netns.New("left").Namespace("a")
	_, err := ns.Start(context.Background(), nil, "sleep", strconv.Itoa(int(childLimit.Seconds())))
	dir, dirErr := netns.TempDir("left")
	if err := errors.Join(err, dirErr); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Printf("left %q %q\n", filepath.Join(runDir, ns.Name), dir)
	select {}
}
