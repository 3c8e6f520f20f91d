package proc

import (
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestParseMapping(t *testing.T) {
	const fields = "7f0000001000-7f0000003000 r-xp 00002000 fe:00 247766                     "
	file := Mapping{Start: 0x7f0000001000, Limit: 0x7f0000003000, Offset: 0x2000, Dev: unix.Mkdev(0xfe, 0),
		Inode: 247766, Read: true, Exec: true}
	at := func(path string) Mapping { m := file; m.Path = path; return m }
	deleted := func(path string) Mapping { m := at(path); m.Deleted = true; return m }
	for _, tt := range []struct {
		name, line string
		want       Mapping
		isFile     bool
		err        error
	}{
		{name: "file", line: fields + "/usr/bin/java", want: at("/usr/bin/java"), isFile: true},
		{name: "spaces", line: fields + "/opt/my  app/x.so ", want: at("/opt/my  app/x.so "), isFile: true},
		{name: "newline", line: fields + `/opt/a\012b`, want: at("/opt/a\nb"), isFile: true},
		{name: "other backslashes", line: fields + `/opt/a\011b\\`, want: at(`/opt/a\011b\\`), isFile: true},
		{name: "forged line in the path", line: fields +
			`/opt/x\0127f0000000000-7f0000009000 r-xp 0 00:00 1 /lib/libjvm.so`,
			want: at("/opt/x\n7f0000000000-7f0000009000 r-xp 0 00:00 1 /lib/libjvm.so"), isFile: true},
		{name: "deleted", line: fields + "/usr/lib/x.so (deleted)", want: deleted("/usr/lib/x.so"), isFile: true},
		{name: "deleted twice", line: fields + "/x (deleted) (deleted)", want: deleted("/x (deleted)"), isFile: true},
		{name: "memfd", line: fields + "/memfd:java_heap (deleted)", want: deleted("/memfd:java_heap"), isFile: true},
		{name: "not in this mount namespace", line: fields + "//anon", want: at("//anon"), isFile: true},
		{name: "anonymous", line: "7f0000001000-7f0000003000 rw-p 00000000 00:00 0 ",
			want: Mapping{Start: 0x7f0000001000, Limit: 0x7f0000003000, Read: true, Write: true}},
		{name: "anonymous without a space", line: "7f0000001000-7f0000003000 ---p 00000000 00:00 0",
			want: Mapping{Start: 0x7f0000001000, Limit: 0x7f0000003000}},
		{name: "vdso", line: "7ffd0-7ffe0 r-xp 00000000 00:00 0                  [vdso]",
			want: Mapping{Start: 0x7ffd0, Limit: 0x7ffe0, Read: true, Exec: true, Path: "[vdso]"}},
		{name: "named anonymous memory", line: "7ffd0-7ffe0 rw-s 00000000 00:00 0    [anon:my heap]",
			want: Mapping{Start: 0x7ffd0, Limit: 0x7ffe0, Read: true, Write: true, Shared: true,
				Path: "[anon:my heap]"}},
		{name: "last page", line: "ffffffffff600000-ffffffffffffffff --xp 00000000 00:00 0 [vsyscall]",
			want: Mapping{Start: 0xffffffffff600000, Limit: 1<<64 - 1, Exec: true, Path: "[vsyscall]"}},

		{name: "empty", line: "", err: ErrMalformed},
		{name: "cut", line: "7f0000001000-7f0000003000 r-xp 0000", err: ErrMalformed},
		{name: "reversed", line: "7f0000003000-7f0000001000 r-xp 00000000 00:00 0", err: ErrMalformed},
		{name: "nothing in it", line: "7f0000001000-7f0000001000 r-xp 00000000 00:00 0", err: ErrMalformed},
		{name: "address of 65 bits", line: "1ffffffffffffffff-2ffffffffffffffff r-xp 00000000 00:00 0",
			err: ErrMalformed},
		{name: "device of 33 bits", line: "1000-2000 r-xp 00000000 100000000:00 0", err: ErrMalformed},
		{name: "three permissions", line: "1000-2000 r-x 00000000 00:00 0", err: ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseMapping([]byte(tt.line))
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("parseMapping = %+v, %v; want %+v, %v", got, err, tt.want, tt.err)
			}
			if got.IsFile() != tt.isFile {
				t.Errorf("IsFile = %v, want %v", got.IsFile(), tt.isFile)
			}
		})
	}
}

