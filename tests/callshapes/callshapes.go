// Package callshapes has programs of many shapes that count their own calls: event loops, pools,
// requests that park, batches, recursion, interpreters, schedules, phases. The intervals of a call
// profile are compared with these counts.
package callshapes

import (
	"bufio"
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

//go:embed java
var sources embed.FS

// Shapes are the names of the programs.
var Shapes = []string{"event-loop", "pool", "requests", "batch", "tree", "interpreter", "schedule", "phases", "matrix"}

// An Edge is a caller and a callee, as profiles name them.
type Edge struct{ Caller, Callee string }

// A Program is a running one.
type Program struct {
	process *exec.Cmd
	ended   chan error

	mu    sync.Mutex
	edges []Edge
	lines []line
}

// A line is what was counted until a time.
type line struct {
	at     int64 // since 1970, nanoseconds
	counts []float64
}

// Start starts a program, which runs for at most the given time.
func Start(ctx context.Context, jdk jvm.JDK, shape string, most time.Duration, flags ...string) (*Program, error) {
	java, err := fs.Sub(sources, "java")
	if err != nil {
		return nil, err
	}
	classes, err := jdk.Compile(ctx, jvm.Build{Sources: java, Release: jvm.MinVersion})
	if err != nil {
		return nil, err
	}
	process, err := jvm.Process(ctx, jvm.Command{
		JDK: jdk, Flags: append([]string{"-Xmx256m"}, flags...), Classpath: []string{classes}, Main: "CallShapes",
		Args: []string{shape, fmt.Sprint(int(most.Seconds()))},
	})
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open the counts of %s: %w", shape, err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", shape, err)
	}
	p := &Program{process: process, ended: make(chan error, 1)}
	go func() {
		for text := bufio.NewScanner(out); text.Scan(); {
			p.read(text.Text())
		}
		p.ended <- process.Wait()
	}()
	return p, nil
}

func (p *Program) read(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	words := strings.Fields(text)
	if len(words) == 3 && words[0] == "edge" {
		p.edges = append(p.edges, Edge{words[1], words[2]})
		return
	}
	if len(words) != 1+len(p.edges) {
		return
	}
	var l line
	l.at, _ = strconv.ParseInt(words[0], 10, 64)
	for _, w := range words[1:] {
		n, _ := strconv.ParseFloat(w, 64)
		l.counts = append(l.counts, n)
	}
	p.lines = append(p.lines, l)
}

// PID is the process's id.
func (p *Program) PID() int { return p.process.Process.Pid }

// Wait lets the program run for some time. It fails if the program ends.
func (p *Program) Wait(ctx context.Context, length time.Duration) error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return fmt.Errorf("the program ended: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}

// Close ends the program.
func (p *Program) Close() {
	_ = p.process.Process.Kill()
	<-p.ended
}

// Truth returns how often each edge was called during a profile's recording. The last counts must
// have been printed after its end.
func (p *Program) Truth(of *pprof.Profile) (map[Edge]float64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	began, err := p.at(of.TimeNanos)
	if err != nil {
		return nil, err
	}
	ended, err := p.at(of.TimeNanos + of.DurationNanos)
	if err != nil {
		return nil, err
	}
	truth := map[Edge]float64{}
	for i, e := range p.edges {
		if n := ended[i] - began[i]; n > 0 {
			truth[e] += n
		}
	}
	return truth, nil
}

// at interpolates between lines.
func (p *Program) at(when int64) ([]float64, error) {
	for i := 1; i < len(p.lines); i++ {
		before, after := &p.lines[i-1], &p.lines[i]
		if before.at <= when && when <= after.at {
			part := float64(when-before.at) / float64(max(after.at-before.at, 1))
			counts := make([]float64, len(p.edges))
			for e := range counts {
				counts[e] = before.counts[e] + part*(after.counts[e]-before.counts[e])
			}
			return counts, nil
		}
	}
	return nil, fmt.Errorf("there are %d lines of counts, none about %v", len(p.lines), time.Unix(0, when))
}

// A Judged is an edge of a program with what a profile says of it. Without an interval, High is 0.
type Judged struct {
	Edge
	Truth, Value, Low, High float64
	Bases                   string
}

// Held reports whether the truth is in the interval. The ends of a recording are known to 20 ms.
func (j *Judged) Held() bool { return 1.01*j.Truth+1 >= j.Low && 0.99*j.Truth-1 <= j.High }

// Factor is by how much the rate may be off, by its interval.
func (j *Judged) Factor() float64 { return math.Sqrt(j.High / max(j.Low, 1)) }

// Judge compares a profile with the truth, the most frequent edges first. The ends of an edge's
// interval are the sums of those of its call sites. An interval with a part that is not measured is
// none.
func Judge(of *pprof.Profile, truth map[Edge]float64) ([]Judged, error) {
	column := slices.IndexFunc(of.SampleType, func(t *pprof.ValueType) bool { return t.Type == "calls" })
	if column < 0 {
		return nil, fmt.Errorf("the profile has no calls")
	}
	found := map[Edge]*Judged{}
	for e, n := range truth {
		found[e] = &Judged{Edge: e, Truth: n}
	}
	unknown := map[Edge]bool{}
	for _, s := range of.Sample {
		var frames []string
		for _, l := range s.Location {
			for _, at := range l.Line {
				frames = append(frames, at.Function.Name)
			}
		}
		if len(frames) < 2 {
			continue
		}
		e := Edge{frames[1], frames[0]}
		j := found[e]
		if j == nil {
			continue
		}
		factor := 1.
		if f := s.NumLabel[stored.LabelFactor]; len(f) > 0 {
			factor = float64(f[0]) / 100
		}
		basis := strings.Join(s.Label[stored.LabelBasis], ",")
		if !strings.Contains(j.Bases, basis) {
			j.Bases = strings.TrimPrefix(j.Bases+","+basis, ",")
		}
		if basis == profile.Unmeasured.String() {
			unknown[e] = true
			continue
		}
		v := float64(s.Value[column])
		j.Value += v
		j.Low += v / factor
		j.High += v * factor
	}
	var list []Judged
	for e, j := range found {
		if unknown[e] {
			j.High = 0
		}
		list = append(list, *j)
	}
	slices.SortFunc(list, func(a, b Judged) int {
		return cmp.Or(cmp.Compare(b.Truth, a.Truth), strings.Compare(a.Caller, b.Caller),
			strings.Compare(a.Callee, b.Callee))
	})
	return list, nil
}
