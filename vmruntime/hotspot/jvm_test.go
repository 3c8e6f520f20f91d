package hotspot

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// jdks are the JVMs that live tests run on: all that are installed where distributions put them.
func jdks(t testing.TB) []string {
	var homes []string
	for _, pattern := range []string{"/usr/lib/jvm/java-17-openjdk-*", "/usr/lib/jvm/temurin-25-jdk-*"} {
		found, _ := filepath.Glob(filepath.Join(pattern, "lib/server/libjvm.so"))
		for _, lib := range found {
			homes = append(homes, strings.TrimSuffix(lib, "/lib/server/libjvm.so"))
		}
	}
	if len(homes) == 0 {
		unavailable(t, "no JDK 17 or 25 is installed")
	}
	return homes
}

// unavailable skips the test, but not where everything is supposed to be there.
func unavailable(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

const guestSource = "../../tests/guests/java/hotspot/ScopesGuest.java"

// A jvm is a running guest.
type jvm struct {
	home    string
	classes string // directory
	said    string // its first line of output
	pid     int
	bias    uint64
	image   *Image
	mem     vmruntime.Memory
}

// startJVM compiles the usual guest and runs it until it says that it is ready. It ends with the
// test.
func startJVM(t testing.TB, home string, args ...string) *jvm {
	t.Helper()
	return startGuest(t, home, []string{guestSource}, args...)
}

func startGuest(t testing.TB, home string, sources []string, args ...string) *jvm {
	t.Helper()
	return runGuest(t, home, compileGuest(t, home, sources), args...)
}

// compileGuest returns the directory of the classes.
func compileGuest(t testing.TB, home string, sources []string) string {
	t.Helper()
	classes := t.TempDir()
	javac := exec.Command(filepath.Join(home, "bin/javac"), append([]string{"-g", "--release", "17", "-d", classes},
		sources...)...)
	if out, err := javac.CombinedOutput(); err != nil {
		unavailable(t, fmt.Sprintf("javac: %v\n%s", err, out))
	}
	return classes
}

func runGuest(t testing.TB, home, classes string, args ...string) *jvm {
	t.Helper()
	cmd := exec.Command(filepath.Join(home, "bin/java"), append([]string{"-cp", classes, "-Xmx64m", "-XX:+UseSerialGC"},
		args...)...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // kept open, or the guest ends
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	said, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(said, "ready") {
		t.Fatalf("guest said %q, %v", said, err)
	}
	vm := &jvm{home: home, classes: classes, said: said, pid: cmd.Process.Pid, mem: processMemory(cmd.Process.Pid)}
	vm.findLibrary(t)
	return vm
}

// findLibrary reads libjvm and where it is mapped.
func (vm *jvm) findLibrary(t testing.TB) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", vm.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !(Runtime{}).Recognise(fields[5]) || !strings.Contains(fields[1], "x") {
			continue
		}
		file, err := os.Open(fields[5])
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lib, err := elffile.OpenFile(file)
		if err != nil {
			t.Fatal(err)
		}
		start, _ := strconv.ParseUint(strings.Split(fields[0], "-")[0], 16, 64)
		offset, _ := strconv.ParseUint(fields[2], 16, 64)
		if vm.bias, err = lib.Bias(start, offset); err != nil {
			t.Fatal(err)
		}
		image, err := Runtime{}.Image(lib)
		if err != nil || image == nil {
			t.Fatalf("image of %s: %v, %v", fields[5], image, err)
		}
		vm.image = image.(*Image)
		return
	}
	t.Fatalf("process %d has no libjvm", vm.pid)
}

// attach opens the guest with an epoch that stands still.
func (vm *jvm) attach(t testing.TB) *Process {
	t.Helper()
	p, err := vm.image.Attach(vmruntime.Target{Memory: vm.mem, Bias: vm.bias, Epoch: func() uint32 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	return whole(t, p)
}

// jcmd asks the guest itself.
func (vm *jvm) jcmd(t testing.TB, command ...string) string {
	t.Helper()
	args := append([]string{strconv.Itoa(vm.pid)}, command...)
	out, err := exec.Command(filepath.Join(vm.home, "bin/jcmd"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("jcmd %v: %v\n%s", command, err, out)
	}
	return string(out)
}

// processMemory reads a process with process_vm_readv.
type processMemory int

func (pid processMemory) Read(addr uint64, p []byte) error {
	ranges := []vmruntime.Range{{Addr: addr, Buf: p}}
	if err := pid.ReadBatch(ranges); err != nil {
		return err
	}
	if !ranges[0].OK {
		return errors.New("bad address")
	}
	return nil
}

func (pid processMemory) ReadBatch(ranges []vmruntime.Range) error {
	const most = 1024 // UIO_MAXIOV
	for len(ranges) > 0 {
		var local []unix.Iovec
		var remote []unix.RemoteIovec
		for i := range ranges[:min(most, len(ranges))] {
			r := &ranges[i]
			v := unix.Iovec{Base: &r.Buf[0]}
			v.SetLen(len(r.Buf))
			local = append(local, v)
			remote = append(remote, unix.RemoteIovec{Base: uintptr(r.Addr), Len: len(r.Buf)})
		}
		n, err := unix.ProcessVMReadv(int(pid), local, remote, 0)
		if err != nil && !errors.Is(err, unix.EFAULT) {
			return err
		}
		done := 0
		for done < len(local) && n >= len(ranges[done].Buf) {
			n -= len(ranges[done].Buf)
			ranges[done].OK = true
			done++
		}
		if done < len(local) {
			done++ // this one failed
		}
		ranges = ranges[done:]
	}
	return nil
}
