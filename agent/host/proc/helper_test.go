package proc

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childMode selects what the test binary does when a test starts it as a target.
const childMode = "VMPROF_TEST_TARGET"

const secret = "what the target holds in memory"

func TestMain(m *testing.M) {
	switch os.Getenv(childMode) {
	case "":
		os.Exit(m.Run())
	case "hold":
		holdMemory()
	case "hang":
		hangMemory()
	}
}

// holdMemory prints the address of secret. At a newline it executes itself anew, at the end of
// input it ends.
func holdMemory() {
	fmt.Println(uintptr(unsafe.Pointer(unsafe.StringData(secret)))) // read-only data never moves
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err == nil {
		if err := unix.Exec("/proc/self/exe", os.Args, os.Environ()); err != nil {
			panic(err)
		}
	}
}

// hangMemory prints the address of a page whose first access waits for a handler that never
// answers: userfaultfd(2). It stands in for a mapping of a FUSE file system that does not answer.
func hangMemory() {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		panic(errno)
	}
	// These are struct uffdio_api and struct uffdio_register of include/uapi/linux/userfaultfd.h.
	api := struct{ api, features, ioctls uint64 }{api: 0xaa}
	const uffdioAPI = 0xc018aa3f
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		panic(errno)
	}
	register := struct{ start, len, mode, ioctls uint64 }{
		start: uint64(uintptr(unsafe.Pointer(&page[0]))),
		len:   uint64(len(page)),
		mode:  1, // UFFDIO_REGISTER_MODE_MISSING
	}
	const uffdioRegister = 0xc020aa00
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioRegister, uintptr(unsafe.Pointer(&register))); errno != 0 {
		panic(errno)
	}
	fmt.Println(register.start)
	io.Copy(io.Discard, os.Stdin)
}

// A child is the test binary as a target.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	pid    int
	addr   uint64 // what it printed
}

func startChild(t *testing.T, mode string) *child {
	t.Helper()
	c := &child{cmd: exec.Command("/proc/self/exe")}
	c.cmd.Env = append(os.Environ(), childMode+"="+mode)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	c.pid = c.cmd.Process.Pid
	c.readAddr(t)
	return c
}

// readAddr waits for the child to print an address.
func (c *child) readAddr(t *testing.T) {
	t.Helper()
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("target: %v", err)
	}
	if c.addr, err = strconv.ParseUint(strings.TrimSpace(line), 10, 64); err != nil {
		t.Fatal(err)
	}
}

// kill ends and reaps the child; calling it again does nothing.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// mapPages returns memory that Go does not move, and from which a test may take pages away.
func mapPages(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

func unmapPage(t *testing.T, mem []byte) {
	t.Helper()
	if err := unix.MunmapPtr(unsafe.Pointer(&mem[0]), uintptr(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
}
