package proc

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestParseLayout(t *testing.T) {
	stat := "7 (a) b) S 1 " + strings.Repeat("0 ", 23) + "140737488 9 9\n"
	const status = "Name:\ta\nVmExe:\t     840 kB\nVmLib:\t    1208 kB\nThreads:\t1\n"
	l, err := parseLayout([]byte(stat), []byte(status), 4096)
	if err != nil || l != (Layout{140737488, 512}) {
		t.Errorf("%+v, %v", l, err)
	}
	for name, c := range map[string]struct {
		stat, status string
		want         error
	}{
		"hidden":       {strings.Replace(stat, "140737488", "0", 1), status, ErrDenied},
		"short":        {"7 (a) S 1", status, ErrMalformed},
		"no number":    {strings.Replace(stat, "140737488", "x", 1), status, ErrMalformed},
		"no memory":    {stat, "Name:\ta\n", ErrMalformed},
		"another unit": {stat, strings.Replace(status, "840 kB", "840 MB", 1), ErrMalformed},
		"empty":        {"", "", ErrMalformed},
	} {
		if l, err := parseLayout([]byte(c.stat), []byte(c.status), 4096); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}

// The own code is in mappings that can be executed and not written.
func TestLayout(t *testing.T) {
	before, err := DefaultRoot.Layout(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	maps, err := DefaultRoot.Maps(os.Getpid(), func(m *Mapping) bool { return m.Exec && !m.Write })
	if err != nil {
		t.Fatal(err)
	}
	after, err := DefaultRoot.Layout(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var pages uint64
	for _, m := range maps {
		if m.Path != "[vsyscall]" { // it is in no process's memory
			pages += (m.Limit - m.Start) / uint64(os.Getpagesize())
		}
	}
	if before == after && pages != after.CodePages {
		t.Errorf("%d pages of code, the mappings have %d", after.CodePages, pages)
	}
}
