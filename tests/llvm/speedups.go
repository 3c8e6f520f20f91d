package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// kernels are the functions of testdata/kernels.c.
var kernels = []string{"sum", "scale", "crc", "find", "multiply", "sort"}

// A speedup is how much faster version 1, at -O3, is than version 0, at -O1.
type speedup struct {
	kernel string
	truth  float64            // percent, without any timing points
	found  map[string]finding // by what was timed
}

// A finding is audit's result.
type finding struct {
	percent, within float64
	verdict         string // faster, slower, the same, undecided
	timings         string // timings of both versions until the verdict
	perturb         string // scores of both versions: sections 6.1 and 6.2 of the paper
	converge        string
}

// ways are how the kernels are timed: figures 6 and 7 of the paper.
var ways = []struct {
	name, markers string
	loops         bool
}{
	{"markers, method", "time", false},
	{"markers, method and loops", "time", true},
	{"naïve, method", "naive", false},
	{"naïve, method and loops", "naive", true},
}

// A kernelTrial is a kernel.
type kernelTrial string

// String is the trial's name.
func (k kernelTrial) String() string { return "speedup, " + string(k) }

func planSpeedups(c harness.Choice) harness.Job[bench] {
	return harness.Trials[bench, kernelTrial, speedup]{
		All: func(short bool) (all []kernelTrial) {
			for _, k := range kernels {
				all = append(all, kernelTrial(k))
			}
			if short {
				return all[:1]
			}
			return all
		},
		Run: bench.speedups,
		Tables: func(results []speedup) []harness.Table {
			table := report.Table{Header: []string{"function", "-O3 faster than -O1, %"}}
			for _, way := range ways {
				table.Header = append(table.Header, way.name+", %", "±", "verdict")
			}
			for _, r := range results {
				row := []string{r.kernel, fmt.Sprintf("%.0f", r.truth)}
				for _, way := range ways {
					f := r.found[way.name]
					row = append(row, fmt.Sprintf("%.0f", f.percent), fmt.Sprintf("%.0f", f.within), f.verdict)
				}
				table.Add(row...)
			}
			scores := report.Table{Header: []string{"function", "timed", "timings", "perturb score, -O1 / -O3",
				"converge score, -O1 / -O3"}}
			for _, r := range results {
				for _, way := range ways[:2] {
					f := r.found[way.name]
					scores.Add(r.kernel, way.name, f.timings, f.perturb, f.converge)
				}
			}
			return []harness.Table{{Marker: "audit-speedups", Table: table}, {Marker: "audit-scores", Table: scores}}
		},
	}.Plan(c)
}

// speedups times the kernels in all ways.
func (b bench) speedups(ctx context.Context, trials []kernelTrial) (results []speedup, err error) {
	plain, err := b.buildKernels(ctx, "plain", "")
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, plain, "3000").Output()
	if err != nil {
		return nil, fmt.Errorf("time the kernels: %w", err)
	}
	truth := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var name string
		var ns [2]float64
		if _, err := fmt.Sscan(lines.Text(), &name, &ns[0], &ns[1]); err != nil {
			return nil, fmt.Errorf("a line %q of the kernels: %w", lines.Text(), err)
		}
		truth[name] = 100 * (1 - ns[1]/ns[0])
	}
	for _, t := range trials {
		results = append(results, speedup{string(t), truth[string(t)], map[string]finding{}})
	}
	// Points in short inner loops would take longer than the loops: the paper's selectLoops leaves
	// those out.
	chosen := filepath.Join(b.dir, "chosen")
	if err := os.WriteFile(chosen, []byte(strings.Join(kernels, ":1\n")+":1\n"), 0o600); err != nil {
		return nil, err
	}
	built := map[string]string{}
	for _, way := range ways {
		path := built[way.markers]
		if path == "" {
			if path, err = b.buildKernels(ctx, way.markers, way.markers+",timers,version=%d,select="+
				chosen); err != nil {
				return nil, err
			}
			built[way.markers] = path
		}
		for _, r := range results {
			f, err := b.audit(ctx, path, r.kernel, way.loops)
			if err != nil {
				return nil, err
			}
			r.found[way.name] = f
			fmt.Fprintf(b.out, "%s, %s: %.1f %% ± %.1f (%s), %.1f in truth\n", r.kernel, way.name, f.percent, f.within,
				f.verdict, r.truth)
		}
	}
	return results, nil
}

