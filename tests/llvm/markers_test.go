package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

const root = "../.."

// pluginDir is where the plug-in is built once for all tests.
var pluginDir string

var plugin = sync.OnceValues(func() (*compiler, error) { return newCompiler(context.Background(), root, pluginDir) })

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "vmprof-llvm-test-")
	if err != nil {
		panic(err)
	}
	pluginDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func newPlugin(t *testing.T) *compiler {
	t.Helper()
	c, err := plugin()
	if err != nil {
		needs.Missing(t, err)
	}
	return &compiler{c.plugin, t.TempDir()}
}

// counting is the run time that counts, an object that all programs of the tests are linked with.
var counting = sync.OnceValues(func() (string, error) {
	c, err := plugin()
	if err != nil {
		return "", err
	}
	object := filepath.Join(pluginDir, "runtime.o")
	return object, c.compile(context.Background(), "", "-O1", "-w", "-c", "-o", object, "testdata/runtime.c")
})

// built compiles a file with a run time that counts, and runs it.
func (c *compiler) built(
	t *testing.T, markers, level, file string, extra ...string,
) (*counts, map[loopID]loopRow, account) {
	t.Helper()
	stats := filepath.Join(c.dir, "stats")
	os.Remove(stats)
	if markers != "" {
		markers += ",stats=" + stats
	}
	object, program := filepath.Join(c.dir, "object.o"), filepath.Join(c.dir, "program")
	runtime, err := counting()
	if err != nil {
		t.Fatal(err)
	}
	link := []string{"-o", program, object, runtime}
	if filepath.Ext(file) == ".cc" {
		link = append(link, "-lstdc++")
	}
	for _, step := range []struct {
		markers string
		args    []string
	}{
		{markers, append([]string{level, "-g", "-w", "-c", "-o", object, file}, extra...)},
		{"", link},
	} {
		if err := c.compile(t.Context(), step.markers, step.args...); err != nil {
			t.Fatal(err)
		}
	}
	counts, err := runCounted(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	table, err := readTable(program)
	if err != nil {
		t.Fatal(err)
	}
	if markers == "" || strings.HasPrefix(markers, "naive") {
		return counts, table, account{}
	}
	a, err := readAccount(stats)
	if err != nil {
		t.Fatal(err)
	}
	return counts, table, a
}

// truthOf reads how often the loops in a file are iterated: the number in the comment at the end of
// a loop's line.
func truthOf(t *testing.T, file string) map[int]uint64 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	truth := make(map[int]uint64)
	for i, line := range strings.Split(string(text), "\n") {
		if at := strings.LastIndex(line, "// "); at >= 0 {
			if n, err := strconv.ParseUint(line[at+3:], 10, 64); err == nil && n > 0 {
				truth[i+1] = n
			}
		}
	}
	return truth
}

var levels = []string{"-O0", "-O1", "-O2", "-O3", "-Os"}

// However the optimizer moves, copies and merges markers, their sum is the number of iterations of
// loops, and the program's behaviour is unchanged.
func TestKnownLoops(t *testing.T) {
	c := newPlugin(t)
	for _, file := range []string{"testdata/known.c", "testdata/known.cc"} {
		truth := truthOf(t, file)
		plain, _, _ := c.built(t, "", "-O2", file)
		for _, level := range levels {
			for _, mode := range []string{"time", "count", "naive"} {
				if mode == "naive" && level != "-O2" {
					// those are calls, which the optimizer must not move: TestBlocks compares with
					// them at each level
					continue
				}
				got, table, a := c.built(t, mode, level, file)
				if got.Output != plain.Output {
					t.Errorf("%s %s %s: prints\n%s, without markers\n%s", file, level, mode, got.Output, plain.Output)
				}
				lines, err := byLine(got.Loops, table, file)
				if err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(lines, truth) {
					t.Errorf("%s %s %s: iterations by line %v, want %v", file, level, mode, lines, truth)
				}
				if a.Lost != 0 {
					t.Errorf("%s %s %s: %+v", file, level, mode, a)
				}
				if level == "-O0" && a.Inserted != a.Kept {
					t.Errorf("%s %s %s: not optimized, but %+v", file, level, mode, a)
				}
			}
		}
	}
}

