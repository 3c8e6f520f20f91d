package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseComm(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"plain", "java\n", "java"},
		{"newlines in it", "a\nb\n\n", "a?b?"},
		{"spaces in it", " G1 Conc#0 \n", " G1 Conc#0 "},
		{"escape sequence", "\x1b[2Jx\n", "?[2Jx"},
		{"not UTF-8", "a\xffb\n", "a?b"},
		{"cut in the middle of a character", "caf\xc3\n", "caf?"},
		{"right to left override", "a\u202eb\n", "a?b"},
		{"other scripts", "日本語\n", "日本語"},
		{"empty", "\n", ""},
		{"nothing", "", ""},
		{"long", strings.Repeat("é", 200) + "\n", strings.Repeat("é", maxName/2)},
	} {
		if got := parseComm([]byte(tt.file)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A program that is executed from a file in memory goes by its first argument.
func TestNameOf(t *testing.T) {
	for _, tt := range []struct{ comm, arg0, want string }{
		{"java", "/usr/bin/java", "java"},
		{"memfd:sealed-91", "tools/backend", "backend"},
		{"memfd:sealed-91", "back\x1bend", "back?end"},
		{"memfd:runc", "", "runc"},
		{"memfd:runc", "/", "runc"},
		{"memfd:", "", "memfd:"},
		{"", "", ""},
	} {
		if got := NameOf(tt.comm, tt.arg0); got != tt.want {
			t.Errorf("%q, %q: %q, want %q", tt.comm, tt.arg0, got, tt.want)
		}
	}
}

// The kernel calls a program as its file is called, cut to fit.
func TestComm(t *testing.T) {
	want := filepath.Base(os.Args[0])
	want = want[:min(len(want), 15)]
	if got, err := Root("").Comm(os.Getpid()); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestThreads(t *testing.T) {
	pid := os.Getpid()
	tids, err := Root("").Threads(pid)
	if err != nil || !slices.Contains(tids, pid) || !slices.IsSorted(tids) {
		t.Fatalf("Threads = %v, %v; want this process's leader %d among them", tids, err, pid)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add([]byte("a\x1b[2J\xff\u202e日"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := printable(b)
		if !utf8.ValidString(s) || len(s) > maxName || strings.ContainsAny(s, "\n\r\x00\x1b") {
			t.Errorf("printable(%q) = %q", b, s)
		}
	})
}
