package main

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Aliases give one name to functions that have several, as free and cfree of libc: profilers differ in
// which one they show.
type aliases map[string]string

// aliasesIn returns those of the files that a process executes.
func aliasesIn(pid int) (aliases, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	a := aliases{}
	var read []string
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.Contains(fields[1], "x") || !strings.HasPrefix(fields[5], "/") ||
			slices.Contains(read, fields[5]) {
			continue
		}
		read = append(read, fields[5])
		if err := a.addFile(fields[5]); err != nil {
			return nil, fmt.Errorf("%s: %w", fields[5], err)
		}
	}
	return a, nil
}

// addFile adds those of a file, and of the file with its debug information if that is installed.
func (a aliases) addFile(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	at := map[uint64]string{}
	a.add(f, at)
	if note := f.Section(".note.gnu.build-id"); note != nil {
		const head = 16
		if id, err := note.Data(); err == nil && len(id) > head+1 {
			debug := fmt.Sprintf("/usr/lib/debug/.build-id/%x/%x.debug", id[head], id[head+1:])
			if f, err := elf.Open(debug); err == nil {
				a.add(f, at)
				f.Close()
			}
		}
	}
	return nil
}

// add adds those of a table of symbols; at has the one name of each address.
func (a aliases) add(f *elf.File, at map[uint64]string) {
	for _, list := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		symbols, err := list()
		if err != nil {
			continue // it has none
		}
		for _, s := range symbols {
			if (elf.ST_TYPE(s.Info) != elf.STT_FUNC && elf.ST_TYPE(s.Info) != elf.STT_GNU_IFUNC) || s.Section == elf.SHN_UNDEF {
				continue
			}
			if first, ok := at[s.Value]; ok {
				a[s.Name] = first
			} else {
				at[s.Value] = a.one(s.Name)
			}
		}
	}
}

// one returns the one name of a symbol: without its version, "?" if it is none.
func (a aliases) one(symbol string) string {
	symbol, _, _ = strings.Cut(symbol, "@")
	symbol = strings.TrimPrefix(symbol, "__vdso_") // which the vDSO has besides
	if symbol == "" || strings.HasPrefix(symbol, "[") || strings.Contains(symbol, "+0x") {
		return "?"
	}
	if one, ok := a[symbol]; ok {
		return one
	}
	return symbol
}
