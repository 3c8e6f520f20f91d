package guests

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// buildOnce builds the reference guest for all tests of the package.
var buildOnce func() (VM, error)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "guests-")
	if err != nil {
		panic(err)
	}
	buildOnce = sync.OnceValues(func() (VM, error) { return BuildVM(context.Background(), dir) })
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// theVM is the reference guest. Without a compiler the test is skipped.
func theVM(t testing.TB) VM {
	t.Helper()
	vm, err := buildOnce()
	if errors.Is(err, ErrNoCompiler) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// start starts a guest that ends with the test.
func (v VM) start(t testing.TB, o VMOptions) *VMRun {
	t.Helper()
	if o.Socket == "" {
		o.Socket = t.TempDir() + "/nobody"
	}
	r, err := v.Start(context.WithoutCancel(t.Context()), o) // it ends when it is closed, which says how it went
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// do runs that many iterations, and returns the checksum.
func (r *VMRun) do(t testing.TB, iterations int) string {
	t.Helper()
	s, err := r.Run(iterations)
	if err != nil {
		t.Fatal(err)
	}
	return s.Checksum
}

func (r *VMRun) graph(t testing.TB) *VMGraph {
	t.Helper()
	g, err := r.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The programs run, and neither the check nor counting changes their results. The graph derived
// from one iteration equals the graph from counting every call.
func TestVMPrograms(t *testing.T) {
	vm := theVM(t)
	list, err := exec.CommandContext(t.Context(), vm.Path, "-list").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(list)); !slices.Equal(got, VMPrograms()) {
		t.Fatalf("programs %v, want %v", got, VMPrograms())
	}
	for _, program := range VMPrograms() {
		t.Run(program, func(t *testing.T) {
			iterations := 23
			if program == "phased" {
				iterations = 1
			}
			plain := vm.start(t, VMOptions{Program: program})
			bare := vm.start(t, VMOptions{Program: program, NoCheck: true})
			exact := vm.start(t, VMOptions{Program: program, Exact: true})
			yielding := vm.start(t, VMOptions{Program: program, Yields: 1000})
			checksum := plain.do(t, iterations)
			if got := bare.do(t, iterations); got != checksum {
				t.Errorf("checksum %s without the check, %s with it", got, checksum)
			}
			if got := yielding.do(t, iterations); got != checksum {
				t.Errorf("checksum %s with yieldpoints, %s without", got, checksum)
			}
			if got := exact.do(t, iterations); got != checksum {
				t.Errorf("checksum %s with counting, %s without", got, checksum)
			}
			graph, counted := plain.graph(t), exact.graph(t)
			if graph.Len() == 0 || graph.Len() != counted.Len() {
				t.Errorf("%d edges, %d of them counted", graph.Len(), counted.Len())
			}
			for edge, calls := range counted.Edges() {
				if graph.Weight(edge) != calls {
					t.Errorf("%v: %v calls, counted %v", edge, graph.Weight(edge), calls)
				}
			}
			if again := plain.graph(t); again.Total() != 0 {
				t.Errorf("%v calls after the graph was asked for", again.Total())
			}
		})
	}
}

// The ratios documented in vm/programs.c.
func TestVMRatios(t *testing.T) {
	vm := theVM(t)
	callees := func(t *testing.T, program string) map[string]float64 {
		r := vm.start(t, VMOptions{Program: program})
		r.do(t, 5)
		calls := map[string]float64{}
		for edge, n := range r.graph(t).Edges() {
			calls[edge.Callee] += n / 5
		}
		return calls
	}
	for _, test := range []struct {
		program string
		want    map[string]float64 // calls in an iteration
	}{
		{"adversary", map[string]float64{"M": 1, "call_1": 200, "call_2": 200}},
		{"skewed", map[string]float64{"main": 1, "hot": 12800, "warm": 1616, "cold": 16, "rare": 16, "tiny": 14416}},
		{"recursive", map[string]float64{"recurse": 2, "fib": 2 * 8361, "down": 2 * 1001, "even": 2 * 101,
			"odd": 2 * 100}},
		{"virtual", map[string]float64{
			"Shape0.area": 768, "Shape1.area": 384, "Shape2.area": 256, "Shape7.area": 64,
			"Shape0.name": 1536, "Shape1.name": 512, "Shape2.name": 0, "Shape0.hash": 2048, "Shape1.hash": 0,
		}},
		{"flat", map[string]float64{"method0": 256, "method1": 128, "method2": 128, "method3": 64, "method299": 1,
			"driver9": 256}},
	} {
		t.Run(test.program, func(t *testing.T) {
			got := callees(t, test.program)
			for callee, calls := range test.want {
				if got[callee] != calls {
					t.Errorf("%s is called %v times, want %v", callee, got[callee], calls)
				}
			}
		})
	}
}

// Threads of one program do different things, and their calls add up.
func TestVMThreads(t *testing.T) {
	r := theVM(t).start(t, VMOptions{Program: "threaded", Threads: 8})
	s, err := r.Run(3)
	if err != nil {
		t.Fatal(err)
	}
	if s.Iterations != 8*3 {
		t.Errorf("%d iterations, want %d", s.Iterations, 8*3)
	}
	roots := map[string]float64{}
	for edge, calls := range r.graph(t).Edges() {
		if edge.Caller == VMEnter {
			roots[edge.Callee] += calls
		}
	}
	for root, calls := range map[string]float64{"access": 2 * 3 * 8, "compute": 2 * 3, "dispatch": 2 * 3 * 5,
		"recurse": 2 * 3 * 4} {
		if roots[root] != calls {
			t.Errorf("%s was entered %v times, want %v", root, roots[root], calls)
		}
	}
}

// The command line for people.
func TestVMCommand(t *testing.T) {
	vm := theVM(t)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), vm.Path, args...)
		cmd.Env = append(os.Environ(), "VMPROF_SOCKET="+t.TempDir()+"/nobody")
		out, err := cmd.Output()
		return string(out), err
	}
	out, err := run("adversary", "-iterations", "7", "-graph", "-")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if s, err := parseSegment(lines[0]); err != nil || s.Iterations != 7 {
		t.Errorf("segment %+v, %v", s, err)
	}
	if g, err := parseVMGraph(lines[1:]); err != nil || g.Total() != 7*401 {
		t.Errorf("graph of %v calls, %v, want %d", g.Total(), err, 7*401)
	}
	if out, err := run("adversary", "-seconds", "0.05"); err != nil || strings.HasPrefix(out, "run\t0") {
		t.Errorf("%q, %v", out, err)
	}
	if list, err := run("-list", "adversary"); err != nil || !strings.Contains(list, "call     call_2") {
		t.Errorf("%v, source:\n%s", err, list)
	}
	for _, args := range [][]string{{}, {"nonsense"}, {"flat", "-nonsense"}, {"flat", "-iterations"},
		{"-list", "nonsense"}} {
		if out, err := run(args...); err == nil {
			t.Errorf("vm %q succeeded: %s", args, out)
		}
	}
}

func TestParseVMRefuses(t *testing.T) {
	for _, line := range []string{"", "edge", "edge\ta\tb\tc\t1", "edge\ta\t1\tb\tx", "edge\ta\t1\tb\t-1",
		"other\ta\t1\tb\t1"} {
		if g, err := parseVMGraph([]string{line}); err == nil {
			t.Errorf("parsed %q as %+v", line, g)
		}
	}
	for _, line := range []string{"", "run\t1\t2\t3", "run\tx\t2\t3\tff", "run\t-1\t2\t3\tff"} {
		if s, err := parseSegment(line); err == nil {
			t.Errorf("parsed %q as %+v", line, s)
		}
	}
}
