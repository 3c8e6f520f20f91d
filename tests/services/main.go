// Command services records services of the kinds that people run, all kinds of events at once, and
// compares the totals with what each service counted itself. A total must agree, or the status of
// its profile must say that a part was not observed.
//
//	go run ./tests/services                  # every service: three minutes
//	go run ./tests/services -run virtual
//	go run ./tests/services -update          # also rewrites the table and the recording in docs/measurements/services.md
package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os/exec"
	"regexp"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	table "github.com/vmprof-agent/vmprof-agent/tests/report"
)

//go:embed java
var sources embed.FS

// docs is the page that -update rewrites, from the root of the repository.
const docs = "docs/measurements/services.md"

func main() { harness.Main("services", run) }

// A service is one program of java/Services.java.
type service struct {
	name  string
	what  string
	least int      // the oldest JDK that can run it
	flags []string // flags of the JVM
}

var services = []service{
	{"thread-per-request", "300 requests a second, a new thread for each", 17, nil},
	{"pool", "400 requests a second on 64 threads", 17, nil},
	{"bursts", "a cached pool, 150 requests at a time", 17, nil},
	{"virtual", "400 requests a second, a virtual thread for each", 21, nil},
	{"event-loop", "one selector thread, 50 connections", 17, nil},
	{"sockets", "8 connections, a thread for each", 17, nil},
	{"batch", "one thread, saturated", 17, nil},
	{"fork-join", "parallel streams, saturated", 17, []string{"-XX:+UseParallelGC"}},
	{"idle-pool", "100 threads, 70 requests a second", 17, nil},
	{"idle-schedule", "4 threads, 4 requests a second", 17, []string{"-XX:+UseSerialGC"}},
	{"pipeline", "a queue between two stages, 600 items a second", 17, []string{"-XX:-UseTLAB"}},
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("services", "only the first service", docs)
	which := flags.String("run", "", "only services whose name matches the regular expression")
	length := flags.Duration("length", 5*time.Second, "of a recording")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*which)
	if err != nil {
		return fmt.Errorf("parse -run: %w", err)
	}
	jdks, err := jvm.Find(jvm.Root)
	if err != nil {
		return err
	}
	results := table.Table{Header: []string{"service", "JDK", "kind", "by the service", "recorded", "", "status", ""}}
	wrong := 0
	err = o.WithAgent(ctx, func(agent profiler.Agent, _ string) error {
		for _, s := range services {
			if !wanted.MatchString(s.name) {
				continue
			}
			for _, jdk := range jdks {
				if jdk.Version < s.least {
					continue
				}
				fmt.Fprintf(out, "%s, %v\n", s.name, jdk)
				rows, err := s.measure(ctx, agent, jdk, *length)
				if err != nil {
					return fmt.Errorf("%s, %v: %w", s.name, jdk, err)
				}
				for _, r := range rows {
					results.Add(r.cells(s.name, jdk)...)
					if !r.holds() {
						wrong++
					}
				}
			}
			if o.Short {
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := results.Print(out); err != nil {
		return err
	}
	if o.Update && *which == "" {
		if err := table.Update(docs, "services", results.Markdown()); err != nil {
			return err
		}
		if err := o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
			text, err := firstRecording(ctx, agent, jdks[len(jdks)-1], dir)
			if err != nil {
				return err
			}
			return table.Update(docs, "pool recording", "```\n"+text+"```\n")
		}); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d totals disagree, and their status does not say so", wrong)
	}
	return nil
}

// A result is one kind of one service.
type result struct {
	kind      string
	unit      string
	truth     float64
	printed   float64
	low, high float64 // bounds of the printed interval; calls have one of their own
	// probes is how many ns the probes of locks took. Waits that a service times itself include it,
	// recorded ones do not.
	probes float64
	said   bool // the report says that there are too few draws for an interval, or that it lacks such calls
	status string
}

// holds reports whether the total is right: within 5 % or within its interval, or admitted to be a
// part. Amounts below the noise of clocks and of the ends of a recording are ignored, and so is a
// deficit that the probes themselves may have caused.
func (r *result) holds() bool {
	least := map[string]float64{stored.UnitTime: 50e6, stored.UnitBytes: 1e6, stored.UnitCount: 100}[r.unit]
	off := math.Abs(r.printed - r.truth)
	return off <= max(0.05*r.truth, least) || r.printed < r.truth && off <= r.probes || r.low <= r.truth &&
		r.truth <= r.high || r.said || r.admits()
}

var admitting = regexp.MustCompile(`^status: (partial|nothing observed|incomplete|coarse|empty|approximate)`)

func (r *result) admits() bool { return admitting.MatchString(r.status) }

func (r *result) cells(name string, jdk jvm.JDK) []string {
	verdict := "ok"
	if !r.holds() {
		verdict = "WRONG"
	} else if r.said || r.admits() {
		verdict = "said"
	}
	off := "-"
	if r.truth > 0 {
		off = fmt.Sprintf("%+.1f %%", 100*(r.printed/r.truth-1))
	}
	return []string{name, fmt.Sprint(jdk.Version), r.kind, stored.ExtentAmount(r.unit, r.truth),
		stored.ExtentAmount(r.unit, r.printed), off, r.status, verdict}
}

// start starts the service.
func (s *service) start(ctx context.Context, jdk jvm.JDK) (*running, error) {
	java, err := fs.Sub(sources, "java")
	if err != nil {
		return nil, err
	}
	classes, err := jdk.Compile(ctx, jvm.Build{Sources: java, Release: jvm.MinVersion})
	if err != nil {
		return nil, err
	}
	return startService(ctx, jvm.Command{
		JDK: jdk, Flags: append([]string{"-Xmx512m"}, s.flags...), Classpath: []string{classes}, Main: "Services",
		Args: []string{s.name},
	})
}

// measure records a service twice: all kinds of events at once, and calls.
func (s *service) measure(
	ctx context.Context, agent profiler.Agent, jdk jvm.JDK, length time.Duration,
) ([]result, error) {
	g, err := s.start(ctx, jdk)
	if err != nil {
		return nil, err
	}
	defer g.stop()
	if err := g.warm(ctx, 4*time.Second); err != nil {
		return nil, err
	}
	events, err := agent.Record(ctx, profiler.Options{PID: g.pid(), Duration: length,
		Extra: []string{"-e", "cpu,alloc,lock,wall"}})
	if err != nil {
		return nil, err
	}
	calls, err := agent.Record(ctx, profiler.Options{PID: g.pid(), Duration: length, Extra: []string{"-e", "calls"}})
	if err != nil {
		return nil, err
	}
	if err := g.warm(ctx, time.Second); err != nil { // the last lines of the ledger
		return nil, err
	}
	var results []result
	for _, k := range kinds {
		p := events.Kinds[k.file]
		if k.file == "calls" {
			p = calls.Profile
		}
		if p == nil {
			return nil, fmt.Errorf("no file of %s: %v", k.file, errors.ErrUnsupported)
		}
		r, err := k.compare(g, p)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// A kind is a total to compare.
type kind struct {
	name   string
	file   string // file of the recording
	column string // column of values
	under  string // the method below which they count; "" for all
	ledger int    // column of the service's accounts
	unit   string
}

var kinds = []kind{
	{"CPU time", "cpu", "cpu", "", ledgerCPU, stored.UnitTime},
	{"bytes allocated in fill", "alloc", "alloc_space", "Services.fill", ledgerBytes, stored.UnitBytes},
	{"waits for locks", "lock", "delay", "Services.under", ledgerWaited, stored.UnitTime},
	{"time asleep in nap", "wall", "wall", "Services.nap", ledgerSlept, stored.UnitTime},
	{"calls of request", "calls", "calls", "Services.request", ledgerRequests, stored.UnitCount},
}

// compare compares a profile with the accounts for its time.
func (k *kind) compare(g *running, p *pprof.Profile) (result, error) {
	began := p.TimeNanos
	before, err := g.at(began, k.ledger)
	if err != nil {
		return result{}, err
	}
	after, err := g.at(began+p.DurationNanos, k.ledger)
	if err != nil {
		return result{}, err
	}
	r := result{kind: k.name, unit: k.unit, truth: after - before, status: statusOf(p)}
	r.printed, r.low, r.high = k.sum(p)
	switch k.file {
	case "lock":
		if m, err := stored.MetadataOf(p); err == nil && m.Events != nil {
			r.probes = float64(m.Events.Counts.Cost)
		}
	case "calls":
		var text bytes.Buffer
		if err := report.Edges(&text, p, &layout.Options{Width: 1 << 10}); err != nil {
			return result{}, err
		}
		r.said = r.printed == 0 && strings.Contains(text.String(), "compiled into their callers are not in")
	case "wall": // the row of the method has an interval of its own
		var text bytes.Buffer
		if err := eventviews.Wall(&text, p, &layout.Options{}); err != nil {
			return result{}, err
		}
		if row, ok := events.Intervals(text.String())[k.under]; ok {
			within := float64(row.Within)
			r.low, r.high, r.said = r.printed-within, r.printed+within, !row.Known
		}
	}
	return r, nil
}

// sum adds up what the profile has below the method. Calls are those of the method itself, with the
// interval of each edge.
func (k *kind) sum(p *pprof.Profile) (sum, low, high float64) {
	column := -1
	for i, t := range p.SampleType {
		if t.Type == k.column {
			column = i
		}
	}
	if column < 0 {
		return 0, 0, 0
	}
	for _, s := range p.Sample {
		v := float64(s.Value[column])
		if k.under != "" && !below(s, k.under, k.file == "calls") {
			continue
		}
		factor := 1.0
		if f := s.NumLabel[stored.LabelFactor]; len(f) > 0 {
			factor += float64(f[0]) / 100
		}
		sum += v
		low += v / factor
		high += v * factor
	}
	if m, err := stored.MetadataOf(p); err == nil && k.file != "calls" {
		within, total := 0.0, 0.0
		for i := range m.Totals {
			total += m.Totals[i].Sum
			within += float64(m.Totals[i].Within)
		}
		if total > 0 {
			low, high = sum*(1-within/total), sum*(1+within/total)
		}
	}
	return sum, low, high
}

// below reports whether a stack contains a method whose name begins so, or has it innermost.
func below(s *pprof.Sample, method string, innermost bool) bool {
	for i, l := range s.Location {
		for _, line := range l.Line {
			if f := line.Function; f != nil && len(f.Name) >= len(method) && f.Name[:len(method)] == method {
				return true
			}
		}
		if innermost && i == 0 {
			return false
		}
	}
	return false
}

// statusOf is the status line of a profile.
func statusOf(p *pprof.Profile) string { return report.Status(p) }

// firstRecording is what a terminal shows of a first recording: of the service with a pool.
func firstRecording(ctx context.Context, agent profiler.Agent, jdk jvm.JDK, dir string) (string, error) {
	g, err := (&services[1]).start(ctx, jdk)
	if err != nil {
		return "", err
	}
	defer g.stop()
	if err := g.warm(ctx, 10*time.Second); err != nil {
		return "", err
	}
	args := []string{"record", "-p", "Services", "-d", "10", "-e", "cpu,lock", "-o", "shop"}
	record := exec.CommandContext(ctx, agent.Path, args...)
	record.Dir = dir
	out, err := record.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", record, err, out)
	}
	return "$ sudo vmprof-agent " + strings.Join(args, " ") + "\n" + string(out), nil
}
