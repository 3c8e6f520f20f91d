package elffile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	b := TableBuilder{Base: 0x1000}
	for _, s := range []struct {
		start, size uint64
		name        string
		preference  Preference
	}{
		{0x1400, 0, "label", 0}, // up to the end mark
		{0x1000, 0x100, "outer", 1},
		{0x1040, 0x10, "inner", 1},
		{0x1050, 0, "inner_label", 0}, // inside of outer: left out
		{0x1200, 0x10, "__write", 1},
		{0x1200, 0x10, "write", 1},
		{0x1200, 0x10, "a_local_alias", 0},
		{0x1300, 0x10, "bb", 1},
		{0x1300, 0x10, "aa", 1},
		{0x1300, 0x10, "aaa", 1},
		{0x500, 0x10, "below", 1},
		{0x1000 + 1<<32, 0x10, "above", 1},
		{0x1600, 0x10, "", 1},
		{0x1700, 0x10, strings.Repeat("n", maxName+1), 1},
	} {
		if err := b.Add(s.start, s.size, []byte(s.name), s.preference); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.End(0x1480), b.End(0x1300), b.End(0)); err != nil {
		t.Fatal(err)
	}
	table := b.Build()
	checkTable(t, table)
	for _, test := range []struct {
		addr uint64
		want string
	}{
		{0xfff, ""},
		{0x1000, "outer"},
		{0x1040, "inner"},
		{0x104f, "inner"},
		{0x1050, "outer"},
		{0x10ff, "outer"},
		{0x1100, ""},
		{0x1200, "write"},
		{0x1300, "aa"},
		{0x1310, ""},
		{0x147f, "label"},
		{0x1480, ""},
		{0x1600, ""},
		{0x1700, strings.Repeat("n", maxName)},
		{0x1000 + 1<<32, ""},
		{1<<64 - 1, ""},
	} {
		name := ""
		if i, ok := table.Find(test.addr); ok {
			name = table.Name(i)
		}
		if name != test.want {
			t.Errorf("%#x is %q, want %q", test.addr, name, test.want)
		}
	}
	if (new(TableBuilder)).Build().Len() != 0 {
		t.Error("empty builder makes symbols")
	}
}

func TestTableIsBounded(t *testing.T) {
	var b TableBuilder
	name := []byte(strings.Repeat("n", maxName))
	var err error
	n := 0
	for ; err == nil && n < maxSymbols; n++ {
		err = b.Add(uint64(n), 1, name, 0)
	}
	if !errors.Is(err, ErrTooLarge) || n > maxNameBytes/maxName {
		t.Errorf("%d names of %d bytes: error %v, want %v", n, maxName, err, ErrTooLarge)
	}
}

// Names of neighbours share what they begin with, in memory too: 300 bytes are more than a byte can
// say.
func TestTableNames(t *testing.T) {
	var b TableBuilder
	var names []string
	for i := range 100 {
		name := fmt.Sprintf("%s%d", strings.Repeat("n", []int{1, 200, 255, 300}[i%4]), i)
		names = append(names, name)
		if err := b.Add(uint64(16*i), 16, []byte(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	table := b.Build()
	for i, want := range names {
		if got := table.Name(i); got != want {
			t.Errorf("symbol %d is named %q, want %q", i, got, want)
		}
	}
	for i, got := range table.Names() {
		if got != names[i] {
			t.Errorf("symbol %d is named %q in turn, want %q", i, got, names[i])
		}
	}
	if whole := int64(len(strings.Join(names, "\x00"))); table.Bytes() > whole*2/3 {
		t.Errorf("a table of %d bytes for names of %d", table.Bytes(), whole)
	}
}

// checkTable checks what every table must hold: ascending symbols, each found at its start under a
// name.
func checkTable(t *testing.T, table *Table) {
	t.Helper()
	for i := range table.Len() {
		if i > 0 && table.Start(i-1) >= table.Start(i) {
			t.Fatalf("symbols %d and %d are not in order", i-1, i)
		}
		name := table.Name(i)
		if name == "" || len(name) > maxName {
			t.Fatalf("symbol %d is named %q", i, name)
		}
		if at, ok := table.Find(table.Start(i)); ok && at != i {
			t.Fatalf("%#x finds symbol %d, want %d", table.Start(i), at, i)
		}
	}
}

func ExampleTable() {
	b := TableBuilder{Base: 0x1000}
	if err := b.Add(0x1000, 0x40, []byte("main"), 0); err != nil {
		fmt.Println(err)
	}
	table := b.Build()
	if i, ok := table.Find(0x1010); ok {
		fmt.Printf("%s+%#x\n", table.Name(i), 0x1010-table.Start(i))
	}
	// Output: main+0x10
}
