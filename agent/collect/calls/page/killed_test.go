//go:build linux

package page

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

const agentVariable = "VMPROF_PAGE_TEST_AGENT"

// playAgent is an agent on the socket named by the variable. It keeps the threads armed all the
// time, prints "calls" when it has received some, and waits to be killed.
func playAgent() {
	err := func() error {
		o, err := bpf.Load(bpf.Options{})
		if err != nil {
			return err
		}
		e, err := New(Options{Objects: o, Socket: os.Getenv(agentVariable)})
		if err != nil {
			return err
		}
		if err := e.Tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 1 << 20, Samples: 1 << 30}}); err != nil {
			return err
		}
		fmt.Println("listening")
		for e.Cost().Hits < 10 {
			e.sleep(1e6)
		}
		fmt.Println("calls")
		select {}
	}()
	fmt.Println(err)
	os.Exit(1)
}

// An agent is killed while threads are armed: their probes are removed at once, no page stays
// armed, and the processes go on. The next agent takes over the socket, and the processes connect
// to it.
func TestLiveKilledAgent(t *testing.T) {
	s := newStage(t, nil) // for the end; another agent uses a socket of its own until then
	socket := strings.TrimSuffix(s.socket, "guest.sock") + "killed.sock"
	agent := exec.Command("/proc/self/exe")
	agent.Env = append(os.Environ(), agentVariable+"="+socket)
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want)+1)
		if _, err := io.ReadFull(out, got); err != nil || string(got) != want+"\n" {
			rest, _ := io.ReadAll(io.LimitReader(out, 1000))
			t.Fatalf("agent said %q%s, %v, not %q", got, rest, err, want)
		}
	}
	expect("listening")
	g := startGuest(t, socket, "skewed", "2", "4")
	expect("calls")
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()

	next, err := New(Options{Objects: s.objects, Socket: socket})
	if err != nil {
		t.Fatalf("after the other agent was killed: %v", err)
	}
	defer next.Close()
	wait.For(t, wait.Long, "the guest to come back", func() bool { return next.Stats().Guests == 1 })
	if err := next.Tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 1, Samples: 2}}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, wait.Long, "calls", func() bool { return next.Cost().Hits > 0 })
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	g.finish(t)
	if g.state != "unarmed" {
		t.Errorf("the guest's page is %s", g.state)
	}
	if g.truth.Total() == 0 {
		t.Error("the guest did nothing")
	}
}
