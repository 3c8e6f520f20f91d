package guests

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// connected starts a guest and connects to it as its agent, with its first thread known.
func connected(t testing.TB, vm VM, program string) (*listener, *peer, *VMRun) {
	t.Helper()
	l := listen(t)
	r := vm.start(t, VMOptions{Program: program, Socket: l.path})
	p := l.connect(t)
	p.welcome(t)
	waitForAgent(t, r)
	announced(t, p, r)
	return l, p, r
}

func waitForAgent(t testing.TB, r *VMRun) {
	t.Helper()
	if err := r.WaitForAgent(); err != nil {
		t.Fatal(err)
	}
}

// announced runs an iteration, before which the guest made its thread announce itself to a new
// agent.
func announced(t testing.TB, p *peer, r *VMRun) {
	t.Helper()
	wait.For(t, patience, "the thread is asked to announce itself", func() bool { return p.slot(0).Armed != 0 })
	r.do(t, 1)
	if got := p.slot(0); got != (slot{}) {
		t.Fatalf("slot %+v after the announcement, want zeroes", got)
	}
}

// The countdown of Arnold & Grove, figure 3. An iteration of the adversary makes 401 calls.
func TestVMCountdown(t *testing.T) {
	const calls = 401
	_, p, r := connected(t, theVM(t), "adversary")
	for _, test := range []struct {
		name        string
		before, now slot
	}{
		{"no sample yet", slot{Armed: 1, Skip: 1000, Left: 9, Stride: 7},
			slot{Armed: 1, Skip: 1000 - calls, Left: 9, Stride: 7}},
		{"samples at 1, 101, 201, 301, 401", slot{1, 1, 10, 100, 3}, slot{1, 100, 5, 100, 3}},
		{"samples at 50, 150, 250, 350", slot{1, 50, 10, 100, 4}, slot{1, 50 + 4*100 - calls, 6, 100, 4}},
		{"last sample is the last call", slot{Armed: 1, Skip: calls, Left: 1, Stride: 7}, slot{Skip: 7, Stride: 7}},
		{"last sample is the next call", slot{Armed: 1, Skip: calls + 1, Left: 1, Stride: 7},
			slot{Armed: 1, Skip: 1, Left: 1, Stride: 7}},
		{"ends on the way", slot{Armed: 1, Skip: 3, Left: 32, Stride: 7}, slot{Skip: 7, Stride: 7}},
		{"every call", slot{Armed: 1, Skip: 1, Left: calls + 1, Stride: 1},
			slot{Armed: 1, Skip: 1, Left: 1, Stride: 1}},
		{"zero for one", slot{Armed: 1, Left: calls - 1}, slot{}},
		{"announcement", slot{Armed: 1, Skip: 5, Stride: 7}, slot{Skip: 5, Stride: 7}},
		{"not armed", slot{Skip: 5, Left: 6, Stride: 7}, slot{Skip: 5, Left: 6, Stride: 7}},
	} {
		p.arm(0, test.before)
		r.do(t, 1)
		if got := p.slot(0); got != test.now {
			t.Errorf("%s: %+v became %+v, want %+v", test.name, test.before, got, test.now)
		}
	}
}

// A VM's own check is shared with the agent: neither misses what is for it, whoever comes and goes
// meanwhile.
func TestVMShared(t *testing.T) {
	const calls = 401 // calls in an iteration of the adversary
	vm := theVM(t)
	l := listen(t)
	r := vm.start(t, VMOptions{Program: "adversary", Yields: 10_000, Socket: l.path})
	for connection := range 5 {
		p := l.connect(t)
		yields(t, r) // the page of the last connection is gone, and a request may have been in it
		p.welcome(t)
		waitForAgent(t, r)
		wait.For(t, patience, "the thread is asked to announce itself", func() bool { return p.slot(0).Armed&1 != 0 })
		r.do(t, 1)
		for i := range 20 {
			p.arm(0, slot{Armed: 1, Skip: 1 << 30, Left: 9, Stride: 7})
			iterations := yields(t, r)
			if got := p.slot(0); got.Armed&1 == 0 || got.Skip != 1<<30-calls*iterations || got.Left != 9 {
				t.Fatalf("connection %d, burst %d: %+v after %d iterations", connection, i, got, iterations)
			}
		}
		if connection%2 == 0 {
			p.arm(0, slot{Armed: 1, Skip: 1, Left: calls, Stride: 1}) // ends
			r.do(t, 1)
			if got := p.slot(0); got.Armed&1 != 0 || got.Left != 0 {
				t.Fatalf("connection %d: %+v at the end of a burst", connection, got)
			}
		}
		p.hangUp()
	}
}

