package program

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		if err := Main(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func window() *profile.Profile {
	tree := new(cct.Tree[symbol.Symbol])
	tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "Main.run"})}, 64)
	return &profile.Profile{Duration: 10 * time.Second, Period: time.Second / 128,
		Processes: []*profile.Process{{PID: 1, Comm: "java", Threads: []*profile.Thread{{TID: 1, Tree: tree}}}}}
}

// script writes a program where others can run it.
func script(t *testing.T, text string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a program runs as another user, which needs root")
	}
	dir, err := os.MkdirTemp("", "program")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "rule")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// runs starts a script and hands it windows.
func runs(t *testing.T, text string, timeout time.Duration, windows int, kinds ...string) State {
	t.Helper()
	var parts []Part
	for _, kind := range append(kinds, "cpu") {
		parts = append(parts, Part{kind, sink.Time})
	}
	p, err := Start(Options{Path: script(t, text), Timeout: timeout, Memory: DefaultMemory,
		Parts: parts, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	for range windows {
		p.window(window())
	}
	return p.State()
}

// value is that of a series without labels; ok is false if there is none.
func value(s State, name string) (v float64, ok bool) {
	for _, series := range s.Series {
		if series.Name == name && len(series.Labels) == 0 {
			return series.Value, true
		}
	}
	return 0, false
}

// A program gets a profile on standard input, and its counters are added up.
func TestProgram(t *testing.T) {
	s := runs(t, `n=$(gzip -dc | grep -c Main.run)
printf '# TYPE seen_total counter\nseen_total %d\n# TYPE kinds gauge\nkinds{kind="%s"} 1\n' "$n" "$VMPROF_KIND"`, 20*time.Second, 2)
	if n, ok := value(s, "seen_total"); !ok || n != 2 || s.Runs != 2 || len(s.Failed) != 0 {
		t.Errorf("%+v", s)
	}
	if len(s.Series) != 2 || s.Series[0].Labels["kind"] != "cpu" {
		t.Errorf("%+v", s.Series)
	}
}

// It has nothing of the agent: neither its user nor privileges, environment, descriptors or
// processes to see.
func TestConfined(t *testing.T) {
	t.Setenv("SECRET", "x")
	leak, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	s := runs(t, `cat >/dev/null
status() { grep "^$1:" /proc/self/status | tr -s '\t' ' ' | cut -d' ' -f2; }
say() { printf '%s %d\n' "$1" "$2"; }
say uid "$(id -u)"
say groups "$(id -G | wc -w)"
say secret "${#SECRET}"
say no_new_privs "$(status NoNewPrivs)"
for set in CapInh CapPrm CapEff CapBnd CapAmb; do say "$set" "0x$(status $set)"; done
say fds "$(ls /proc/self/fd | wc -w)" # with the directory itself
say first "$(kill -9 1 2>/dev/null; kill -TERM 1 2>/dev/null; echo $?)"
say core "$(ulimit -c)"
`, 20*time.Second, 2)
	if uid, ok := value(s, "uid"); !ok || uid < firstUnused || uid > lastUnused {
		t.Errorf("the user is %v", uid)
	}
	for name, want := range map[string]float64{"groups": 1, "secret": 0, "no_new_privs": 1,
		"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0, "fds": 4, "core": 0} {
		if got, ok := value(s, name); !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	// Signals to the runner, which is process 1 for the program, have no effect: it ran twice.
	if s.Runs != 2 || len(s.Failed) != 0 {
		t.Errorf("%d runs, failed %v", s.Runs, s.Failed)
	}
}

// What goes wrong costs the window only, with its cause.
func TestFailures(t *testing.T) {
	for cause, text := range map[string]string{
		FailedTimeout: "sleep 1000 & setsid sleep 1000 & sleep 1000",
		FailedExit:    "cat >/dev/null; echo x 1; exit 3",
		FailedOutput:  "cat >/dev/null; yes 'x 1'",
		FailedFormat:  "cat >/dev/null; echo hello world",
	} {
		// The second window fails in the same way: the runner is still there.
		limit := 30 * time.Second
		if cause == FailedTimeout {
			limit = 200 * time.Millisecond
		}
		if s := runs(t, text, limit, 2); s.Failed[cause] != 2 || s.Runs != 0 || len(s.Series) != 0 {
			t.Errorf("%s: %+v", cause, s)
		}
	}
}

// A program that does not read its input, or leaves processes behind, is fine. These do not outlive
// it.
func TestStrays(t *testing.T) {
	const mark = "1000.0625"
	s := runs(t, "sleep "+mark+" &\n(setsid sleep "+mark+" &)\necho 'ran 1'", 20*time.Second, 3)
	if s.Runs != 3 {
		t.Errorf("%+v", s)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if text, err := os.ReadFile(line); err == nil && strings.Contains(string(text), mark) {
			t.Errorf("%s is left: %q", line, text)
		}
	}
}

// The limit of memory is that of each process.
func TestMemory(t *testing.T) {
	s := runs(t, `cat >/dev/null; a=x; while :; do a=$a$a; done`, 20*time.Second, 1)
	if s.Failed[FailedExit] != 1 {
		t.Errorf("%+v", s)
	}
}

// Windows that come too early are lost and counted, and all ends with the context.
func TestRun(t *testing.T) {
	p, err := Start(Options{Path: script(t, "cat >/dev/null"), Timeout: time.Second,
		Memory: DefaultMemory, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p.Observe(window())
	p.Observe(window())
	if s := p.State(); s.Failed[FailedBusy] != 1 {
		t.Errorf("%+v", s)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	if cause, err := p.part(window(), Part{"cpu", sink.Time}); cause != FailedRunner || err == nil {
		t.Errorf("%s: %v", cause, err)
	}
}

func TestCheckPath(t *testing.T) {
	path := script(t, "")
	dir := filepath.Dir(path)
	if err := CheckPath(path); err != nil {
		t.Error(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := CheckPath(link); err != nil {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		path string
		do   func() error
		want string
	}{
		"relative":          {"rule", func() error { return nil }, "not an absolute path"},
		"missing":           {dir + "/missing", func() error { return nil }, "no such file"},
		"directory":         {dir, func() error { return nil }, "not a regular file"},
		"writable file":     {path, func() error { return os.Chmod(path, 0o775) }, "others can write to " + path},
		"foreign file":      {path, func() error { return os.Chown(path, 65534, 0) }, "belongs to user 65534"},
		"no program":        {path, func() error { return os.Chmod(path, 0o644) }, "chmod 755"},
		"writable dir":      {path, func() error { return os.Chmod(dir, 0o777) }, "others can write to " + dir},
		"dir of the link":   {link, func() error { return os.Chmod(dir, 0o777) }, "others can write to " + dir},
		"foreign directory": {path, func() error { return os.Chown(dir, 65534, 0) }, "belongs to user 65534"},
	} {
		if err := tt.do(); err != nil {
			t.Fatal(err)
		}
		if err := CheckPath(tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.want)
		}
		for _, of := range []string{path, dir} {
			if err := os.Chown(of, 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(of, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestStartErrors(t *testing.T) {
	path := script(t, "")
	for user, want := range map[string]string{"root": "cannot run as root", "0": "cannot run as root",
		"nobody-there": "there is no user"} {
		if _, err := Start(Options{Path: path, User: user}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", user, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	list, err := parse([]byte("# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3\n# TYPE b gauge\nb 4\nc{y=\"é\"} -5\n"))
	if err != nil || len(list) != 4 || !list[0].Counter || list[1].Value != 3 || list[2].Counter ||
		list[3].Value != -5 {
		t.Errorf("%v: %+v", err, list)
	}
	for text, want := range map[string]string{
		"hello": "text format",
		"# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n": "use gauges",
		"a NaN\n":                  "not a value",
		"# TYPE a counter\na -1\n": "not a value",
		"a{__x=\"1\"} 1\n":         "begins with __",
		"a{x=\"\\n\"} 1\n":         "do not print",
		"a{x=\"" + strings.Repeat("x", 201) + "\"} 1\n":                         "more than 200 bytes",
		strings.Repeat("a", 101) + " 1\n":                                       "more than 100 bytes",
		"a{b=\"\",c=\"\",d=\"\",e=\"\",f=\"\",g=\"\",h=\"\",i=\"\",j=\"\"} 1\n": "more than 8 labels",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want an error with %q", text, err, want)
		}
	}
}

// The program labels processes of the window that it has seen. What is refused leaves what was
// there.
func TestLabels(t *testing.T) {
	process := func(pid int, comm string) *profile.Process { return &profile.Process{PID: pid, Comm: comm} }
	w := &profile.Profile{Processes: []*profile.Process{process(1, "java"), process(2, "sh"), process(2, "java")}}
	p := &Program{o: Options{Parts: []Part{{Name: "cpu"}, {Name: "wall"}}}, kept: newSeries(),
		labels: make(map[string]processLabels)}
	for _, step := range []struct{ part, text, refused, want string }{
		{"cpu", "process_labels{pid=\"1\",team=\"a\",tier=\"\"} 1\nn 5\n", "", "1 java team=a; "},
		{"wall", "process_labels{pid=\"1\",team=\"b\",area=\"x\"} 1\n", "", "1 java area=x team=a; "},
		{"cpu", "process_labels{pid=\"2\",team=\"c\"} 1\n", "", "1 java area=x team=b; 2 sh team=c; 2 java team=c; "},
		{"cpu", "process_labels{pid=\"2\",team=\"d\"} 1\nprocess_labels{pid=\"3\",team=\"c\"} 1\n",
			"process 3, which is not in the window", "1 java area=x team=b; 2 sh team=c; 2 java team=c; "},
		{"cpu", "process_labels{pid=\"2\",team=\"d\"} 2\n", "gauge of value 1",
			"1 java area=x team=b; 2 sh team=c; 2 java team=c; "},
		{"cpu", "# TYPE process_labels counter\nprocess_labels{pid=\"2\",team=\"d\"} 1\n", "gauge of value 1",
			"1 java area=x team=b; 2 sh team=c; 2 java team=c; "},
		{"cpu", "process_labels{team=\"d\"} 1\n", "needs the label pid",
			"1 java area=x team=b; 2 sh team=c; 2 java team=c; "},
		{"cpu", "process_labels{pid=\"2\",team=\"d\"} 1\nprocess_labels{pid=\"2\"} 1\n", "twice",
			"1 java area=x team=b; 2 sh team=c; 2 java team=c; "},
		{"cpu", "process_labels{pid=\"2\",cause=\"d\"} 1\n", "cannot set cause",
			"1 java area=x team=b; 2 sh team=c; 2 java team=c; "},
		{"cpu", "", "", "1 java area=x team=b; "},
		{"wall", "", "", ""},
	} {
		if err := p.take(w, step.part, step.text); (err == nil) != (step.refused == "") || err != nil &&
			!strings.Contains(err.Error(), step.refused) {
			t.Errorf("%s: %v, want an error with %q", step.text, err, step.refused)
		}
		// Another process with the pid of a labelled one has none.
		next := &profile.Profile{Processes: append(slices.Clone(w.Processes), process(1, "python"))}
		got := ""
		for _, of := range p.Label(next).Processes {
			if len(of.Labels) > 0 {
				got += fmt.Sprintf("%d %s", of.PID, of.Comm)
				for _, l := range of.Labels {
					got += " " + l.Name + "=" + l.Value
				}
				got += "; "
			}
		}
		if got != step.want {
			t.Errorf("after %s: %s, want %s", step.text, got, step.want)
		}
	}
	if s := p.State(); len(s.Series) != 0 || w.Processes[0].Labels != nil {
		t.Errorf("%+v: labels are no metrics, and the window does not change: %v", s.Series, w.Processes[0].Labels)
	}
}

// The number of series is bounded, over parts and windows. What is refused leaves what was there.
func TestSeries(t *testing.T) {
	k := newSeries()
	add := func(part, text string) error {
		list, err := parse([]byte(text))
		if err != nil {
			return err
		}
		return k.add(part, list)
	}
	many := func(name, kind string, n int) string {
		var text strings.Builder
		fmt.Fprintf(&text, "# TYPE %s %s\n", name, kind)
		for i := range n {
			fmt.Fprintf(&text, "%s{x=\"%d\"} 1\n", name, i)
		}
		return text.String()
	}
	for _, step := range []struct{ part, text, want string }{
		{"cpu", many("a", "counter", 600), ""},
		{"cpu", many("a", "counter", 600), ""},
		{"cpu", many("b", "gauge", 401), "more than 1000 series"},
		{"cpu", many("b", "gauge", 400), ""},
		{"cpu", many("b", "gauge", 300), ""},
		{"alloc", many("c", "gauge", 101), "more than 1000 series"},
		{"alloc", "b{x=\"7\"} 1\n", "for two kinds of events"},
		{"alloc", "# TYPE b counter\nb 1\n", "of another type"},
		{"alloc", "a 1\n", "of another type"},
		{"alloc", "d 1\nd 2\n", "twice"},
		{"alloc", "d 1\n", ""},
	} {
		if err := add(step.part, step.text); (err == nil) != (step.want == "") || err != nil &&
			!strings.Contains(err.Error(), step.want) {
			t.Errorf("%s %.30q: %v, want %q", step.part, step.text, err, step.want)
		}
	}
	list := k.all()
	if len(list) != 901 || list[0].Name != "a" || list[0].Value != 2 {
		t.Errorf("%d series, the first %+v", len(list), list[0])
	}
}

func FuzzParse(f *testing.F) {
	f.Add("# TYPE a counter\na{x=\"1\"} 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		if list, err := parse([]byte(text)); err == nil {
			k := newSeries()
			_ = k.add("cpu", list)
			if _, labels, err := labelsIn(list, window()); err == nil && len(labels) > 1 {
				t.Errorf("labels of %d processes, of one", len(labels))
			}
		}
	})
}
