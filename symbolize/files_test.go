package symbolize

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// image is an ELF file with one function of 32 bytes at 0x1000 and the build id cafe.
func image(symbol string) []byte {
	return elftest.Image{
		Machine:  elf.EM_X86_64,
		Segments: []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100)},
		Sections: append(elftest.Symbols(elf.SHT_SYMTAB, elftest.Symbol{Name: symbol, Value: 0x1000, Size: 0x20}),
			elftest.Section{Name: ".note.gnu.build-id", Data: elftest.Note("GNU", 3, []byte{0xca, 0xfe}),
				Header: elf.Section64{Type: uint32(elf.SHT_NOTE)}}),
	}.Bytes()
}

// opener writes data to a file and returns an Opener for it, which counts its calls.
func opener(t testing.TB, data []byte) (Opener, *int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := 0
	return func() (*os.File, error) {
		opened++
		return os.Open(path)
	}, &opened
}

// Files that nobody requests any more are dropped, and read again if somebody does.
func TestFilesDropIdle(t *testing.T) {
	files := NewFiles(1 << 20)
	open, opened := opener(t, image("stop"))
	get := func(inode uint64) {
		t.Helper()
		if _, err := files.Get(FileKey{Inode: inode}, open); err != nil {
			t.Fatal(err)
		}
	}
	get(1)
	get(2)
	between := time.Now()
	if _, ok, err := files.Known(FileKey{Inode: 1}); !ok || err != nil {
		t.Fatalf("not known: %v", err)
	}
	files.DropIdle(between)
	if _, ok, _ := files.Known(FileKey{Inode: 2}); ok || len(files.entries) != 1 || files.recent.Len() != 1 {
		t.Errorf("%d files are left, the idle one among them: %v", len(files.entries), ok)
	}
	get(1)
	get(2)
	if *opened != 3 {
		t.Errorf("opened %d files, want the one that was dropped again", *opened)
	}
	files.DropIdle(time.Now().Add(time.Hour))
	if files.bytes != 0 || len(files.entries) != 0 {
		t.Errorf("%d files with %d bytes are left", len(files.entries), files.bytes)
	}
	files.DropIdle(time.Now())
}

func TestFilesGet(t *testing.T) {
	files := NewFiles(1 << 20)
	open, opened := opener(t, image("stop"))
	key := FileKey{Device: 1, Inode: 2, Size: 3, ModTime: 4}
	for range 3 {
		o, err := files.Get(key, open)
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := o.Lookup(0x101f); !ok || name != (Name{Function: "stop", System: "stop"}) {
			t.Errorf("name %+v, %t", name, ok)
		}
		if name, ok := o.Lookup(0x1020); ok {
			t.Errorf("name %+v past the function", name)
		}
		if o.buildID != "cafe" || o.table == nil {
			t.Errorf("build id %q, table %v", o.buildID, o.table)
		}
	}
	if *opened != 1 {
		t.Errorf("opened %d times", *opened)
	}
	key.ModTime++ // the file was rewritten
	if _, err := files.Get(key, open); err != nil || *opened != 2 {
		t.Errorf("opened %d times, error %v", *opened, err)
	}
}

func TestFilesGetBytes(t *testing.T) {
	o, err := NewFiles(1<<20).GetBytes(FileKey{BuildID: "[vdso]"}, image("_ZN10JavaThread3runEv"))
	if err != nil {
		t.Fatal(err)
	}
	want := Name{Function: "JavaThread::run()", System: "_ZN10JavaThread3runEv"}
	for range 2 { // made, then remembered
		if name, ok := o.Lookup(0x1000); !ok || name != want {
			t.Errorf("name %+v, %t, want %+v", name, ok, want)
		}
	}
}

func TestFilesKeepsStrippedFiles(t *testing.T) {
	stripped := elftest.Image{Machine: elf.EM_X86_64, Segments: []elf.Prog64{elftest.Code(0, 0x1000, 0x40)}}.Bytes()
	o, err := NewFiles(1<<20).GetBytes(FileKey{}, stripped)
	if err != nil {
		t.Fatal(err)
	}
	if o.table != nil {
		t.Errorf("table %v", o.table)
	}
	if name, ok := o.Lookup(0x1000); ok {
		t.Errorf("name %+v", name)
	}
}

