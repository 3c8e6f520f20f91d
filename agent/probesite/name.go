package probesite

import (
	"strconv"
	"strings"
)

// A role is what a symbol is to the name that was asked for.
type role uint8

const (
	unrelated role = iota
	itself         // the function
	copied         // a copy of it for some callers: .constprop, .isra
	part           // the rest of it, whose first lines were inlined into callers: .part
	cold           // a piece that is jumped to, never called: .cold
)

// A wanted is a name that was asked for.
type wanted struct {
	name     string
	mangled  []string // what C++ symbols of that name begin with; nil if the name is one of the linker's
	suffixed bool     // the name has a clone's suffix itself
}

// want reads a name: one of the linker's (memcpy, _ZN13ObjectMonitor5enterEP10JavaThread, f.constprop.0), or a C++ name
// without parameters (ObjectMonitor::enter), which stands for all overloads. Templates have to be asked for mangled.
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
	// Itanium C++ ABI, section 5.1: nested names are between N and E, K marks member functions that are const, L names
	// with internal linkage.
	if len(parts) > 1 {
		w.mangled = []string{"_ZN" + nested.String() + "E", "_ZNK" + nested.String() + "E"}
	} else {
		w.mangled = []string{"_Z" + nested.String(), "_ZL" + nested.String()}
	}
	return w
}

// is says what symbol is to the wanted name, and by which kind of copy.
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

// roleOf reads what follows the first dot: constprop.0, isra.0.part.0, part.0.cold. A piece of a copy is a piece.
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
