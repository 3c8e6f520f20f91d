package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A machine is one boot: a kernel, the initramfs, and where its two serial ports are kept.
type machine struct {
	Kernel    string
	Initramfs string
	Disk      string        // an image, which stays as it is; "" for none
	Limit     time.Duration // ends a machine that neither powers off nor panics
	Dir       string        // scratch: console and results
}

// commandLine is the kernel's command line.
var commandLine = strings.Join([]string{
	"console=ttyS0 8250.nr_uarts=2", // messages on the first port, results on the second
	"quiet loglevel=5",              // warnings are what we look for; information would only slow the port
	"oops=panic panic=-1",           // reboot at once, which -no-reboot turns into an exit
	"tsc=reliable no_timer_check",   // clock checks that an emulated clock fails
	"random.trust_cpu=on cryptomgr.notests raid=noautodetect mitigations=off audit=0", // only cost time
	"nokaslr", // addresses in a console log can be looked up
}, " ")

// Boot runs m until it powers off and returns the output of its serial ports, even if the machine
// had to be stopped. The emulator, not KVM, runs the guest, so that it behaves the same everywhere,
// also inside a virtual machine. Its processors take turns on one thread: on separate threads, one
// can execute a place in the kernel while another patches it, and hit an unexpected breakpoint
// (Oops: int3).
func (m machine) Boot(ctx context.Context) (console, results string, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.Limit)
	defer cancel()
	consolePath := filepath.Join(m.Dir, "console")
	resultsPath := filepath.Join(m.Dir, "results")
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", slices.Concat(m.hardware(), []string{
		"-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max,la57=off",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none",
		"-serial", "file:" + consolePath, "-serial", "file:" + resultsPath,
		"-kernel", m.Kernel, "-initrd", m.Initramfs,
	})...)
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the machine did not power off within %s", m.Limit)
	} else if err != nil {
		return "", "", fmt.Errorf("run qemu-system-x86_64 (package qemu-system-x86): %w\n%s", err, out)
	}
	console, consoleErr := readSerial(consolePath)
	results, resultsErr := readSerial(resultsPath)
	return console, results, errors.Join(err, consoleErr, resultsErr)
}

// hardware returns what depends on whether live tests run, with the kernel's command line. No clock
// of a machine without a disk is reliable. With a disk, an instruction takes 2 ns on the machine's
// clocks, however busy the host is: tests see one processor of constant speed. Two do not boot in
// that mode (QEMU 7.2).
func (m machine) hardware() []string {
	if m.Disk == "" {
		return []string{"-smp", "2", "-m", "1G", "-append", commandLine + " CI=true"}
	}
	return []string{
		"-icount", "shift=1,sleep=on", "-smp", "1", "-m", "3G", "-append", commandLine + " CI=" + os.Getenv("CI"),
		"-drive", "if=none,id=disk,format=raw,snapshot=on,cache=unsafe,file=" + m.Disk, "-device",
		"nvme,drive=disk,serial=1",
	}
}

// readSerial returns the output of a port, with the line ends of the terminal layer reverted.
func readSerial(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read serial port: %w", err)
	}
	return strings.ReplaceAll(string(data), "\r", ""), nil
}
