package sink_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestFormatOf(t *testing.T) {
	for path, want := range map[string]sink.Format{
		"-":                sink.FormatPprof,
		"cpu.pb.gz":        sink.FormatPprof,
		"/a.b/CPU.PB.GZ":   sink.FormatPprof,
		"stacks.folded":    sink.FormatCollapsed,
		"dir/report.txt":   sink.FormatText,
		"page.html":        sink.FormatHTML,
		"x.json":           sink.FormatSpeedscope,
		"svg.txt.folded":   sink.FormatCollapsed,
		"":                 0,
		"profile":          0,
		"profile.svg":      0,
		"cpu.pb":           0,
		"/dev/null":        0,
		"some.pb.gz/below": 0,
	} {
		got, err := sink.FormatOf(path)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("FormatOf(%q) = %v, %v, want %v", path, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(),
			".html (flame graph and tables), .pb.gz (pprof), .json (speedscope), .folded (collapsed stacks) or .txt "+
				"(report)") {
			t.Errorf("FormatOf(%q): %v does not list the formats", path, err)
		}
	}
}

// entries returns the names in dir.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.txt")
	if err := os.WriteFile(old, []byte("what was there before"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new.pb.gz", "old.txt", "new.folded"} {
		path := filepath.Join(dir, name)
		if err := sink.CheckWritable(path); err != nil {
			t.Fatal(err)
		}
		if err := sink.Write(path, nil, sinktest.Shop(), sink.ContentOf(sinktest.Shop())); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := entries(t, dir), []string{"new.folded", "new.pb.gz", "old.txt"}; !slices.Equal(got, want) {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
	if stored, err := input.ReadFile(filepath.Join(dir, "new.pb.gz")); err != nil || len(stored.Sample) == 0 {
		t.Errorf("ReadFile = %v, %v", stored, err)
	}
	for name, want := range map[string]string{"old.txt": "Hot methods", "new.folded": "bash;"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.HasPrefix(got, []byte(want)) {
			t.Errorf("%s = %.40q, %v", name, got, err)
		}
	}
}

func TestWriteStdout(t *testing.T) {
	var out bytes.Buffer
	if err := sink.CheckWritable(sink.Stdout); err != nil {
		t.Error(err)
	}
	if err := sink.Write(sink.Stdout, &out, sinktest.Shop(), sink.ContentOf(sinktest.Shop())); err != nil {
		t.Fatal(err)
	}
	if stored, err := input.Read(&out); err != nil || len(stored.Sample) == 0 {
		t.Errorf("Read = %v, %v", stored, err)
	}
	if err := sink.Write(sink.Stdout, sinktest.BrokenPipe{}, sinktest.Shop(),
		sink.ContentOf(sinktest.Shop())); err == nil {
		t.Errorf("a write to a broken pipe succeeds")
	}
}

// A profile that cannot be converted must not replace the one of yesterday.
func TestWriteFailsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cpu.pb.gz")
	if err := os.WriteFile(path, []byte("yesterday"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := sinktest.Shop()
	p.Processes[0].Threads[0].Tree = sinktest.ContextTree(sinktest.Sampled{Weight: 1 << 62,
		Frames: []symbol.Frame{sinktest.Execute}})
	if err := sink.Write(path, nil, p, sink.ContentOf(p)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Write = %v, want an error about %s", err, path)
	}
	if got, _ := os.ReadFile(path); string(got) != "yesterday" {
		t.Errorf("the file now holds %q", got)
	}
	if got := entries(t, dir); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
}

func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo.txt")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.txt"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := entries(t, dir)
	for _, test := range []struct{ path, want string }{
		{filepath.Join(dir, "missing", "cpu.pb.gz"), "create it, or choose another"},
		{filepath.Join(dir, "dir.txt"), "is not a file: choose another name"},
		{fifo, "is not a file: choose another name"},
		{filepath.Join(fifo, "cpu.pb.gz"), "not a directory"},
		{"/proc/cpu.pb.gz", "/proc"},
		{filepath.Join(dir, "cpu.svg"), ".pb.gz"},
	} {
		for name, err := range map[string]error{
			"CheckWritable": sink.CheckWritable(test.path),
			"Write":         sink.Write(test.path, nil, sinktest.Shop(), sink.ContentOf(sinktest.Shop())),
		} {
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.path) {
				t.Errorf("%s(%s) = %v, want an error with the path and %q", name, test.path, err, test.want)
			}
		}
	}
	if after := entries(t, dir); !slices.Equal(before, after) {
		t.Errorf("left behind: %q, before: %q", after, before)
	}
}

func TestUnwritableDirectory(t *testing.T) {
	dir, err := os.MkdirTemp("", "unwritable") // not t.TempDir, into which only its owner may look
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "closed"), 0o700), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// Root may write everywhere, so be somebody else to the file system, on this thread only.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer syscall.Setfsuid(0)
	}
	for _, path := range []string{filepath.Join(dir, "cpu.pb.gz"), filepath.Join(dir, "closed", "cpu.pb.gz")} {
		err := sink.CheckWritable(path)
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "choose a directory of your own") {
			t.Errorf("CheckWritable(%s) = %v", path, err)
		}
	}
}
