package probesite

import (
	"debug/elf"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A function is one symbol of code.
type function struct {
	name       string
	start, end uint64 // addresses; the range belongs to this function and to no inner symbol
	role       role
	clone      string
}

// named returns the functions that a name matches, in the order of their addresses. ErrNotFound if
// there are none, ErrTooLarge if there are too many.
func (f *Finder) named(name string) ([]function, error) {
	if fn, ok := f.landmarks[name]; ok {
		return []function{fn}, nil
	}
	table, err := f.symbols()
	if err != nil {
		return nil, fmt.Errorf("symbol %s: %w", name, err)
	}
	w := want(name)
	var found []function
	for i, symbol := range table.Names() {
		r, clone := w.is(symbol)
		if r == unrelated {
			continue
		}
		if len(found) == maxMatches {
			return nil, fmt.Errorf("symbol %s means more than %d functions: %w", name, maxMatches, elffile.ErrTooLarge)
		}
		fn := f.function(table, i)
		fn.name, fn.role, fn.clone = symbol, r, clone
		found = append(found, fn)
	}
	if len(found) == 0 {
		return f.aliased(table, name)
	}
	return found, nil
}

// Has reports whether there is a function of that name, whole or in pieces.
func (f *Finder) Has(name string) bool {
	_, err := f.named(name)
	return err == nil
}

// Variable returns the address of a variable, in the file's addresses, by its linker's name.
// ErrNotFound if there is none, or it is not a variable.
func (f *Finder) Variable(name string) (uint64, error) {
	symbols, err := f.file.FindSymbols(name)
	if err != nil {
		return 0, fmt.Errorf("symbol %s: %w", name, err)
	}
	symbol, ok := symbols[name]
	if !ok || symbol.Type != elf.STT_OBJECT {
		return 0, fmt.Errorf("variable %s: %w", name, ErrNotFound)
	}
	return symbol.Value, nil
}

// aliased finds a name that is missing in the table because another symbol has the same address.
func (f *Finder) aliased(table *elffile.Table, name string) ([]function, error) {
	symbols, err := f.file.FindSymbols(name)
	if err != nil {
		return nil, fmt.Errorf("symbol %s: %w", name, err)
	}
	symbol, ok := symbols[name]
	if !ok {
		return nil, fmt.Errorf("symbol %s: %w", name, ErrNotFound)
	}
	i, ok := table.Find(symbol.Value)
	if !ok || table.Start(i) != symbol.Value {
		return nil, fmt.Errorf("symbol %s at %#x is not a function: %w", name, symbol.Value, ErrNotFound)
	}
	fn := f.function(table, i)
	fn.name, fn.role = name, itself
	return []function{fn}, nil
}

// function returns the extent of symbol i. The table has no sizes, but it shows which symbol covers
// an address.
func (f *Finder) function(table *elffile.Table, i int) function {
	start := table.Start(i)
	room := uint64(maxFunction)
	if i+1 < table.Len() {
		room = min(room, table.Start(i+1)-start)
	}
	size := sort.Search(int(room), func(n int) bool {
		at, ok := table.Find(start + uint64(n))
		return !ok || at != i
	})
	return function{start: start, end: start + uint64(size)}
}

// functionAt returns the function around addr.
func (f *Finder) functionAt(addr uint64) (function, bool) {
	if len(f.landmarks) > 0 {
		fn, err := f.unnamed(addr)
		return fn, err == nil
	}
	table, err := f.symbols()
	if err != nil {
		return function{}, false
	}
	i, ok := table.Find(addr)
	if !ok {
		return function{}, false
	}
	fn := f.function(table, i)
	fn.name, fn.role = table.Name(i), itself
	return fn, addr < fn.end
}

// A role is the relation of a symbol to the requested name.
type role uint8

const (
	unrelated role = iota
	itself         // the function
	copied         // a copy of it for some callers: .constprop, .isra
	part           // the rest of it, whose first lines were inlined into callers: .part
	cold           // a piece that is jumped to, never called: .cold
)

// A wanted is a requested name.
type wanted struct {
	name     string
	mangled  []string // what C++ symbols of that name begin with; nil for a linker's name
	suffixed bool     // the name has a clone's suffix itself
}

// want parses a name: a linker's (memcpy, _ZN13ObjectMonitor5enterEP10JavaThread, f.constprop.0),
// or a C++ name without parameters (ObjectMonitor::enter), which matches all overloads. Templates
// must be given mangled.
func want(name string) wanted {
	w := wanted{name: name, suffixed: strings.Contains(name, ".")}
	if strings.HasPrefix(name, "_Z") || w.suffixed || name == "" {
		return w
	}
	parts := strings.Split(name, "::")
	var nested strings.Builder
	for _, p := range parts {
		if p == "" {
			return w
		}
		nested.WriteString(strconv.Itoa(len(p)))
		nested.WriteString(p)
	}
	// Itanium C++ ABI, section 5.1: nested names are between N and E, K marks member functions that
	// are const, L names with internal linkage.
	if len(parts) > 1 {
		w.mangled = []string{"_ZN" + nested.String() + "E", "_ZNK" + nested.String() + "E"}
	} else {
		w.mangled = []string{"_Z" + nested.String(), "_ZL" + nested.String()}
	}
	return w
}

// is returns the role of symbol for the wanted name, and its kind of copy.
func (w *wanted) is(symbol string) (r role, clone string) {
	if symbol == w.name {
		return itself, ""
	}
	if w.suffixed {
		return unrelated, ""
	}
	base, suffix, _ := strings.Cut(symbol, ".")
	base, _, _ = strings.Cut(base, "@") // a version: realpath@@GLIBC_2.3
	if !w.matches(base) {
		return unrelated, ""
	}
	return roleOf(suffix)
}

func (w *wanted) matches(base string) bool {
	if base == w.name {
		return true
	}
	for _, prefix := range w.mangled {
		if rest, ok := strings.CutPrefix(base, prefix); ok && rest != "" { // parameters follow, v if there are none
			return true
		}
	}
	return false
}

// roleOf parses the part after the first dot: constprop.0, isra.0.part.0, part.0.cold. A piece of a
// copy is a piece.
func roleOf(suffix string) (r role, clone string) {
	r = itself
	if suffix == "" {
		return r, ""
	}
	for word := range strings.SplitSeq(suffix, ".") {
		switch word {
		case "cold":
			return cold, ""
		case "part":
			r = part
		case "constprop", "isra":
			clone = word
			if r == itself {
				r = copied
			}
		}
	}
	if r == part {
		clone = ""
	}
	return r, clone
}
