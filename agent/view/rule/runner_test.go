package rule

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// window has 64 samples of a 128th of a second: 48 of them below Json.write, and 640 allocated
// bytes.
func window() *profile.Profile {
	tree := new(cct.Tree[symbol.Symbol])
	run, json := symbol.Intern(symbol.Frame{Function: "Main.run"}), symbol.Intern(symbol.Frame{Function: "Json.write"})
	tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "String.hash"}), json, run}, 32)
	tree.Add([]symbol.Symbol{json, run}, 16)
	tree.Add([]symbol.Symbol{run}, 16)
	return &profile.Profile{
		Duration: 10 * time.Second, Period: time.Second / 128,
		Processes: []*profile.Process{{PID: 1, Comm: "java", Service: "shop",
			Threads: []*profile.Thread{{TID: 1, Name: "main", Tree: tree}},
			Events: []*profile.Events{{Kind: profile.Allocations, Rows: []profile.EventRow{
				{EventLabels: profile.EventLabels{Class: "com.acme.Cart"}, Events: 1,
					Values: [profile.MaxEventValues]float64{2, 640}}}}}}},
	}
}

func runner(t *testing.T, texts ...string) *Runner {
	t.Helper()
	var rules []*Rule
	for _, text := range texts {
		r, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	r, err := NewRunner(rules, []sink.Content{sink.Time, sink.OfEvents(profile.Allocations)},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRunner(t *testing.T) {
	r := runner(t, `json: sum(cpu) where stack.anyMatches("^Json")`,
		`share: share(samples) by service where stack.anyMatches("^Json")`,
		`carts: sum(alloc_space) by class`, `none: share(cpu) where pid == 2`, `bad: sum(cpu) where labels["x"] == ""`)
	r.window(window())
	r.window(window())
	states := r.States()
	if s := states[0]; s.Unit != "seconds" || s.Sums[""] != 2*48./128 {
		t.Errorf("%+v", s)
	}
	if s := states[1]; s.Unit != "" || s.Shares["shop"] != 0.75 {
		t.Errorf("%+v", s)
	}
	if s := states[2]; s.Unit != "bytes" || s.Sums["com.acme.Cart"] != 1280 {
		t.Errorf("%+v", s)
	}
	if s := states[3]; len(s.Shares) != 1 || s.Shares[""] != 0 {
		t.Errorf("%+v", s)
	}
	if s := states[4]; s.Failures[FailedError] != 2 || len(s.Sums) != 0 {
		t.Errorf("%+v", s)
	}
}

// A rule says what report says of the same window.
func TestRuleIsReport(t *testing.T) {
	p, err := sink.Pprof(window(), sink.Time)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(`json: share(samples) where stack.anyMatches("^Json[.]write$")`)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := r.Evaluate(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.Methods(&text, p, nil); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[4] == "Json.write" {
			if fields[2] != "75.0%" || fields[3] != "48" || sums.Groups[""] != 48 ||
				math.Abs(sums.Groups[""]/sums.All-0.75) > 1e-9 {
				t.Errorf("report has %q, the rule %+v", line, sums)
			}
			return
		}
	}
	t.Errorf("no Json.write in\n%s", &text)
}

// A window that comes too early is lost, and counted. The last one is evaluated when all ends.
func TestBusy(t *testing.T) {
	r := runner(t, `all: sum(cpu)`)
	r.Observe(window())
	r.Observe(window())
	ended, end := context.WithCancel(t.Context())
	end()
	if err := r.Run(ended); err != nil {
		t.Fatal(err)
	}
	if s := r.States()[0]; s.Failures[FailedBusy] != 1 || s.Sums[""] != 0.5 {
		t.Errorf("%+v", s)
	}
}

func TestNewRunnerErrors(t *testing.T) {
	parse := func(text string) *Rule {
		r, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, tt := range []struct {
		rules []*Rule
		want  string
	}{
		{[]*Rule{parse("a: sum(cpu)"), parse("a: sum(samples)")}, "two rules have the name a"},
		{[]*Rule{parse("a: sum(delay)")}, "delay, which is not recorded: use one of samples, cpu, or record more " +
			"with -e"},
		{make([]*Rule, MaxRules+1), "at most 32"},
	} {
		if _, err := NewRunner(tt.rules, []sink.Content{sink.Time}, nil); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want an error with %q", err, tt.want)
		}
	}
}