func TestFilesRemembersFailures(t *testing.T) {
	files := NewFiles(1 << 20)

	// A file that cannot be opened is tried again: it may have been requested for a process that
	// ended.
	attempts := 0
	gone := func() (*os.File, error) { attempts++; return nil, os.ErrNotExist }
	for range 3 {
		if o, err := files.Get(FileKey{Inode: 1}, gone); o != nil || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Get = %v, %v", o, err)
		}
	}
	if attempts != 3 {
		t.Errorf("%d attempts, want 3", attempts)
	}

	// A malformed file is cached as malformed.
	open, opened := opener(t, []byte("#!/bin/sh\n"))
	for range 2 {
		if o, err := files.Get(FileKey{Inode: 2}, open); o != nil || !errors.Is(err, elffile.ErrNotELF) {
			t.Errorf("Get = %v, %v", o, err)
		}
	}
	if *opened != 1 {
		t.Errorf("opened %d times, want 1", *opened)
	}

	directory := t.TempDir()
	if o, err := files.Get(FileKey{Inode: 3}, func() (*os.File, error) { return os.Open(directory) }); o != nil ||
		err == nil {
		t.Errorf("directory: %v, %v", o, err)
	}
}

func TestFilesIsBounded(t *testing.T) {
	data := image(strings.Repeat("n", 100))
	one := NewFiles(1 << 20)
	if _, err := one.GetBytes(FileKey{}, data); err != nil {
		t.Fatal(err)
	}
	size := one.bytes

	files := NewFiles(3 * size)
	loads := 0
	get := func(inode uint64) {
		t.Helper()
		_, err := files.get(FileKey{Inode: inode}, func() (*Object, bool, error) {
			loads++
			o, err := readObject(bytes.NewReader(data), int64(len(data)), DebugFiles{})
			return o, false, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if files.bytes > 3*size {
			t.Errorf("%d bytes, limit %d", files.bytes, 3*size)
		}
	}
	for _, inode := range []uint64{1, 2, 3, 1, 4, 1, 3, 4} { // 4 replaces 2, which nobody asked for since
		get(inode)
	}
	if loads != 4 {
		t.Errorf("%d files read, want 4", loads)
	}
	get(2)
	if loads != 5 {
		t.Errorf("%d files read, want 5: file 2 should have been dropped", loads)
	}

	if o, err := NewFiles(size-1).GetBytes(FileKey{}, data); o != nil || err == nil {
		t.Errorf("a file above the limit: %v, %v", o, err)
	}
}

// Run with -race: many goroutines request a few files from a cache that holds one.
func TestFilesConcurrently(t *testing.T) {
	open, _ := opener(t, image("f"))
	path := ""
	if file, err := open(); err == nil {
		path = file.Name()
		file.Close()
	}
	files := NewFiles(2 * objectOverhead)
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 200 {
				o, err := files.Get(FileKey{Inode: uint64((g + i) % 3)},
					func() (*os.File, error) { return os.Open(path) })
				if err != nil {
					t.Error(err)
					return
				}
				if name, ok := o.Lookup(0x1000); !ok || name.Function != "f" {
					t.Errorf("name %+v, %t", name, ok)
				}
			}
		})
	}
	wait.Wait()
	if files.bytes > 2*objectOverhead {
		t.Errorf("%d bytes", files.bytes)
	}
}

func TestNameCache(t *testing.T) {
	var c nameCache
	made := 0
	get := func(n int) {
		c.get(symbolID{symbol: n}, func() Name { made++; return Name{} })
	}
	for n := range 10 * maxNames {
		get(n)
		get(0) // asked for all the time: stays
	}
	if made != 10*maxNames {
		t.Errorf("%d names made, want %d", made, 10*maxNames)
	}
	if n := len(c.young) + len(c.old); n > 2*maxNames {
		t.Errorf("%d names kept", n)
	}
}
