package record

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files of several kinds of events cannot all be the standard output.
func TestStdoutHasOneKind(t *testing.T) {
	for _, test := range []struct{ args, fails string }{
		{"-e cpu,alloc -p 1 -o -", "-o - can have one kind of events: record one with -e, or write a directory (-o " +
			"out) or a page"},
		{"-e cpu,alloc -p 1 -o x.html -o -", "-o - can have one kind"},
		{"-e alloc -p 1 -o -", ""},
		{"-e cpu,alloc -p 1 -o x.html", ""},
	} {
		_, err := parseRecord(strings.Fields(test.args), io.Discard)
		if (err == nil) != (test.fails == "") || err != nil && !strings.HasPrefix(err.Error(), test.fails) {
			t.Errorf("%s: %v, want %q", test.args, err, test.fails)
		}
	}
}

// A file that cannot be written costs neither the summary nor the other files.
func TestSummaryWithoutFiles(t *testing.T) {
	gone, dir := filepath.Join(t.TempDir(), "gone"), t.TempDir()
	kept, page := filepath.Join(dir, "a.txt"), filepath.Join(gone, "b.html")
	o, err := parseRecord([]string{"-p", "1", "-o", filepath.Join(gone, "a.pb.gz"), "-o", kept, "-o", page}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	outputs, together := o.outputs()
	_, failed, err := o.store(io.Discard, windowOf(4), nil, outputs)
	if err != nil {
		t.Fatal(err)
	}
	together, err = o.writeTogether(io.Discard, outputs, together)
	if failed = errors.Join(failed, err); !errors.Is(failed, fs.ErrNotExist) || len(together) != 0 {
		t.Errorf("%v, and written are %v", failed, together)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := o.summarize(&out, outputs, together, false); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "com.acme.Main.hot") ||
		!strings.Contains(text, "written to "+kept) || strings.Contains(text, gone) {
		t.Errorf("the summary is\n%s", text)
	}
}
