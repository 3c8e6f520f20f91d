package recordings

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// storedCalls writes a profile of calls: run calls that many hot and cold methods, from the same
// site.
func storedCalls(t *testing.T, hot, cold float64) string {
	t.Helper()
	method := func(name string) symbol.Symbol { return symbol.Intern(symbol.Frame{Function: name}) }
	g := new(profile.Graph)
	for name, weight := range map[string]float64{"com.acme.Hot.go": hot, "java.util.Cold.go": cold} {
		g.Add(profile.Edge{Caller: method("com.acme.Main.run"), Site: profile.Site{Line: 7, Offset: 3},
			Callee: method(name)}, weight)
	}
	p := &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Engine: "page", Graph: g}}}}}
	path := filepath.Join(t.TempDir(), "calls.pb.gz")
	if err := sink.Write(path, nil, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompare(t *testing.T) {
	timed, a, b, windows := storedProfile(t), storedCalls(t, 90, 10), storedCalls(t, 8, 2), storedWindows(t)
	directory := filepath.Dir(windows)
	allocations := storedEvents(t, profile.Allocations)
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{timed, timed}, []string{"Comparison of samples by method", "overlap       100.00", "No share differs",
			"A and B are the same recording"}},
		{[]string{a, b}, []string{"Comparison of calls by method", "A: " + a[:10], "overlap        90.00",
			"-10.00%  com.acme.Hot.go"}},
		{[]string{"--by=edge", a, b}, []string{"by edge", "+10.00%  com.acme.Main.run:7 -> java.util.Cold.go"}},
		{[]string{"--by=edge", "--ignore-sites", a, b}, []string{"com.acme.Main.run -> java.util.Cold.go"}},
		{[]string{"--by=edge", "-n", "1", a, b}, []string{"1 smaller difference\n"}},
		{[]string{"--by=class", allocations, allocations}, []string{"Comparison of alloc_space by class",
			"6.0MB allocated, 1 class\n", "overlap       100.00"}},
		{[]string{"--by=context", "--sample-type=samples", timed, timed}, []string{"Comparison of samples by context"}},
		{[]string{"--engine=page", a, b}, []string{"overlap        90.00"}},
		{[]string{windows}, []string{"how well each of 2 windows predicts the next", "1, 2", "60.00"}},
		{[]string{"--ignore-sites", windows}, []string{"edges: the innermost calls;"}},
		{[]string{"--windows=2,1", windows}, []string{"A: " + windows[:10], "window 2, 10", "overlap        60.00",
			"+40.00%  com.acme.Main.hot"}},
		{[]string{"--windows=1,2", "--by=context", windows}, []string{"by context", "overlap        60.00"}},
		{[]string{windows, windows}, []string{"Shares are compared: a verdict needs at least 20 windows a side",
			"overlap       100.00", "A and B are the same recording"}},
		{[]string{"--per=200:100", windows, windows}, []string{"Undecided whether B is faster or slower than A: ",
			"ms of CPU per unit"}},
		{[]string{"--per=seconds", "--alpha=0.05", windows, windows}, []string{"2 + 2 windows"}},
		{[]string{windows, "--", windows, windows}, []string{"2 + 4 windows", "one side has only one process"}},
		{[]string{directory, directory}, []string{"2 + 2 windows"}},
		{[]string{"--by=total", windows, windows}, []string{"by total"}},
	} {
		var stdout, stderr bytes.Buffer
		if err := Compare(context.Background(), test.args, &stdout, &stderr); err != nil {
			t.Errorf("compare %q: %v", test.args, err)
		}
		for _, want := range test.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("compare %q has no %q:\n%s", test.args, want, &stdout)
			}
		}
	}
}

