// Command guest is the init of the machines that the kernel rig boots: it mounts what the tests need, loads every BPF object of the
// initramfs, runs every test binary, and powers off. It reports to the host over the second serial port, so that kernel messages on the
// first one never split a line of results.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/kernels/wire"
)

// testArgs select the tests that need only a kernel; -test.short leaves out what shows nothing of it. The limit ends a hanging test with a goroutine dump, well before the rig's limit for
// the whole machine.
var testArgs = []string{"-test.v", "-test.short", "-test.run=^TestKernel", "-test.timeout=12m"}

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is an init for a throw-away machine and runs only as pid 1")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err) // the kernel's console
	}
	unix.Sync()
	// Only fails without privilege, which pid 1 has; if it did, the rig's own limit ends the machine.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	if err := mountAll(); err != nil {
		return err
	}
	out, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the results' serial port: %w", err)
	}
	defer out.Close()
	if err := announce(out); err != nil {
		return err
	}
	if err := runSteps(out, filepath.Join(wire.ObjectDir, "*"), filepath.Base, loadObject); err != nil {
		return err
	}
	packageName := func(test string) string { return filepath.Base(filepath.Dir(test)) }
	if err := runSteps(out, filepath.Join(wire.TestDir, "*", wire.TestBin), packageName, runTest); err != nil {
		return err
	}
	fmt.Fprintln(out, wire.Mark{Kind: wire.Done})
	return nil
}

// runSteps takes a step for every file that matches pattern and reports how it ended.
func runSteps(out io.Writer, pattern string, name func(string) string, step func(io.Writer, string) error) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range paths {
		fmt.Fprintln(out, wire.Mark{Kind: wire.Run, Subject: name(path)})
		detail := "0"
		if err := step(out, path); err != nil {
			detail = err.Error()
		}
		fmt.Fprintln(out, wire.Mark{Kind: wire.Exit, Subject: name(path), Detail: detail})
	}
	return nil
}

func mountAll() error {
	for _, m := range []struct{ fs, dir string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"},
		{"tracefs", "/sys/kernel/tracing"},
		{"bpf", "/sys/fs/bpf"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fs, m.dir, m.fs, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}

// announce reports to the host which kernel booted and how long that took on the guest's clock, which under emulation may differ from the
// host's.
func announce(out io.Writer) error {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return err
	}
	seconds, _, _ := strings.Cut(string(uptime), " ")
	fmt.Fprintln(out, wire.Mark{Kind: wire.Up, Subject: strings.TrimSpace(string(release)), Detail: seconds})
	return nil
}

// runTest runs one test binary in its own directory, as `go test` does.
func runTest(out io.Writer, test string) error {
	cmd := exec.Command(test, testArgs...)
	cmd.Dir = filepath.Dir(test)
	cmd.Stdout, cmd.Stderr = out, out
	// CI forbids skipping for want of privilege or kernel: this machine has both.
	cmd.Env = []string{"CI=true", "HOME=/tmp", "PATH=/"}
	return cmd.Run()
}