func TestParseMaps(t *testing.T) {
	text := "3000-4000 r-xp 00000000 00:00 0 \n" + // out of order, as after a change between two pieces
		"1000-2000 r-xp 00000000 00:00 0 [a]\n" +
		"2000-3000 rw-p 00000000 00:00 0 [b]\n" +
		"5000-6000 r-xp 00000000 08:01 7 /" + strings.Repeat("x", 3*maxMapLine) + "\n" +
		"6000-7000 r-xp 00000000 00:00 0 [no newline]"
	maps, err := parseMaps(strings.NewReader(text), Executable)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range maps {
		got = append(got, m.Path)
	}
	if want := []string{"[a]", "", pathTooLong, "[no newline]"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	for _, tt := range []struct {
		addr uint64
		want *Mapping
	}{
		{0xfff, nil}, {0x1000, &maps[0]}, {0x1fff, &maps[0]}, {0x2000, nil}, {0x3000, &maps[1]}, {0x3fff, &maps[1]},
		{0x4000, nil}, {0x6fff, &maps[3]}, {0x7000, nil}, {0, nil}, {1<<64 - 1, nil},
	} {
		if got := maps.Find(tt.addr); got != tt.want {
			t.Errorf("Find(%#x) = %+v, want %+v", tt.addr, got, tt.want)
		}
	}
	if none := Maps(nil).Find(0); none != nil {
		t.Errorf("Find in nothing = %+v", none)
	}
}

func TestParseMapsBounds(t *testing.T) {
	line := "1000-2000 r-xp 00000000 00:00 0 \n"
	none := func(*Mapping) bool { return false }
	for _, tt := range []struct {
		name string
		text io.Reader
		keep func(*Mapping) bool
		err  error
	}{
		{"as many mappings as are kept", strings.NewReader(strings.Repeat(line, maxMappings)), nil, nil},
		{"one more", strings.NewReader(strings.Repeat(line, maxMappings+1)), nil, ErrTooLarge},
		{"as many lines as are looked at", strings.NewReader(strings.Repeat(line, maxMapLines)), none, nil},
		{"one more line", strings.NewReader(strings.Repeat(line, maxMapLines+1)), none, ErrTooLarge},
		{"one line without end", io.MultiReader(strings.NewReader(line[:len(line)-1]), endless{}), none, ErrTooLarge},
		{"a read that fails", io.MultiReader(strings.NewReader(line), failing{}), nil, unix.ESRCH},
		{"no mappings", strings.NewReader(""), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			maps, err := parseMaps(tt.text, tt.keep)
			if !errors.Is(err, tt.err) || (err != nil && maps != nil) {
				t.Errorf("parseMaps = %d mappings, %v; want error %v", len(maps), err, tt.err)
			}
		})
	}
}

// endless is a path that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, unix.ESRCH }

func TestMapsOfThisProcess(t *testing.T) {
	maps, err := Root("").Maps(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	code := uint64(reflect.ValueOf(TestMapsOfThisProcess).Pointer())
	exe, err := Root("").Executable(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if m := maps.Find(code); m == nil || !m.Exec || m.Path != strings.TrimSuffix(exe, " (deleted)") {
		t.Errorf("this function is in %+v, want code of %s", m, exe)
	}
	data := uint64(uintptr(unsafe.Pointer(&writable)))
	if m := maps.Find(data); m == nil || m.Exec || !m.Write {
		t.Errorf("a variable is in %+v, want writable data", m)
	}
}

var writable = os.Getpid()

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte("7f0000001000-7f0000003000 r-xp 00002000 fe:00 247766      /opt/a\\012b (deleted)\n1-2 ---s 0 0:0 " +
		"0\n"))
	f.Add([]byte("5000-6000 r-xp 00000000 08:01 7 /" + strings.Repeat("x", maxMapLine)))
	f.Fuzz(func(t *testing.T, b []byte) {
		maps, err := parseMaps(strings.NewReader(string(b)), nil)
		if err != nil && maps != nil {
			t.Errorf("both %d mappings and %v", len(maps), err)
		}
		for i, m := range maps {
			if m.Start >= m.Limit || i > 0 && m.Start < maps[i-1].Start {
				t.Fatalf("mapping %d is empty or out of order", i)
			}
			if len(m.Path) > max(len(b), len(pathTooLong)) {
				t.Fatalf("path of %d bytes from %d", len(m.Path), len(b))
			}
		}
	})
}
