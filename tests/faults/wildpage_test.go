package faults

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/contrib/guest"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

var wildPageRows = []Row{{
	Fault: "a VM that writes random bytes into the pages that it shares with the agent, and sends random packets",
	Holds: "Its calls are what it says they are. The agent goes on, nothing panics, and calls of another VM on " +
		"the same socket are recorded as before.",
	Test: wildPage,
	Elsewhere: []string{"agent/collect/calls/page.FuzzParse", "agent/collect/calls/page.FuzzWeigher",
		"agent/collect/calls/page.FuzzTimings"},
}}

// wildPage serves calls of a VM that obeys the rules beside one that obeys none.
func wildPage(t *testing.T) {
	needs.Root(t, "sampling")
	dir := publicDir(t)
	program, socket := filepath.Join(dir, "wildpage"), filepath.Join(dir, "guest.sock")
	if err := os.WriteFile(filepath.Join(dir, "vmprof.h"), []byte(guest.Header), 0o644); err != nil {
		t.Fatal(err)
	}
	compile(t, "-std=gnu17", "-O1", "-pthread", "-I", dir, "-o", program, "c/wildpage.c")
	vm, err := guests.BuildVM(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	url, agent := serve(t, "-e", "cpu,calls", "--engine=page", "--guest-socket", socket, "-F", "499", "--budget=10%")
	intact, err := vm.Start(context.WithoutCancel(t.Context()), guests.VMOptions{Program: "skewed", Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer intact.Close()
	if err := intact.WaitForAgent(); err != nil {
		t.Fatal(err)
	}
	wild := exec.CommandContext(t.Context(), program)
	wild.Env = append(os.Environ(), "VMPROF_SOCKET="+socket)
	wild.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := wild.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := wild.Start(); err != nil {
		t.Fatal(err)
	}
	defer wild.Wait()
	defer wild.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var works sync.WaitGroup
	works.Go(func() {
		for ctx.Err() == nil {
			if _, err := intact.RunFor(time.Second); err != nil {
				t.Error(err)
				return
			}
		}
	})
	// The guest writes meanwhile: the test is about how much, and no condition says that.
	time.Sleep(time.Duration(times(5, 300)) * time.Second)
	recorded := calleesOf(download(t, fmt.Sprintf("%s/profiles/calls?seconds=5&pid=%d", url, intact.Pid())))
	cancel()
	works.Wait()
	truth, err := intact.Graph()
	if err != nil {
		t.Fatal(err)
	}
	// Of a thousand samples of a dozen methods, four in a hundred are elsewhere by chance.
	if overlap := cct.Overlap(truth.Callees(), recorded); overlap < 90 {
		t.Errorf("the calls of the VM that obeys the rules overlap by %.0f %% with those that it made: %v", overlap,
			recorded)
	}
	if output := agent.output.String(); strings.Contains(output, "panic") {
		t.Errorf("the agent panicked:\n%s", output)
	}
}

// calleesOf returns how often a profile of calls has each callee.
func calleesOf(p *profile.Profile) cct.Weights[string] {
	callees := cct.Weights[string]{}
	for _, s := range p.Sample {
		callees[s.Location[0].Line[0].Function.Name] += float64(s.Value[0])
	}
	return callees
}
