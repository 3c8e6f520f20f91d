package recordings

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// twoDays makes a history of so many windows of ten seconds, and as many a day later in which
// com.acme.Tax.add costs CPU time as well. It returns the directory and when each part begins.
func twoDays(t *testing.T, windows int) (dir string, yesterday, today time.Time) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "history")
	today = time.Now().Add(-time.Hour).Truncate(time.Minute)
	yesterday = today.Add(-24 * time.Hour)
	now := yesterday
	s, err := history.Open(dir, &history.Options{Keep: 48 * time.Hour, Fine: 36 * time.Hour,
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for day, from := range []time.Time{yesterday, today} {
		for i := range windows {
			tree := new(cct.Tree[symbol.Symbol])
			tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Main.hot"})}, 64)
			p := &profile.Profile{Duration: 10 * time.Second, Period: time.Second / 128,
				Processes: []*profile.Process{{PID: 1, Comm: "java", Service: "shop", Runtime: "hotspot",
					Threads: []*profile.Thread{{TID: 1, Tree: tree}},
					Events: []*profile.Events{{Kind: profile.Allocations, Rows: []profile.EventRow{
						{EventLabels: profile.EventLabels{Class: "com.acme.Cart"}, Events: 1,
							Values: [profile.MaxEventValues]float64{2, 640}}}}}}}}
			main := symbol.Intern(symbol.Frame{Function: "com.acme.Main.run"})
			tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Shop.price"}), main},
				uint64(200+i%7))
			if day == 1 {
				tax := symbol.Intern(symbol.Frame{Function: "com.acme.Tax.add"})
				tree.Add([]symbol.Symbol{tax, main}, uint64(100+i%5))
			} else {
				other := new(cct.Tree[symbol.Symbol])
				other.Add([]symbol.Symbol{main}, 50)
				p.Processes = append(p.Processes, &profile.Process{PID: 2, Comm: "gone", Service: "gone",
					Threads: []*profile.Thread{{TID: 2, Tree: other}}})
			}
			now = from.Add(time.Duration(i) * p.Duration)
			p.Start = now
			if err := s.Add(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir, yesterday, today
}

// What changed since yesterday: by shares of few windows, with a verdict of many.
func TestComparePast(t *testing.T) {
	for _, tt := range []struct {
		windows int
		args    string
		want    []string
	}{
		{4, "", []string{"before: from %s", "0.29    0.21", "shop", "0.00    0.04", "gone", "A: %s",
			"Largest differences", "+27", "com.acme.Tax.add"}},
		{4, "--service=shop", []string{"new: com.acme.Tax.add under com.acme.Main.run, 0 → 27.7 % of the samples",
			"shop", "+27", "com.acme.Tax.add"}},
		{4, "-e alloc", []string{"alloc_space by method"}},
		{30, "--service=shop", []string{"B uses ", "more CPU than A", "30 + 30 windows",
			"new: com.acme.Tax.add under com.acme.Main.run, 0 → 27"}},
	} {
		dir, yesterday, today := twoDays(t, tt.windows)
		to := today.Add(time.Duration(tt.windows) * 10 * time.Second)
		page := filepath.Join(t.TempDir(), "diff.html")
		for _, against := range []string{"", "--baseline=24h", "--baseline=24h --baseline-to=23h"} {
			args := fmt.Sprintf("compare --history-dir=%s --from=%d --to=%d %s %s -o %s", dir, today.Unix(), to.Unix(),
				against, tt.args, page)
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 0 {
				t.Fatalf("%s: %d, %s", args, code, &stderr)
			}
			for _, want := range tt.want {
				if strings.Contains(want, "%s") {
					want = fmt.Sprintf(want, yesterday.Format(time.DateTime))
				}
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("%s: no %q in\n%s", args, want, &stdout)
				}
			}
			if !strings.Contains(stdout.String(), "written to ") {
				t.Errorf("%s: no page in\n%s", args, &stdout)
			}
		}
	}
}

// Where a part of the history is damaged, report and compare show the rest and say what is missing.
func TestDamagedPast(t *testing.T) {
	dir, _, today := twoDays(t, 4)
	file := filepath.Join(dir, "00000000.0")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2-100] ^= 4 // in the last window but one of yesterday
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		fmt.Sprintf("compare --history-dir=%s --from=%d --to=%d", dir, today.Unix(), today.Unix()+
			40): "A: a part of the history is missing: damaged from ",
		fmt.Sprintf("report --history-dir=%s --from=%d --to=%d", dir, today.Unix()-86400,
			today.Unix()): "status: incomplete: a part of the history is missing: damaged from ",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 0 ||
			!strings.Contains(stdout.String(), want) || !strings.Contains(stdout.String(), "com.acme.Shop.price") {
			t.Errorf("%s: %d, no %q in\n%s%s", args, code, want, &stdout, &stderr)
		}
	}
}

func TestComparePastErrors(t *testing.T) {
	dir, _, today := twoDays(t, 4)
	from := fmt.Sprintf("compare --history-dir=%s --from=%d --to=%d ", dir, today.Unix(), today.Unix()+40)
	for args, want := range map[string]string{
		"compare --baseline=24h a b": "--baseline needs --from",
		"compare -e alloc a b":       "--event needs --from",
		"compare --service=shop a b": "--service needs --from",
		from + "a.pb.gz":             "remove a.pb.gz",
		from + "--windows=1,2":       "give a shorter time",
		from + "-d 5":                "are for URLs",
		from + "-e sunshine":         "choose one of cpu",
		from + "--baseline=noon":     "--baseline: bad time",
		from + "--baseline=30s --baseline-to=2027-01-01T10:00": "overlap",
		from + "--by=total":     "a verdict needs 20 windows a side, and the history has 4 of A and 4 of B",
		from + "--service=none": "no service none",
		from + "--baseline=2h":  "keep more with serve --history=96h",
		from + "-e lock":        "nothing to compare",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), io.Discard, &stderr); code == 0 ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("%s: %d, %q, want %q", args, code, &stderr, want)
		}
	}
}