// yields runs iterations until the thread has yielded some times, and returns their number.
func yields(t *testing.T, r *VMRun) (iterations uint32) {
	t.Helper()
	_, before, err := r.Yields()
	if err != nil {
		t.Fatal(err)
	}
	for done := before; done < before+3; iterations += 10 {
		r.do(t, 10)
		if _, done, err = r.Yields(); err != nil {
			t.Fatal(err)
		}
		if iterations > 1_000_000 {
			t.Fatalf("the thread does not yield any more, after %d times", done)
		}
	}
	return iterations
}

// Threads without a slot have a word of their own, which serves the VM.
func TestVMSharedManyThreads(t *testing.T) {
	vm := theVM(t)
	l := listen(t)
	r := vm.start(t, VMOptions{Program: "skewed", Threads: pageSlots + 10, Yields: 1000, Socket: l.path})
	p := l.connect(t)
	p.welcome(t)
	waitForAgent(t, r)
	wait.For(t, patience, "threads yield as often as they should, but for those that ended instead", func() bool {
		r.do(t, 50)
		wanted, done, err := r.Yields()
		if err != nil || done > wanted {
			t.Fatalf("%d yields of %d: %v", done, wanted, err)
		}
		return done > 100
	})
}

// Sampling does not change the guest's results.
func TestVMChecksum(t *testing.T) {
	vm := theVM(t)
	for _, program := range []string{"recursive", "virtual", "flat"} {
		_, p, r := connected(t, vm, program)
		alone := vm.start(t, VMOptions{Program: program, NoCheck: true})
		var checksum string
		for i := range 20 {
			p.arm(0, slot{Armed: 1, Skip: uint32(1 + i), Left: uint32(100 * i), Stride: uint32(1 + i%7)})
			checksum = r.do(t, 1)
		}
		if want := alone.do(t, 21); checksum != want { // one iteration was the announcement's
			t.Errorf("%s: checksum %s, want %s", program, checksum, want)
		}
	}
}

// More threads than slots: those without one run unsampled.
func TestVMManyThreads(t *testing.T) {
	vm := theVM(t)
	l := listen(t)
	o := VMOptions{Program: "skewed", Threads: pageSlots + 10, Socket: l.path}
	r := vm.start(t, o)
	p := l.connect(t)
	p.welcome(t)
	waitForAgent(t, r)
	announced(t, p, r)
	checksum := r.do(t, 50)
	o.NoCheck, o.Socket = true, ""
	if want := vm.start(t, o).do(t, 51); checksum != want { // one iteration was the announcement's
		t.Errorf("checksum %s, want %s", checksum, want)
	}
	for i := range pageSlots {
		if s := p.slot(i); s != (slot{}) {
			t.Errorf("slot %d is %+v after its thread's iterations", i, s)
		}
	}
}

// Every method is registered with its code and its call sites, and graph and registration use the
// same names.
func TestVMRegistration(t *testing.T) {
	for _, program := range VMPrograms() {
		t.Run(program, func(t *testing.T) {
			vm := theVM(t)
			_, p, r := connected(t, vm, program)
			if p.runtime != "vm" || int(p.pid) != r.Pid() {
				t.Errorf("runtime %q of pid %d, want vm of %d", p.runtime, p.pid, r.Pid())
			}
			sites := map[string]bool{}
			methods, _ := p.registered(t, vm.methods(t, program), 0)
			for _, m := range methods {
				sites[m.Name] = true
				for i, s := range m.Sites {
					sites[fmt.Sprint(m.Name, ":", s.Line)] = true
					if s.Offset == 0 || s.Offset >= m.Size || i > 0 && s.Offset <= m.Sites[i-1].Offset {
						t.Errorf("%s: sites %v in %d bytes", m.Name, m.Sites, m.Size)
					}
				}
				if m.ID == 0 || m.File != program+".vm" || m.Line == 0 {
					t.Errorf("method %+v", m)
				}
			}
			for e := range r.graph(t).Edges() {
				if !sites[fmt.Sprint(e.Caller, ":", e.Site)] || !sites[e.Callee] {
					t.Errorf("%+v is not registered", e)
				}
			}
		})
	}
}

