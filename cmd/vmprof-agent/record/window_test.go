package record

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestWindowFlag(t *testing.T) {
	for _, test := range []struct {
		args    string
		windows int64  // that there are to be
		want    string // of the error
	}{
		{"-d 60s --window=10s", 6, ""},
		{"-d 64s --window=10s", 6, ""}, // the last one takes the rest
		{"-d 65s --window=10s", 7, ""}, // which is a window of its own
		{"--window=10s", 3, ""},
		{"--window=10s -- true", 0, ""},
		{"--window=100ms -o -", 300, ""},
		{"-d 4096s --window=1s", 4096, ""},
		{"-e cpu,calls -d 60s --window=20s -o some.pb.gz", 3, ""},
		{"-e alloc -d 60s --window=20s -o some.pb.gz", 3, ""},
		{"-e cpu,alloc,lock -d 60s --window=20s -o some", 3, ""},
		{"-e alloc -d 60s --window=20s -o some.txt", 0, "needs the pprof format"},
		{"-d 4097s --window=1s", 0, "more than 4096 windows in -d 1h8m17s: use a longer window"},
		{"-d 60s --window=99ms", 0, "at least 100ms"},
		{"-d 60s --window=-1s", 0, "at least 100ms"},
		{"-d 10s --window=10s", 0, "makes only one window in -d 10s"},
		{"-d 10s --window=1m", 0, "makes only one window in -d 10s"},
		{"-d 10s --window=1s -o all.folded", 0,
			"needs the pprof format: use an output that ends in .pb.gz instead of all.folded"},
		{"-d 10s --window=1s -o all.txt", 0, "needs the pprof format"},
		{"-e calls --exact -p 1 -d 10s --window=1s", 0, "--exact counts the whole recording"},
	} {
		o, err := parseRecord(strings.Fields(test.args), io.Discard)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) ||
			!cli.IsMisuse(err)) {
			t.Errorf("record %s: %v, want %q", test.args, err, test.want)
			continue
		}
		if err == nil && o.windows() != test.windows {
			t.Errorf("record %s makes %d windows, want %d", test.args, o.windows(), test.windows)
		}
	}
	if o, err := parseRecord(nil, io.Discard); err != nil || o.rotate(t.Context(), nil) != nil {
		t.Errorf("a recording without --window has windows, or fails: %v", err)
	}
}

// windowOf is the nth window, of n samples.
func windowOf(n int) *profile.Profile {
	tree := new(cct.Tree[symbol.Symbol])
	tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Main.hot"})}, uint64(n))
	return &profile.Profile{
		Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{TID: 1, Tree: tree}}}},
		Counts:    profile.Counts{Folded: uint64(n)},
	}
}

func TestRotation(t *testing.T) {
	const length = time.Millisecond
	var closed int
	r := newRotation([]sampling.Part{{Name: "cpu", Content: sink.Time}})
	first := new(agent.Window)
	r.open = first
	r.next = func() (*profile.Profile, error) {
		closed++
		r.open = new(agent.Window)
		return windowOf(closed), nil
	}
	r.run(length, 4) // returns when the last window is open
	last := r.open
	if w, err := r.stop(nil); err != nil || w != last || w == first || closed != 3 || r.open != nil {
		t.Fatalf("stop = %p, %v, after %d windows; want %p", w, err, closed, last)
	}
	o := recordOptions{output: []string{filepath.Join(t.TempDir(), "out.pb.gz")}, window: length}
	outputs := []output{{path: o.output[0]}}
	counts, failed, err := o.store(nil, windowOf(4), r, outputs)
	if err := errors.Join(failed, err); err != nil {
		t.Fatal(err)
	}
	stored := outputs[0].stored
	var got []string
	for _, s := range stored.Sample {
		got = append(got, fmt.Sprintf("%d:%d", s.NumLabel["window"][0], s.Value[0]))
	}
	if want := "[1:1 2:2 3:3 4:4]"; fmt.Sprint(got) != want || counts.Folded != 10 {
		t.Errorf("samples by window %v and %d in all, want %v and 10", got, counts.Folded, want)
	}
	if file, err := input.ReadFile(o.output[0]); err != nil || file.String() != stored.String() {
		t.Errorf("the file holds something else: %v", err)
	}
}

// A recording may end at any moment, also before its first window.
func TestRotationStops(t *testing.T) {
	r := newRotation([]sampling.Part{{Name: "cpu", Content: sink.Time}})
	w := new(agent.Window)
	r.open = w
	go r.run(time.Hour, 0)
	if got, err := r.stop(nil); err != nil || got != w {
		t.Errorf("stop = %p, %v, want %p", got, err, w)
	}
	if got, err := (*rotation)(nil).stop(w); err != nil || got != w {
		t.Errorf("without a rotation stop = %p, %v, want %p", got, err, w)
	}
}

func TestRotationFails(t *testing.T) {
	why := errors.New("the ring is gone")
	r := newRotation([]sampling.Part{{Name: "cpu", Content: sink.Time}})
	r.next = func() (*profile.Profile, error) { return nil, why }
	r.run(time.Millisecond, 0)
	if _, err := r.stop(nil); !errors.Is(err, why) {
		t.Errorf("stop = %v, want %v", err, why)
	}
}

// A recording without end has as many windows as a profile has room for.
func TestRotationIsBounded(t *testing.T) {
	r := newRotation([]sampling.Part{{Name: "cpu", Content: sink.Time}})
	n := 0
	r.next = func() (*profile.Profile, error) { n++; return windowOf(1), nil }
	r.run(time.Microsecond, 0)
	if _, err := r.stop(nil); err != nil || n != stored.MaxWindows-1 {
		t.Errorf("%d windows before the last, %v", n, err)
	}
	if err := r.add(windowOf(1)); err != nil {
		t.Errorf("the last window has no room: %v", err)
	}
}