// storedWindows writes a profile of two windows, in which hot is 9 times of 10 and half the
// samples.
func storedWindows(t *testing.T) string {
	t.Helper()
	windows := sink.NewWindows(sink.Time)
	for i, hot := range []uint64{9, 5} {
		tree := new(cct.Tree[symbol.Symbol])
		for name, weight := range map[string]uint64{"com.acme.Main.hot": hot, "com.acme.Main.cold": 10 - hot} {
			tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: name})}, weight)
		}
		p := &profile.Profile{
			Start: time.Unix(1_700_000_000+10*int64(i), 0), Duration: 10 * time.Second, Period: 10 * time.Millisecond,
			Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{TID: 1, Tree: tree}}}},
			Counts:    profile.Counts{Folded: 10},
		}
		if err := windows.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := windows.Profile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "windows.pb.gz")
	if err := sink.WriteStored(path, nil, stored); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompareErrors(t *testing.T) {
	timed, called, windows := storedProfile(t), storedCalls(t, 1, 1), storedWindows(t)
	for _, test := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{nil, "name two files, or one file with windows", true},
		{[]string{timed, timed, timed}, "name two files", true},
		{[]string{timed}, "name two files, or record with --window=10s", false},
		{[]string{"--windows=1,2", timed},
			"the profile has no windows: record some with vmprof-agent record --window=10s", false},
		{[]string{"--windows=1,3", windows}, "there is no window 3: the profile has 2, from 1 to 2", false},
		{[]string{"--windows=1,2", windows, windows}, "--windows is for one file", true},
		{[]string{"--windows=1", windows}, "the numbers of two windows", true},
		{[]string{"--windows=1,2,3", windows}, "the numbers of two windows", true},
		{[]string{"--windows=0,1", windows}, "the numbers of two windows", true},
		{[]string{"--windows=one,two", windows}, "invalid argument", true},
		{[]string{"--by=edge", windows}, "--by is for two profiles", true},
		{[]string{"--ignore-sites", "--windows=1,2", windows}, "--ignore-sites is for --by=edge", true},
		{[]string{"--by=frame", timed, timed}, `cannot compare by "frame": choose method, edge, context or class`,
			true},
		{[]string{"--by=class", timed, timed}, "--by=class needs allocations (record -e alloc)", false},
		{[]string{"--ignore-sites", timed, timed}, "--ignore-sites is for --by=edge", true},
		{[]string{"-n", "-1", timed, timed}, "at least 0", true},
		{[]string{"--", timed}, "name recordings on both sides of --", true},
		{[]string{timed, timed, "--"}, "name recordings on both sides of --", true},
		{[]string{"--per=1", timed}, "name both sides to compare", true},
		{[]string{filepath.Dir(timed)}, "name two files", false},
		{[]string{"--per=fortnight", timed, timed}, "cannot compare per", true},
		{[]string{"--alpha=0", timed, timed}, "--alpha needs", true},
		{[]string{"--least=0", timed, timed}, "--least needs", true},
		{[]string{"--until=decided", timed, timed}, "for URLs of serve", true},
		{[]string{"--until=now", "http://a", "http://b"}, "--until has one value", true},
		{[]string{"-d", "5", "http://a", "http://b"}, "-d needs at least 20 s", true},
		{[]string{"http://a", timed}, "name one URL a side", true},
		{[]string{t.TempDir(), timed}, "has no recordings", false},
		{[]string{timed, filepath.Join(t.TempDir(), "missing.pb.gz")}, "no such file", false},
		{[]string{timed, called}, "record both in the same way", false},
		{[]string{"--engine=listener", called, called}, "has no calls of engine listener", false},
	} {
		var stdout, stderr bytes.Buffer
		err := Compare(context.Background(), test.args, &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), test.want) || cli.IsMisuse(err) != test.usage {
			t.Errorf("compare %q = %v, want an error with %q, usage %v", test.args, err, test.want, test.usage)
		}
		if stdout.Len() > 0 {
			t.Errorf("compare %q fails but prints %q", test.args, &stdout)
		}
	}
}

func TestCompareHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if err := Compare(context.Background(), []string{"--help"}, &stdout, &stderr); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"Usage: vmprof-agent compare", "--by", "--sample-type", "--engine", "--ignore-sites",
		"--windows", "--per", "--alpha", "--least", "--until", "--number", "--width"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the help does not mention %s:\n%s", want, &stderr)
		}
	}
}

// Two addresses of serve are recorded at the same time; a failure is reported without the password.
func TestCompareURLs(t *testing.T) {
	second, err := input.ReadFile(storedProfile(t))
	if err != nil {
		t.Fatal(err)
	}
	var (
		mutex sync.Mutex
		asked = make(map[string]int64)
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/profiles/cpu" || r.URL.Query().Get("seconds") != "1" {
			http.Error(w, "no such profile", http.StatusNotFound)
			return
		}
		mutex.Lock()
		defer mutex.Unlock()
		asked[r.URL.RawQuery]++
		second.TimeNanos, second.DurationNanos = 1e9*asked[r.URL.RawQuery], 1e9
		second.Write(w)
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	if err := Compare(t.Context(), []string{"-d", "20", server.URL, server.URL + "/?pid=7"}, &stdout,
		&stderr); err != nil {
		t.Fatal(err)
	}
	if asked["seconds=1"] != 20 || asked["pid=7&seconds=1"] != 20 ||
		!strings.Contains(stdout.String(), "20 + 20 windows") {
		t.Errorf("requests %v\n%s", asked, &stdout)
	}
	stdout.Reset()
	if err := Compare(t.Context(), []string{"--until=decided", server.URL, server.URL}, &stdout,
		&stderr); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stdout.String(), "20 + 20 windows") ||
		!strings.Contains(stderr.String(), "decided after 20 s") ||
		!strings.Contains(stderr.String(), "A and B are the same address") {
		t.Errorf("%s%s", &stdout, &stderr)
	}
	at := filepath.Join(t.TempDir(), "a.sock")
	socket, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	local := httptest.NewUnstartedServer(server.Config.Handler)
	local.Listener.Close()
	local.Listener = socket
	local.Start()
	defer local.Close()
	address, err := windowURL("unix:" + at)
	if err != nil || address.name != "unix:"+at+":/profiles/cpu?seconds=1" {
		t.Errorf("%+v, %v", address, err)
	}
	if named, err := fetchWindow(t.Context(), address); err != nil || named.Profile == nil {
		t.Errorf("from a Unix socket: %v", err)
	}
	secret := strings.Replace(server.URL, "http://", "http://me:secret@", 1) + "/profiles/none"
	err = Compare(t.Context(), []string{secret, server.URL}, &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "no such profile") || strings.Contains(err.Error(), "secret") {
		t.Errorf("compare = %v", err)
	}
}
