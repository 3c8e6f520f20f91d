package perfmap

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// readOn reads a piece of the map in that file.
func readOn(t *testing.T, m *Map, path string) (vmruntime.MapPiece, vmruntime.MapAdded) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	piece, err := ReadPiece(f, uint32(os.Getuid()), m.Position())
	if err != nil {
		t.Fatal(err)
	}
	added, err := m.Add(piece)
	if err != nil {
		t.Fatal(err)
	}
	return piece, added
}

func write(t *testing.T, path, text string, flags int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flags, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A map is read on where it grew, and anew when it is another one. The epoch changes only if a name
// may be wrong.
func TestReadOn(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "map"), filepath.Join(dir, "other")
	var m Map
	for _, step := range []struct {
		name   string
		change func()
		want   string // names at 0x1000, 0x2000
		bytes  int    // bytes that are read
		epochs uint32 // epochs that it begins
	}{
		{"first", func() { write(t, path, "1000 10 a\n", 0) }, "a", 10, 1},
		{"unchanged", func() {}, "a", 0, 0},
		{"half a line", func() { write(t, path, "2000 1", os.O_APPEND) }, "a", 0, 0},
		{"its rest", func() { write(t, path, "0 b\n", os.O_APPEND) }, "ab", 10, 0},
		{"other code", func() { write(t, path, "1000 8 c\n", os.O_APPEND) }, "cb", 9, 1},
		{"in place", func() { write(t, path, "2000 10 d\n", os.O_TRUNC) }, "d", 10, 1},
		{"another file", func() {
			write(t, other, "1000 10 e\n2000 10 f\n", 0)
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
		}, "ef", 20, 1},
	} {
		step.change()
		epoch := m.Epoch()
		_, added := readOn(t, &m, path)
		if got := nameAt(&m, 0x1000) + nameAt(&m, 0x2000); got != step.want || added.Bytes != step.bytes ||
			m.Epoch()-epoch != step.epochs {
			t.Errorf("%s: %q, %+v, %d epochs; want %q, %d bytes, %d", step.name, got, added, m.Epoch()-epoch, step.want,
				step.bytes, step.epochs)
		}
	}
	at, epoch := m.Position(), m.Epoch()
	if m.Forget(); m.Position() != at || m.Epoch() == epoch || nameAt(&m, 0x1000) != "" || m.Bytes() != 0 {
		t.Errorf("after all was forgotten: %+v", m)
	}
}

// One read takes a bounded piece, and says that more follows.
func TestReadPieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map")
	write(t, path, strings.Repeat("1000 10 "+strings.Repeat("n", 91)+"\n", 2*maxPiece/100)+"2000 10 last\n", 0)
	var m Map
	for n, more := 0, true; more; n++ {
		piece, added := readOn(t, &m, path)
		if more = piece.More; len(piece.Text) > maxPiece || added.Malformed > 0 || n > 2 {
			t.Fatalf("piece %d has %d bytes, %+v", n, len(piece.Text), added)
		}
	}
	if got := nameAt(&m, 0x2000); got != "last" {
		t.Errorf("the last line names %q", got)
	}
}

func TestReadPieceOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map")
	write(t, path, "1000 10 forged\n", 0)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if os.Getuid() == 0 { // root's files count
		if _, err := ReadPiece(f, 4242, vmruntime.MapPosition{}); err != nil {
			t.Errorf("root's file: %v", err)
		}
		if err := os.Chown(path, 4243, 4243); err != nil {
			t.Fatal(err)
		}
	}
	if piece, err := ReadPiece(f, 4242, vmruntime.MapPosition{}); !errors.Is(err, vmruntime.ErrForeignMap) ||
		len(piece.Text) > 0 {
		t.Errorf("%d bytes, %v", len(piece.Text), err)
	}
}
