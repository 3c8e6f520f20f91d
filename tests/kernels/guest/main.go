// Command guest is the init of the machines that the kernel rig boots: it mounts what the tests
// need, with the disk as the root if there is one, loads every BPF object, runs every test binary,
// and powers off. It reports to the host over the second serial port, so that kernel messages on
// the first one never split a line of results.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/binary"
	"github.com/vmprof-agent/vmprof-agent/tests/kernels/wire"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is an init for a throw-away machine and runs only as pid 1")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err) // the kernel's console
	}
	unix.Sync()
	// Only fails without privilege, which pid 1 has; if it did, the rig's own limit ends the
	// machine.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	if _, err := os.Stat(wire.DiskDir); err == nil {
		if err := enterDisk(); err != nil {
			return err
		}
	}
	if err := mountAll(); err != nil {
		return err
	}
	out, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the results' serial port: %w", err)
	}
	defer out.Close()
	if err := prepare(); err != nil {
		return err
	}
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
	mounts := []struct{ fs, dir, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/dev/shm", ""},
		{"tracefs", "/sys/kernel/tracing", ""},
		{"bpf", "/sys/fs/bpf", ""},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"cgroup", "/sys/fs/cgroup/freezer", "freezer"}, // freezer of version 1, as on hosts that have both
		{"tmpfs", "/tmp", ""},                           // last: a disk has one
	}
	if _, err := os.Stat("/tmp"); err == nil {
		mounts = mounts[:len(mounts)-1]
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fs, m.dir, m.fs, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}

// announce reports to the host which kernel booted and how long that took on the guest's clock,
// which under emulation may differ from the host's.
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
	args, err := os.ReadFile(wire.Arguments)
	if err != nil {
		return err
	}
	cmd := exec.Command(test, strings.Split(strings.TrimSpace(string(args)), "\n")...)
	cmd.Dir = filepath.Dir(test)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = []string{
		"CI=" + os.Getenv("CI"), // from the kernel's command line
		"HOME=" + wire.Home, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", binary.Built + "=" + wire.BuiltDir,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Orphans are init's to wait for: until then their pids stay in use.
	for {
		var status unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for a test: %w", err)
		case pid == cmd.Process.Pid && status.Signaled():
			return fmt.Errorf("ended by %v", status.Signal())
		case pid == cmd.Process.Pid && status.ExitStatus() != 0:
			return fmt.Errorf("exit status %d", status.ExitStatus())
		case pid == cmd.Process.Pid:
			return nil
		}
	}
}