// Removed markers leave nothing: neither code nor data.
func TestRemoved(t *testing.T) {
	c := newPlugin(t)
	got, table, a := c.built(t, "remove", "-O2", "testdata/known.c")
	if len(got.Loops) > 0 || len(table) > 0 || a.Inserted == 0 {
		t.Errorf("%v, %v, %+v", got.Loops, table, a)
	}
	object, err := os.ReadFile(filepath.Join(c.dir, "object.o"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(object, []byte("__vmprof_")) || bytes.Contains(object, []byte("vmprof_loop")) {
		t.Error("the object still names markers")
	}
}

// Blocks with markers are executed as often as those with calls, which the optimizer must not move,
// except blocks whose markers were lost.
func TestBlocks(t *testing.T) {
	c := newPlugin(t)
	for _, file := range []string{"testdata/known.c", "testdata/known.cc"} {
		for _, level := range levels {
			truth, table, _ := c.built(t, "naive,blocks", level, file)
			got, _, a := c.built(t, "time,blocks", level, file)
			missing := 0
			for id, n := range truth.Loops {
				if filepath.Base(table[id].File) != filepath.Base(file) {
					// It belongs to a library, which has the function, too: where it is not
					// inlined, markers are not executed.
					continue
				}
				switch of := got.Loops[id]; {
				case of.Iterations == 0:
					missing++
				case of.Iterations != n.Iterations:
					t.Errorf("%s %s: block %v is executed %d times, %d with calls", file, level, id, of.Iterations,
						n.Iterations)
				}
			}
			if missing > a.Lost {
				t.Errorf("%s %s: %d blocks are missing, %d markers lost", file, level, missing, a.Lost)
			}
		}
	}
}

// Timers stop as often as they start, however a function is left, and functions that are not
// selected have none.
func TestTimers(t *testing.T) {
	c := newPlugin(t)
	got, _, _ := c.built(t, "time,timers", "-O2", "testdata/known.cc", "-fexceptions")
	if got.Started == 0 || got.Started != got.Stopped {
		t.Errorf("%d timers started, %d stopped", got.Started, got.Stopped)
	}
	chosen := filepath.Join(c.dir, "chosen")
	if err := os.WriteFile(chosen, []byte("# those\nthrower\nmain:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, table, _ := c.built(t, "time,timers,noinline,select="+chosen, "-O2", "testdata/known.cc", "-fexceptions")
	if got.Started != 3 || got.Stopped != 3 { // main, and thrower twice
		t.Errorf("%d timers started, %d stopped, want 3", got.Started, got.Stopped)
	}
	if len(table) != 2 || len(got.Loops) != 2 {
		t.Errorf("loops %v of %v, want one of thrower and one of main", got.Loops, table)
	}
}

// Programs of random loops: the identity holds for unforeseen cases, too.
func TestRandomLoops(t *testing.T) {
	c := newPlugin(t)
	whole, tried := 0, 0
	for seed := range 3 {
		file := filepath.Join(c.dir, "random.c")
		if err := os.WriteFile(file, []byte(randomProgram(uint64(seed))), 0o600); err != nil {
			t.Fatal(err)
		}
		truth, _, _ := c.built(t, "", "-O0", file, "-DTRUTH")
		for _, level := range []string{"-O1", "-O2", "-O3"} {
			for _, mode := range []string{"time", "time,header"} {
				got, table, a := c.built(t, mode, level, file)
				if got.Output != truth.Output {
					t.Errorf("seed %d %s %s: prints %s, without markers %s", seed, level, mode, got.Output,
						truth.Output)
				}
				if mode != "time" {
					continue // conditions are counted, not iterations
				}
				lines, err := byLine(got.Loops, table, file)
				if err != nil {
					t.Fatal(err)
				}
				tried++
				if a.Lost == 0 {
					whole++
				}
				if a.Lost == 0 && !maps.Equal(lines, truth.Truth) {
					for line, n := range truth.Truth {
						if lines[line] != n {
							t.Errorf("seed %d %s: line %d is iterated %d times, want %d", seed, level, line,
								lines[line], n)
						}
					}
				}
			}
		}
	}
	if whole < tried/2 {
		t.Errorf("of %d programs only %d kept all markers", tried, whole)
	}
}

// randomProgram is a C program of nested loops with all kinds of exits. Compiled with -DTRUTH it
// counts the completed iterations of each loop by its line.
func randomProgram(seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 2009))
	var b strings.Builder
	line := 1
	write := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		b.WriteString(text + "\n")
		line += strings.Count(text, "\n") + 1
	}
	write("#include <stdint.h>\n#include <stdio.h>\nunsigned opaque(unsigned x);\nextern uint64_t truth[];\n#ifdef " +
		"TRUTH\n#define DONE(line) truth[line]++\n#else\n#define DONE(line) (void)0\n#endif")
	write("static int a[64];\nstatic unsigned s = 1;")
	variables := 0
	var body func(depth int, loops []int)
	loop := func(depth int, loops []int) {
		variables++
		v, n := fmt.Sprintf("i%d", variables), 1+random.IntN(9)
		at := line
		// Where an iteration ends, so does its truth: the latch is that label.
		bound := strconv.Itoa(n)
		if random.IntN(2) == 0 {
			bound = fmt.Sprintf("(int)(s %% %d)", n+1)
		}
		switch random.IntN(3) {
		case 0:
			write("for (int %s = 0, n%s = %s; %s < n%s; DONE(%d), %s++) {", v, v, bound, v, v, at, v)
		case 1:
			write("for (int %s = %s; %s > 0; DONE(%d), %s -= 1 + (a[%s] & 1)) {", v, bound, v, at, v, v)
		default:
			write("for (int %s = 0, n%s = %s; %s * %s < n%s; DONE(%d), %s++) {", v, v, bound, v, v, v, at, v)
		}
		body(depth+1, append(loops, at))
		write("}")
	}
	body = func(depth int, loops []int) {
		for range 1 + random.IntN(3) {
			switch k := random.IntN(9); {
			case k < 4 && depth < 3:
				loop(depth, loops)
			case k == 4 && len(loops) > 0:
				write("if ((s & %d) == 1) continue;", 1+2*random.IntN(8))
			case k == 5 && len(loops) > 0:
				write("if ((s & 31) == %d) break;", random.IntN(32))
			case k == 6:
				write("s = opaque(s + %d);", random.IntN(100))
			case k == 7:
				write("a[s %% 64] += %d;", random.IntN(9))
			default:
				write("s = s * %du + a[%d];", 1+2*random.IntN(1000), random.IntN(64))
			}
		}
	}
	const functions = 12
	for f := range functions {
		write("static void f%d(void)\n{", f)
		body(0, nil)
		loop(0, nil)
		write("}")
	}
	write("int main(void)\n{")
	for f := range functions {
		write("f%d();", f)
		write("f%d();", random.IntN(f+1))
	}
	write("printf(\"%%u\\n\", s);\nreturn 0;\n}")
	return b.String()
}

// A real program behaves the same with and without markers, and the tables have their places in the
// documentation.
func TestShort(t *testing.T) {
	needs.Root(t, "audit")
	newPlugin(t)
	if err := run(t.Context(), []string{"-short", "-root", root, "-run", "^(bzip2$|speedup, sum)"},
		t.Output()); err != nil {
		t.Error(err)
	}
	if err := harness.CheckMarkers(filepath.Join(root, docs), sections); err != nil {
		t.Error(err)
	}
}