// New code is registered before the old is unregistered, with the times when that happened.
func TestVMRecompile(t *testing.T) {
	vm := theVM(t)
	_, p, r := connected(t, vm, "virtual")
	n := vm.methods(t, "virtual")
	if err := r.Recompile(); err != nil {
		t.Fatal(err)
	}
	all, gone := p.registered(t, 2*n, n)
	begins := map[uint32]uint64{}
	for i, m := range all {
		if i < n {
			begins[m.ID] = m.Begin
		} else if m.Begin == begins[m.ID] || m.Time < all[n-1].Time {
			t.Errorf("%s is at %#x again", m.Name, m.Begin)
		}
	}
	for _, f := range gone {
		if begins[f.ID] != f.Begin || f.Time < all[2*n-1].Time {
			t.Errorf("forgot %+v, want begin %#x", f, begins[f.ID])
		}
	}
	p.arm(0, slot{Armed: 1, Skip: 1, Left: 1, Stride: 1})
	r.do(t, 1)
	if got := p.slot(0); got.Armed != 0 {
		t.Errorf("new code leaves the slot at %+v", got)
	}
}

// methods is the number of methods of a program, by its source.
func (v VM) methods(t *testing.T, program string) (n int) {
	t.Helper()
	source, err := exec.CommandContext(t.Context(), v.Path, "-list", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(source), ":\n")
}

// When an agent dies, no thread stays armed, and the next agent gets all registrations again.
func TestVMReconnect(t *testing.T) {
	l, p, r := connected(t, theVM(t), "adversary")
	before, _ := p.registered(t, 4, 0)
	p.arm(0, slot{Armed: 1, Skip: 1 << 30, Left: 1 << 30, Stride: 1})
	p.hangUp()
	wait.For(t, patience, "the guest gives up the page of an agent that is gone",
		func() bool { return !shares(t, r.Pid()) })
	left := p.slot(0)
	r.do(t, 3)
	if got := p.slot(0); got != left {
		t.Errorf("slot %+v became %+v after the connection ended", left, got)
	}

	next := l.connect(t)
	next.refuse(t, 8) // too often
	next = l.connect(t)
	next.welcome(t)
	waitForAgent(t, r)
	announced(t, next, r)
	after, _ := next.registered(t, len(before), 0)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("registered %+v, before it was %+v", after, before)
	}
	next.arm(0, slot{Armed: 1, Skip: 1000, Left: 1, Stride: 1})
	r.do(t, 1)
	if got := next.slot(0); got.Skip != 1000-401 {
		t.Errorf("slot %+v after 401 calls", got)
	}
}

// shares reports whether the process maps an agent's page.
func shares(t *testing.T, pid int) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), "vmprof-page")
}

// A child does not take part in its parent's bursts, and may have an agent of its own.
func TestVMFork(t *testing.T) {
	l, p, r := connected(t, theVM(t), "adversary")
	armed := slot{Armed: 1, Skip: 1 << 20, Left: 1, Stride: 1}
	p.arm(0, armed)
	said := make(chan []string)
	go func() {
		lines, err := r.Fork()
		if err != nil {
			lines = append(lines, err.Error())
		}
		said <- lines
	}()
	child := l.connect(t)
	if child.runtime != "child" || child.pid == p.pid {
		t.Errorf("runtime %q of pid %d", child.runtime, child.pid)
	}
	child.welcome(t)
	if got, want := <-said, []string{"child\t0\t0\t0", "child connected"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the child says %q, want %q", got, want)
	}
	if got := p.slot(0); got != armed {
		t.Errorf("slot %+v after the child's calls, want %+v", got, armed)
	}
	inherited, _ := child.registered(t, 4, 0)
	if own, _ := p.registered(t, 4, 0); !reflect.DeepEqual(inherited, own) {
		t.Errorf("the child registered %+v, its parent %+v", inherited, own)
	}
	r.do(t, 1)
	if got := p.slot(0); got.Skip != armed.Skip-401 {
		t.Errorf("slot %+v after the parent's 401 calls", got)
	}
}
