package probesite

import (
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Entries returns places that every call of a function passes with its arguments still in their
// registers. That is its first instruction if the kernel emulates it. Otherwise it is the first
// emulated one after instructions that write to no argument register, do not leave, and are not
// branch targets.
//
// name is a linker's name, or a C++ name without parameters, which means all overloads. A compiler
// may have made several symbols from a function. Copies for some callers (.constprop, .isra) are
// included, marked by Site.Clone. Its rest without the first lines (.part) is not: only calls that
// pass the first lines, which were inlined into callers, reach it. Neither is code that is only
// jumped to (.cold). Such symbols can be requested by their whole names.
//
// ErrNotFound if there is no such symbol, ErrNoSite if one of the functions has no such
// instruction: probing only the others would silently lose calls. Calls that were inlined
// everywhere cannot be observed.
func (f *Finder) Entries(name string) ([]Site, error) {
	return f.entries(name, set(argumentOrder[:]...))
}

// EntriesWith is Entries if only the first arguments are needed, as others may have been
// overwritten, and the return address, which the stack pointer leads to.
func (f *Finder) EntriesWith(name string, arguments int) ([]Site, error) {
	return f.entries(name, set(argumentOrder[:arguments]...)|set(elffile.RSP))
}

func (f *Finder) entries(name string, kept registers) ([]Site, error) {
	if err := f.needX86(); err != nil {
		return nil, err
	}
	functions, err := f.named(name)
	if err != nil {
		return nil, err
	}
	var sites []Site
	pieces := ""
	for _, fn := range functions {
		if fn.role != itself && fn.role != copied {
			pieces += " " + fn.name
			continue
		}
		s, err := f.entry(fn, kept)
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", fn.name, err)
		}
		sites = append(sites, s)
	}
	if len(sites) == 0 {
		return nil, fmt.Errorf("function %s was inlined, only fragments of it remain (%s): %w", name, pieces[1:],
			ErrNotFound)
	}
	return sorted(sites), nil
}

// entry finds the site at the beginning of a function where these registers still have their values
// from the call.
func (f *Finder) entry(fn function, kept registers) (Site, error) {
	l, err := f.list(fn)
	if err != nil {
		return Site{}, err
	}
	for n := range min(maxAhead, len(l.at)) {
		k := l.kinds[n]
		if f.emulates(k) {
			if n > 0 && l.cut != nil {
				return Site{}, fmt.Errorf("unknown whether a loop leads back to the %s at +%#x (%w): %w",
					k, l.at[n], l.cut, ErrNoSite)
			}
			if n > 0 && l.joined(1, n) {
				return Site{}, fmt.Errorf("a loop leads back to the %s at +%#x: %w", k, l.at[n], ErrNoSite)
			}
			s, err := f.site(l.address(n), k)
			s.Function, s.Clone, s.Distance = fn.name, fn.clone, n
			return s, err
		}
		switch e := effectOf(l.bytes(n)); {
		case e == anything:
			return Site{}, fmt.Errorf("%s at +%#x comes before any instruction that the kernel emulates: %w",
				text(l.bytes(n)), l.at[n], ErrNoSite)
		case e.writes&kept != 0:
			return Site{}, fmt.Errorf("%s at +%#x writes to an argument before any instruction that the kernel "+
				"emulates: %w",
				text(l.bytes(n)), l.at[n], ErrNoSite)
		}
	}
	return Site{}, fmt.Errorf("the kernel emulates none of the first %d instructions: %w",
		min(maxAhead, len(l.at)), ErrNoSite)
}

// Towards returns the places in a function where it calls another one directly, or goes on there
// with a jump: the other one's arguments are in their registers. Both are named as for Entries,
// which this replaces where the kernel emulates nothing before a function hands its arguments on.
// ErrNotFound if there is no such symbol, ErrNoSite if no place leads there.
func (f *Finder) Towards(callee, from string) (sites []Site, err error) {
	if err := f.needX86(); err != nil {
		return nil, err
	}
	callers, err := f.named(from)
	if err != nil {
		return nil, err
	}
	callees, err := f.named(callee)
	if err != nil {
		return nil, err
	}
	for _, caller := range callers {
		l, err := f.list(caller)
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", caller.name, err)
		}
		for n, k := range l.kinds {
			if k != Call && k != Jump {
				continue
			}
			i, err := Decode(l.bytes(n))
			if err != nil {
				return nil, fmt.Errorf("function %s: %w", caller.name, err)
			}
			to, _ := i.Branch(l.address(n))
			if !slices.ContainsFunc(callees, func(fn function) bool { return fn.role == itself && fn.start == to }) {
				continue
			}
			s, err := f.site(l.address(n), k)
			if err != nil {
				return nil, err
			}
			s.Function, s.Clone, s.Distance = caller.name, caller.clone, n
			sites = append(sites, s)
		}
	}
	if len(sites) == 0 {
		return nil, fmt.Errorf("no way from function %s to %s: %w", from, callee, ErrNoSite)
	}
	return sorted(sites), nil
}
