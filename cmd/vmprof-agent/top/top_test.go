package top

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/top"
)

func TestTopRefusals(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "top needs a terminal: use record"}, // tests have none
		{"shop", "unexpected argument shop"},
		{"-F 0", "-F needs"},
		{"-i 0.5", "--interval needs"},
		{"--budget 90%", "--budget 90%"},
		{"--none", "unknown flag"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(context.Background(), append([]string{"top"}, strings.Fields(c.args)...), &stdout,
			&stderr); code != 2 {
			t.Errorf("top %s: exit code %d", c.args, code)
		}
		if !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("top %s: %q and %q, want %q", c.args, &stdout, &stderr, c.want)
		}
	}
}

// An event recorder that is asked faster than it can start records what was asked last.
func TestEventRecorderWants(t *testing.T) {
	r := &eventRecorder{wanted: make(chan int, 1)}
	r.want(0, false)
	select {
	case kind := <-r.wanted:
		t.Fatalf("asked for nothing, %d is wanted", kind)
	default:
	}
	r.want(profile.Allocations, true)
	r.want(profile.Locks, true)
	r.want(profile.Locks, true)
	if kind := <-r.wanted; kind != int(profile.Locks) {
		t.Errorf("%d is wanted", kind)
	}
	r.want(profile.Locks, true)
	r.want(profile.Locks, false)
	if kind := <-r.wanted; kind != noEvents {
		t.Errorf("%d is wanted", kind)
	}
}

func TestTopWarnings(t *testing.T) {
	var w warnings
	log := topLogger(&w)
	log.Debug("not shown")
	if got := w.fresh(); got != "" {
		t.Errorf("fresh: %q", got)
	}
	for i := range 2 * maxWarnings {
		log.Warn(fmt.Sprintf("one %c", 'a'+i/2))
	}
	if got := w.fresh(); !strings.Contains(got, fmt.Sprintf("one %c", 'a'+maxWarnings-1)) {
		t.Errorf("fresh: %q", got)
	}
	if got := w.fresh(); got != "" {
		t.Errorf("fresh again: %q", got)
	}
	log.Warn("too many")
	var b bytes.Buffer
	w.print(&b)
	if got := b.String(); strings.Count(got, "\n") != maxWarnings+1 || !strings.HasSuffix(got, "1 more warning\n") {
		t.Errorf("printed:\n%s", got)
	}
}

func TestWriteShown(t *testing.T) {
	window := func(n int) *profile.Profile {
		return &profile.Profile{Start: time.Unix(int64(2*n), 0), Duration: 2 * time.Second,
			Period: 10 * time.Millisecond}
	}
	w := &top.Write{Profiles: []*profile.Profile{window(0), window(1)}}
	var path string
	for _, ending := range []string{".html", ".json", ".txt", ".pb.gz"} {
		path = filepath.Join(t.TempDir(), "top"+ending)
		w.Path = path
		if got := writeShown(w); got != "written to "+path {
			t.Errorf("%s: %s", ending, got)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", ending, err)
		}
	}
	for _, c := range []struct{ path, want string }{
		{sink.Stdout, "give a file"}, {filepath.Join(path, "none.pb.gz"), "not written: "},
		{"x.unknown", "not written: "}, {"x.folded", "use .html"},
	} {
		w.Path = c.path
		if got := writeShown(w); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
}

// run is the verb as the user calls it, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Verb{Name: args[0], Run: Run}.Exit(ctx, args[1:], stdout, stderr)
}
