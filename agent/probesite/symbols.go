package probesite

import (
	"debug/elf"
	"fmt"
	"sort"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A function is one symbol of code.
type function struct {
	name       string
	start, end uint64 // addresses; what lies between is this function's and no inner symbol's
	role       role
	clone      string
}

// named returns the functions that a name means, in the order of their addresses. ErrNotFound if there are none,
// ErrTooLarge if there are too many.
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
	for i := range table.Len() {
		symbol := table.Name(i)
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

// Variable returns the address of a variable, as the file counts, by its symbol as the linker has it. ErrNotFound if there
// is none, or it is no variable.
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

// aliased finds a name that is not in the table because another symbol at the same address is.
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

// function returns the extent of symbol i. The table does not tell sizes, but which symbol covers an address.
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
