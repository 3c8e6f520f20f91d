package record

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

func TestAgainst(t *testing.T) {
	timed, windows := filepath.Join(t.TempDir(), "cpu.pb.gz"), filepath.Join(t.TempDir(), "windows.pb.gz")
	two := sink.NewWindows(sink.Time)
	for _, n := range []int{9, 5} {
		p := windowOf(n)
		p.Duration, p.Period = 10*time.Second, 10*time.Millisecond
		if err := two.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	earlier, err := two.Profile()
	if err = errors.Join(err, sink.WriteStored(windows, nil, earlier),
		sink.Write(timed, nil, windowOf(4), sink.Time)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string // of the error
	}{
		{[]string{"--against=" + windows, "-p", "1"}, ""},
		{[]string{"--against=" + windows, "--per=6000:6100", "-p", "1"}, ""},
		{[]string{"--per=6000", "-p", "1"}, "--per needs --against"},
		{[]string{"--against=" + windows, "--per=x", "-p", "1"}, `cannot compare per "x"`},
		{[]string{"--against=" + windows, "-e", "cpu,alloc", "-p", "1"}, "--against compares one file"},
		{[]string{"--against=" + windows, "-d", "1", "-p", "1"}, "makes only one window"},
		{[]string{"--against=" + timed, "-p", "1"}, "has no windows to compare: record it with --window=1"},
		{[]string{"--against=/nowhere/a.pb.gz", "-p", "1"}, "/nowhere/a.pb.gz"},
		{[]string{"--against=" + t.TempDir(), "-p", "1"}, "has no recordings"},
	} {
		o, err := parseRecord(test.args, io.Discard)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("record %q: %v, want %q", test.args, err, test.want)
		}
		if err == nil && o.windows() != 30 {
			t.Errorf("record %q makes %d windows, want one a second", test.args, o.windows())
		}
	}
	stored, err := input.ReadFile(windows)
	if err != nil {
		t.Fatal(err)
	}
	for per, texts := range map[string][]string{
		"seconds": {"A: " + windows + "; B: b.pb.gz\n",
			"Shares are compared: a verdict needs at least 20 windows a side"},
		"100": {"Undecided whether B is faster or slower than A: ", "too few windows for an interval"},
	} {
		o, err := parseRecord([]string{"--against=" + windows, "--per=" + per, "-p", "1"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := o.against.compare(&out, output{path: "b.pb.gz", stored: stored}); err != nil {
			t.Fatal(err)
		}
		for _, want := range texts {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, &out)
			}
		}
	}
}
