//go:build linux && amd64

package monitors

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// killedEnv makes TestListenUntilKilled open a window: on the process, the thread, the address.
const killedEnv = "VMPROF_TEST_LISTEN"

// TestListenUntilKilled is the agent that TestKernelKilled kills.
func TestListenUntilKilled(t *testing.T) {
	var pid, tid int
	var address uint64
	if n, _ := fmt.Sscan(os.Getenv(killedEnv), &pid, &tid, &address); n != 3 {
		t.Skip("is run by TestKernelKilled")
	}
	f := newFixture(t)
	id, err := proc.DefaultRoot.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := proc.OpenMemory(proc.DefaultRoot, id, proc.NewPool(proc.PoolOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	site := Site{Place: Place{Address: address}}
	if err := memory.Read(address, site.code[:]); err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening")
	w := Window{Sites: []Site{site, site, site}, Threads: []int{tid}, Duration: time.Minute}
	err = breakpoint.ErrBusy
	for errors.Is(err, breakpoint.ErrBusy) { // allFree in the parent has them for a moment
		_, err = f.Listen(t.Context(), id, memory, w)
	}
	t.Errorf("the window ended: %v", err)
}

// An agent that is killed in the middle of a window leaves no breakpoint: all debug registers of
// the thread are free again, which they are not during the window.
func TestKernelKilled(t *testing.T) {
	needs.Root(t, "to listen to another process")
	// What the breakpoints of the test itself do is no matter.
	nothing, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.PerfEvent, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "GPL",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer nothing.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	address := uint64(reflect.ValueOf(enterOften).Pointer())
	if !allFree(t, nothing, tid, address) {
		t.Fatal("something else has debug registers of this thread")
	}
	agent := exec.Command(os.Args[0], "-test.run=^TestListenUntilKilled$", "-test.v")
	agent.Env = append(os.Environ(), killedEnv+"="+strings.Join([]string{strconv.Itoa(os.Getpid()), strconv.Itoa(tid),
		strconv.FormatUint(address, 10)}, " "))
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for line := ""; line != "listening\n"; {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("the agent does not listen: %v", err)
		}
	}
	ended := make(chan string, 1)
	go func() {
		rest, _ := io.ReadAll(lines) // until the agent is killed
		ended <- string(rest)
	}()
	for allFree(t, nothing, tid, address) {
		select {
		case rest := <-ended:
			t.Fatalf("the agent does not listen: %s", rest)
		case <-time.After(time.Millisecond):
		}
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	_ = agent.Wait() // it reports that it was killed
	if !allFree(t, nothing, tid, address) {
		t.Error("debug registers of the thread are still in use")
	}
	if got := enterOften(&object{mark: 5}); got != 5 {
		t.Errorf("%d, want 5", got)
	}
}

// allFree reports whether breakpoints can be set in all four debug registers of a thread.
func allFree(t *testing.T, program *ebpf.Program, tid int, address uint64) bool {
	t.Helper()
	for _, n := range []int{breakpoint.MaxAddresses, 4 - breakpoint.MaxAddresses} {
		addresses := make([]uint64, n)
		for i := range addresses {
			addresses[i] = address
		}
		b, err := breakpoint.NewSet(program, addresses, []int{tid}, 1)
		if errors.Is(err, breakpoint.ErrBusy) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
	}
	return true
}
