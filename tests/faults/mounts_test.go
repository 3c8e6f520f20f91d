package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var mountRows = []Row{
	{
		Fault: "many containers one after the other",
		Holds: "Each container has its own libjvm. The agent follows each JVM live. After a JVM ends, its file " +
			"system can be unmounted. The agent has as many open descriptors after the last container as after the " +
			"first.",
		Test: testMounts,
		Elsewhere: []string{"agent/probe/library.TestKeeper", "agent/collect/events/probes.TestNumbering",
			"agent/collect/events/probes.TestRemovePlans", "agent/collect/events/probes.TestClockSiteClears",
			"agent/probe/attach.TestLoadSlots"},
	},
}

// late runs a method for the first time on an order, and from then on in a thread of its own. The
// method allocates.
const late = `
import java.util.Scanner;
class Late {
    static Object[] sink = new Object[1];
    static long work(long n) {
        for (int i = 0; i < 1000; i++) { n = n * 31 + i; }
        sink[0] = new long[8];
        return n;
    }
    public static void main(String[] args) {
        System.out.println("ready pid " + ProcessHandle.current().pid());
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            in.nextLine();
            Thread t = new Thread(() -> { for (long n = 1;; n = work(n)) {} });
            t.setDaemon(true);
            t.start();
            System.out.println("done");
        }
    }
}`

// testMounts runs JVMs in file systems that come and go, as containers do: overlays of a JDK, and
// now and then a libjvm in an ext4 of its own.
func testMounts(t *testing.T) {
	needs.Root(t, "mounting")
	jdk := needs.JDK(t)
	classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: fstest.MapFS{"Late.java": {Data: []byte(late)}},
		Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	disk := makeDisk(t, jdk)
	url, agent := serve(t, "-v", "-F", "499", "-e", "cpu,alloc,lock,safepoint,value", "--probe",
		"usdt:hotspot:gc__begin")
	const loopEvery = 3
	var first int
	for i := range times(3, 200) {
		m := mountJDK(t, jdk, i%loopEvery == loopEvery-1, disk)
		runLate(t, m.jdk, classes, url, i)
		wait.For(t, 30*time.Second, fmt.Sprintf("%s unmounted after its JVM's end", m.top),
			func() bool { return m.unmount(t) })
		switch {
		case i == 1:
			first = descriptors(t, agent.Process.Pid)
		case i%20 == 0:
			t.Logf("after %d mounts: %d descriptors", i+1, descriptors(t, agent.Process.Pid))
		}
	}
	wait.For(t, 30*time.Second, fmt.Sprintf("no more than %d descriptors, as after the first mounts", first),
		func() bool { return descriptors(t, agent.Process.Pid) <= first })
	// other tests run JVMs at the same time, some with libraries that lack something
	for line := range strings.Lines(agent.output.String()) {
		if lacking.MatchString(line) && strings.Contains(line, filepath.Dir(filepath.Dir(disk))) {
			t.Errorf("not all JVMs were followed live: %s", line)
		}
	}
}

// lacking is the text in notes and the log about a JVM whose library lacks some of the probes.
var lacking = regexp.MustCompile(`not followed live|(process \d+: .*|events of JVMs) are not recorded`)

// runLate runs a JVM, and waits for a profile that names its compiled methods.
func runLate(t *testing.T, jdk jvm.JDK, classes, url string, i int) {
	t.Helper()
	runLateWithin(t, jdk, classes, url, i, time.Minute)
}

func runLateWithin(t *testing.T, jdk jvm.JDK, classes, url string, i int, limit time.Duration) {
	t.Helper()
	guest, err := jvm.Start(t.Context(), jvm.Command{JDK: jdk, Flags: []string{"-Xmx32m", "-XX:+UseSerialGC"},
		Classpath: []string{classes}, Main: "Late"})
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if _, err := guest.Order("work"); err != nil {
		t.Fatal(err)
	}
	// Allocations from before it was attached have no names. From then on all code has.
	wait.For(t, limit, fmt.Sprintf("JVM %d is followed live: a profile with allocations by Late.work in which all "+
		"code has names", i), func() bool {
		p := download(t, fmt.Sprintf("%s/profiles/alloc?seconds=1&pid=%d", url, guest.PID()))
		text := p.String()
		if lacking.MatchString(text) {
			t.Fatalf("JVM %d: %q", i, p.Comments)
		}
		named := false
		for _, s := range p.Sample {
			named = named || slices.ContainsFunc(s.Location, func(l *profile.Location) bool {
				return slices.ContainsFunc(l.Line,
					func(line profile.Line) bool { return line.Function.Name == "Late.work" })
			})
		}
		return named && !strings.Contains(text, "[unknown") && !strings.Contains(text, "[stale]")
	})
}

