package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// Rates and times. The kernel checks the runtime's timers at its own ticks: it gives no more than
// 250 samples a second. Without preemption by signals, as these come at the same ticks: up to a
// third of the runtime's samples would be of the handler of those.
const (
	agentRate   = "999"
	runtimeRate = "250"
	environment = "GODEBUG=asyncpreemptoff=1"
	rounds      = 9
)

// goCommand returns what the go command prints.
func (b bench) goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = b.root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// build builds a program and returns its path, and what the compiler said it does because of the
// profile.
func (b bench) build(ctx context.Context, p program, name, profile string) (path string, said decisions, err error) {
	path = filepath.Join(b.dir, p.name+"-"+name)
	args := []string{"build", "-o", path, "-pgo=off"}
	if profile != "" {
		args = []string{"build", "-o", path, "-pgo=" + profile, "-gcflags=all=-m -d=pgodebug=1"}
	}
	text, err := b.goCommand(ctx, append(args, "./tests/gopgo/guests/"+p.name)...)
	return path, readDecisions(text), err
}

// work runs a program for some time, and returns the CPU time of one operation in ns.
func (b bench) work(ctx context.Context, path, length string, args ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, path, append(append([]string{"-d", length}, args...), b.inputs...)...)
	cmd.Env = append(os.Environ(), environment)
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// profiles runs a program, and returns the paths of the agent's profile, of the runtime's of the
// same run, and of the runtime's of another one.
func (b bench) profiles(ctx context.Context, p program, plain, length string) (agent, same, another string, err error) {
	file := func(name string) string { return filepath.Join(b.dir, p.name+"-"+name) }
	agent, same, another = file("agent.pgo"), file("same.pb.gz"), file("another.pb.gz")
	recorded := file("recorded.pb.gz")
	cmd := exec.CommandContext(ctx, b.agent.Path, append([]string{"record", "-F", agentRate, "-o", recorded, "--",
		plain, "-d", length, "-rate", runtimeRate, "-cpuprofile", same}, b.inputs...)...)
	cmd.Env = append(os.Environ(), environment)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", "", fmt.Errorf("record: %w\n%s", err, out)
	}
	if out, err := exec.CommandContext(ctx, b.agent.Path, "advise", "--for=go-pgo", "-o", agent,
		recorded).CombinedOutput(); err != nil {
		return "", "", "", fmt.Errorf("advise: %w\n%s", err, out)
	}
	_, err = b.work(ctx, plain, length, "-rate", runtimeRate, "-cpuprofile", another)
	return agent, same, another, err
}

// compare is the trial.
func (b bench) compare(ctx context.Context, p program) (r result, err error) {
	r.program = p
	plain, _, err := b.build(ctx, p, "plain", "")
	if err != nil {
		return r, err
	}
	length := "60s"
	if b.short {
		length = "3s"
	}
	agent, same, another, err := b.profiles(ctx, p, plain, length)
	if err != nil {
		return r, err
	}
	paths := []string{agent, same, another}
	var calls [3]weights
	for i, path := range paths {
		if calls[i], err = b.calls(ctx, path); err != nil {
			return r, err
		}
	}
	if r.samples, err = samples(agent); err != nil {
		return r, err
	}
	if r.runtime, err = samples(same); err != nil {
		return r, err
	}
	r.weights, r.again = calls[0].overlap(calls[1]), calls[2].overlap(calls[1])
	fmt.Fprintf(b.out, "%s: weights of calls: %s%% the same, %s%% in another run\n", p.name, percent(r.weights),
		percent(r.again))
	if b.short {
		if missing := calls[1].hottest(10, 8).missingIn(calls[0]); len(missing) > 0 {
			return r, fmt.Errorf("the agent's profile has none of the hot calls %v", missing)
		}
		return r, nil
	}
	var built [3]string
	var said [3]decisions
	for i, name := range []string{"agent", "same", "another"} {
		if built[i], said[i], err = b.build(ctx, p, name, paths[i]); err != nil {
			return r, err
		}
	}
	if len(said[1].inlined) == 0 {
		return r, errors.New("the compiler inlines nothing because of the runtime's profile")
	}
	r.inlined, r.direct = agree(said, func(d decisions) lines { return d.inlined }),
		agree(said, func(d decisions) lines { return d.direct })
	fmt.Fprintf(b.out, "%s: inlined %v, direct %v\n", p.name, r.inlined, r.direct)
	return r, b.race(ctx, &r, plain, built[0], built[1])
}

// race runs the three builds in turn.
func (b bench) race(ctx context.Context, r *result, builds ...string) error {
	var ratios [2][]float64
	for range rounds {
		var costs []float64
		for _, path := range builds {
			cost, err := b.work(ctx, path, "3s")
			if err != nil {
				return err
			}
			costs = append(costs, cost)
		}
		for i := range ratios {
			ratios[i] = append(ratios[i], harness.Per(costs[i+1], costs[0]))
		}
	}
	for i := range ratios {
		r.speed[i] = harness.RatioOf(ratios[i])
	}
	fmt.Fprintf(b.out, "%s: CPU time by that of the plain build: %v with the agent's profile, %v with the runtime's\n",
		r.name, r.speed[0], r.speed[1])
	return nil
}

// samples is how many samples a profile has.
func samples(path string) (n int, err error) {
	p, err := profiler.ReadProfile(path)
	if err != nil {
		return 0, err
	}
	for _, s := range p.Sample {
		n += int(s.Value[0])
	}
	return n, nil
}