// buildKernels compiles both versions of the kernels, and a program that runs them.
func (b bench) buildKernels(ctx context.Context, as, markers string) (string, error) {
	path := filepath.Join(b.dir, "speedups-"+as)
	testdata := filepath.Join(b.root, "tests/llvm/testdata")
	var objects []string
	for version, level := range []string{"-O1", "-O3"} {
		object := fmt.Sprintf("%s-%d.o", path, version)
		with := markers
		if with != "" {
			with = fmt.Sprintf(with, version)
		}
		if err := b.compile(ctx, with, level, "-g", "-c", "-o", object,
			filepath.Join(testdata, "kernels.c")); err != nil {
			return "", err
		}
		rename := []string{}
		for _, k := range kernels {
			rename = append(rename, fmt.Sprintf("--redefine-sym=%s=%s_v%d", k, k, version))
		}
		if out, err := exec.CommandContext(ctx, "objcopy", append(rename, object)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("rename the kernels: %w\n%s", err, out)
		}
		objects = append(objects, object)
	}
	args := append([]string{"-O2", "-w", "-pthread", "-I" + filepath.Join(b.root, "contrib/guest"), "-o", path,
		filepath.Join(testdata, "speedups.c")}, objects...)
	return path, b.compile(ctx, "", args...)
}

// What audit says first.
var (
	decidedLine   = regexp.MustCompile(`^version 1\b.* is ([0-9.]+) % ± ([0-9.]+) (slower|faster) than version 0`)
	undecidedLine = regexp.MustCompile(`^(undecided|no difference that matters): .* ([+-][0-9.]+) % ± ([0-9.]+)`)
)

// scores reads the table of audit: of invocations, or of method and loops together.
func (f *finding) scores(output string, loops bool) {
	of := "invocation"
	if loops {
		of = "together"
	}
	var timings, perturb, converge []string
	for line := range strings.Lines(output) {
		if words := strings.Fields(line); len(words) == 10 && words[0] == of {
			timings, perturb, converge = append(timings, words[2]), append(perturb, words[8]),
				append(converge, words[9])
		}
	}
	f.timings, f.perturb, f.converge = strings.Join(timings, " + "), strings.Join(perturb, " / "),
		strings.Join(converge, " / ")
}

// audit runs the program and audits a kernel.
func (b bench) audit(ctx context.Context, path, kernel string, loops bool) (f finding, err error) {
	socket := filepath.Join(b.dir, "guest.sock")
	guest := exec.CommandContext(ctx, path)
	guest.Env = append(os.Environ(), "VMPROF_SOCKET="+socket)
	in, err := guest.StdinPipe()
	if err != nil {
		return f, err
	}
	if err := guest.Start(); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, in.Close(), guest.Wait()) }()
	args := []string{"audit", "-p", strconv.Itoa(guest.Process.Pid), "--method", kernel, "--guest-socket", socket, "-d",
		b.length}
	if loops {
		args = append(args, "--loops")
	}
	out, err := exec.CommandContext(ctx, b.agent.Path, args...).CombinedOutput()
	if err != nil && strings.Contains(string(out), "too short to time") {
		return finding{verdict: "refused: too short"}, nil
	}
	if err != nil {
		return f, fmt.Errorf("audit %s: %w\n%s", kernel, err, out)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	f.scores(string(out), loops)
	if m := decidedLine.FindStringSubmatch(line); m != nil {
		f.verdict = m[3]
		f.percent, _ = strconv.ParseFloat(m[1], 64)
		f.within, _ = strconv.ParseFloat(m[2], 64)
		if f.verdict == "slower" {
			f.percent = -f.percent
		}
		return f, nil
	}
	if m := undecidedLine.FindStringSubmatch(line); m != nil {
		f.verdict = map[string]string{"undecided": "undecided", "no difference that matters": "the same"}[m[1]]
		f.percent, _ = strconv.ParseFloat(m[2], 64)
		f.within, _ = strconv.ParseFloat(m[3], 64)
		f.percent = -f.percent // audit says by how much version 1 is slower
		return f, nil
	}
	return finding{verdict: "none"}, nil
}
