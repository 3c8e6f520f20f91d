package probesite

import (
	"strconv"
	"strings"
)

// Names returns the names of the file's functions in the form of Entries, each once and in no
// order: C++ names without parameters if these identify the symbol, otherwise the linker's names.
// It is an error if the file has no names.
func (f *Finder) Names() ([]string, error) {
	table, err := f.symbols()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var names []string
	for i := range table.Len() {
		name, _, _ := strings.Cut(table.Name(i), "@") // a version: realpath@@GLIBC_2.3
		name, _, _ = strings.Cut(name, ".")           // a copy or a piece
		if plain := unmangled(name); plain != "" {
			name = plain
		}
		if name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names, nil
}

// Linked returns the linker's names of the functions that match, without copies and pieces:
// instances of templates have no other name.
func (f *Finder) Linked(match func(name string) bool) (names []string, err error) {
	table, err := f.symbols()
	if err != nil {
		return nil, err
	}
	for i := range table.Len() {
		if name := table.Name(i); match(name) && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	return names, nil
}

// unmangled returns the name for which want makes the beginning of this symbol; "" if there is
// none, as for templates.
func unmangled(symbol string) string {
	rest, ok := strings.CutPrefix(symbol, "_Z")
	if !ok {
		return ""
	}
	rest, nested := strings.CutPrefix(rest, "N")
	if nested {
		rest = strings.TrimPrefix(rest, "K")
	} else {
		rest = strings.TrimPrefix(rest, "L")
	}
	var parts []string
	for {
		digits := 0
		for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '9' {
			digits++
		}
		length, err := strconv.Atoi(rest[:digits])
		if err != nil || length <= 0 || length > len(rest)-digits {
			return ""
		}
		parts = append(parts, rest[digits:digits+length])
		rest = rest[digits+length:]
		switch {
		case rest == "" || rest[0] == 'I': // parameters follow, or those of a template
			return ""
		case !nested:
			return parts[0]
		case rest[0] == 'E' && len(rest) > 1:
			return strings.Join(parts, "::")
		}
	}
}