// A mounted is a JDK in file systems of its own.
type mounted struct {
	jdk    jvm.JDK
	top    string   // the overlay
	places []string // all mounts, last one first
	device string   // device of the ext4: "loop3"; or ""
}

// makeDisk makes an image of an ext4 that holds the JDK's libjvm.
func makeDisk(t *testing.T, jdk jvm.JDK) (image string) {
	t.Helper()
	dir := t.TempDir()
	content := filepath.Join(dir, "content")
	if err := os.Mkdir(content, 0o755); err != nil {
		t.Fatal(err)
	}
	lib, err := os.ReadFile(filepath.Join(jdk.Home, libjvm))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(content, "libjvm.so"), lib, 0o755); err != nil {
		t.Fatal(err)
	}
	image = filepath.Join(dir, "disk")
	size := fmt.Sprint((len(lib)>>20 + 16) << 20 >> 10)
	if out, code := finish(t, "mkfs.ext4", "-q", "-O", "^has_journal", "-d", content, image, size); code != 0 {
		t.Fatalf("mkfs.ext4: %s", out)
	}
	return image
}

const libjvm = "lib/server/libjvm.so"

// mountJDK mounts an overlay of a JDK; with an ext4 its libjvm comes from there.
func mountJDK(t *testing.T, jdk jvm.JDK, ext4 bool, disk string) *mounted {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"upper", "work", "jdk", "ext4"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := &mounted{top: filepath.Join(dir, "jdk")}
	m.jdk = jdk
	m.jdk.Home = m.top
	t.Cleanup(func() {
		for _, place := range m.places { // mounts left by a failed test
			unix.Unmount(place, unix.MNT_DETACH)
		}
	})
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", jdk.Home, dir, dir)
	if err := unix.Mount("overlay", m.top, "overlay", 0, options); err != nil {
		t.Fatalf("mount overlay: %v", err)
	}
	m.places = []string{m.top}
	if !ext4 {
		return m
	}
	place := filepath.Join(dir, "ext4")
	if out, code := finish(t, "mount", "-o", "loop,ro", disk, place); code != 0 {
		t.Fatalf("mount ext4: %s", out)
	}
	m.places = slices.Insert(m.places, 0, place)
	out, _ := finish(t, "findmnt", "-no", "SOURCE", place)
	m.device = filepath.Base(strings.TrimSpace(out))
	target := filepath.Join(m.top, libjvm)
	if err := unix.Mount(filepath.Join(place, "libjvm.so"), target, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("bind libjvm: %v", err)
	}
	m.places = slices.Insert(m.places, 0, target)
	return m
}

// unmount unmounts everything still mounted; true if that is all, and the kernel has released the
// ext4.
func (m *mounted) unmount(t *testing.T) bool {
	t.Helper()
	for len(m.places) > 0 {
		if err := unix.Unmount(m.places[0], 0); err == unix.EBUSY {
			return false
		} else if err != nil {
			t.Fatalf("unmount %s: %v", m.places[0], err)
		}
		m.places = m.places[1:]
	}
	_, err := os.Stat("/sys/fs/ext4/" + m.device)
	return m.device == "" || os.IsNotExist(err)
}

// descriptors is the number of a process's open files, without those that are of other programs
// which still run: files that exist, probes in such files, and processes.
func descriptors(t *testing.T, pid int) (n int) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, entry.Name()))
		if path := probedFile.FindSubmatch(info); path != nil {
			target = string(path[1])
		}
		_, err = os.Stat(target)
		if running := runningProcess.Match(info); !running && err != nil {
			n++
		}
	}
	return n
}

var (
	probedFile     = regexp.MustCompile(`(?m)^path:\s+(/.*)$`)
	runningProcess = regexp.MustCompile(`(?m)^Pid:\s+[1-9]`) // Pid line of a pidfd; -1 once the process has ended
)
