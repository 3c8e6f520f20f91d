package probesite

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Functions of HotSpot that are found in a libjvm without symbols, through what every libjvm must
// have: the tables of functions that JNI and the VM's native methods are called by. Whatever is
// found must look in all points as it does in JDK 8 to 28, and be the only function of the file
// that does; otherwise it is not found.
//
// Unsafe.park(boolean, long) is in a table of native methods by its name. It calls Parker::park
// with a flag that it has just computed, and with its own last argument.
//
// MonitorEnter is entry 217 of the function table of JNI. It calls ObjectSynchronizer::jni_enter,
// which clears a flag of the thread, gets the monitor and sets the flag again: by
// ObjectMonitor::enter(thread) of what the call before it returned (JDK 8 to 23), or by
// inflate_and_enter(object, lock, cause, thread, thread) (JDK 24 and later). That one has three
// callers, of which ObjectSynchronizer::enter, before JDK 26 LightweightSynchronizer::enter, is the
// one with callers of its own everywhere in the VM.

// ParkEntry returns the name by which Finder knows the function in which threads of
// java.util.concurrent wait. That is its symbol; without one, the function is searched for.
func (f *Finder) ParkEntry() (name string, err error) {
	const park = "Parker::park"
	if _, err := f.named(park); err == nil || !errors.Is(err, ErrNotFound) {
		return park, err
	}
	native, err := f.nativeMethod("park", "(ZJ)V")
	if err != nil {
		return "", fmt.Errorf("the VM's native method Unsafe.park: %w", err)
	}
	callee, err := f.calleeWithArguments(native)
	if err != nil {
		return "", fmt.Errorf("the function that Unsafe.park calls to wait: %w", err)
	}
	return park, f.mark(park, callee)
}

// UnparkEntry returns the name by which Finder knows the native method Unsafe.unpark, which gets
// the thread to wake as its third argument: its symbol; without one, it is in the table in which
// Unsafe.park is.
func (f *Finder) UnparkEntry() (name string, err error) {
	const unpark = "Unsafe_Unpark"
	if _, err := f.named(unpark); err == nil || !errors.Is(err, ErrNotFound) {
		return unpark, err
	}
	native, err := f.nativeMethod("unpark", "(Ljava/lang/Object;)V")
	if err != nil {
		return "", fmt.Errorf("the VM's native method Unsafe.unpark: %w", err)
	}
	return unpark, f.mark(unpark, native)
}

// A MonitorEntry is the function that threads call for a monitor that they cannot acquire by
// themselves.
type MonitorEntry struct {
	Function string // the name by which Finder knows it
	// Handle says that its first argument is a handle of the object: the address of a word that
	// refers to it. Otherwise it is the ObjectMonitor.
	Handle bool
}

// MonitorEntry searches for that function in a file without symbols.
func (f *Finder) MonitorEntry() (MonitorEntry, error) {
	functions, err := f.jniFunctions(jniMonitorEnter)
	if err != nil {
		return MonitorEntry{}, fmt.Errorf("the JNI function MonitorEnter: %w", err)
	}
	var found jniEnter
	for _, fn := range functions {
		if err := f.searchEnter(fn, &found); err != nil {
			return MonitorEntry{}, fmt.Errorf("the function that JNI's MonitorEnter calls: %w", err)
		}
	}
	switch {
	case len(found.inflates) == 1:
		callee, err := f.callerEverywhere(found.inflates[0], found.function)
		if err != nil {
			return MonitorEntry{}, fmt.Errorf("callers of inflate_and_enter: %w", err)
		}
		const name = "ObjectSynchronizer::enter"
		return MonitorEntry{name, true}, f.mark(name, callee)
	case len(found.inflates) == 0 && len(found.enters) == 1:
		const name = "ObjectMonitor::enter"
		return MonitorEntry{name, false}, f.mark(name, found.enters[0])
	}
	return MonitorEntry{}, fmt.Errorf("%d functions look like inflate_and_enter, %d like ObjectMonitor::enter, "+
		"instead of one: %w",
		len(found.inflates), len(found.enters), ErrNotFound)
}

// mark names the function that begins at addr.
func (f *Finder) mark(name string, addr uint64) error {
	fn, err := f.unnamed(addr)
	if err != nil {
		return err
	}
	if fn.start != addr {
		return fmt.Errorf("%#x is inside of the function at %#x: %w", addr, fn.start, ErrNotFound)
	}
	if f.landmarks == nil {
		f.landmarks = map[string]function{}
	}
	fn.name = name
	f.landmarks[name] = fn
	return nil
}

// unnamed returns the function around addr without using symbols. ErrTooLarge if it is called too
// often: each call reads all symbols that the file has.
func (f *Finder) unnamed(addr uint64) (function, error) {
	if f.lookups++; f.lookups > maxLookups {
		return function{}, fmt.Errorf("more than %d functions are looked up: %w", maxLookups, elffile.ErrTooLarge)
	}
	around, err := f.file.FunctionAround(addr)
	if err != nil {
		return function{}, err
	}
	if around.End-around.Start > maxFunction {
		return function{}, fmt.Errorf("function at %#x has %d bytes: %w", around.Start, around.End-around.Start,
			elffile.ErrTooLarge)
	}
	return function{start: around.Start, end: around.End, role: itself}, nil
}

// isCode reports whether addr is in code that the file has.
func (f *Finder) isCode(addr uint64) bool {
	for _, p := range f.file.Segments() {
		if elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0 && addr >= p.Vaddr &&
			addr-p.Vaddr < p.Filesz {
			return true
		}
	}
	return false
}

// readAt fills buffer from an address of the file.
func (f *Finder) readAt(addr uint64, buffer []byte) bool {
	offset, ok := f.file.AddressToOffset(addr)
	if !ok {
		return false
	}
	n, _ := f.bytes.ReadAt(buffer, int64(offset))
	return n == len(buffer)
}

// isText reports whether text, followed by a NUL, is at addr.
func (f *Finder) isText(addr uint64, text string) bool {
	buffer := make([]byte, len(text)+1)
	return f.readAt(addr, buffer) && string(buffer) == text+"\x00"
}

// nativeMethod returns the function that the VM registers for a native method: name, signature and
// function are adjacent (JNINativeMethod of jni.h). A renamed class is there under both names, with
// one function.
func (f *Finder) nativeMethod(name, signature string) (uint64, error) {
	pointers, err := f.file.Pointers()
	if err != nil {
		return 0, err
	}
	found := uint64(0)
	reads := 0
	for i := 0; i+2 < len(pointers); i++ {
		p := pointers[i : i+3]
		if p[1].At != p[0].At+8 || p[2].At != p[0].At+16 || f.isCode(p[0].To) || f.isCode(p[1].To) ||
			!f.isCode(p[2].To) {
			continue
		}
		if reads++; reads > maxTexts {
			return 0, fmt.Errorf("more than %d native methods: %w", maxTexts, elffile.ErrTooLarge)
		}
		if !f.isText(p[0].To, name) || !f.isText(p[1].To, signature) {
			continue
		}
		if found != 0 && found != p[2].To {
			return 0, fmt.Errorf("%s%s has several functions: %w", name, signature, ErrNotFound)
		}
		found = p[2].To
	}
	if found == 0 {
		return 0, fmt.Errorf("%s%s: %w", name, signature, ErrNotFound)
	}
	return found, nil
}

// The function table of JNI (Java Native Interface Specification, chapter 4): four entries are
// null, the first function is GetVersion, and JNI 1.6 has 229.
const (
	jniNulls        = 4
	jniFunctions    = 229
	jniMonitorEnter = 217 // its entry
)

// jniFunctions returns an entry of all tables that look like the function table of JNI. HotSpot has
// a second one with functions that check their arguments.
func (f *Finder) jniFunctions(entry int) ([]uint64, error) {
	pointers, err := f.file.Pointers()
	if err != nil {
		return nil, err
	}
	var found []uint64
	for begin := 0; begin < len(pointers); {
		end := begin
		for end < len(pointers) && pointers[end].At == pointers[begin].At+8*uint64(end-begin) &&
			f.isCode(pointers[end].To) {
			end++
		}
		var nulls [8 * jniNulls]byte
		if end-begin >= jniFunctions && f.readAt(pointers[begin].At-uint64(len(nulls)), nulls[:]) &&
			nulls == [len(nulls)]byte{} {
			if len(found) == maxTables {
				return nil, fmt.Errorf("more than %d tables: %w", maxTables, elffile.ErrTooLarge)
			}
			found = append(found, pointers[begin+entry-jniNulls].To)
		}
		begin = max(end, begin+1)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("table of functions: %w", ErrNotFound)
	}
	return found, nil
}

// listAt disassembles the function that begins at addr. It returns nil if none does, or if it is
// larger than the functions searched for.
func (f *Finder) listAt(addr uint64) *listing {
	fn, err := f.unnamed(addr)
	if err != nil || fn.start != addr || fn.end-fn.start > maxLandmark {
		return nil
	}
	l, err := f.list(fn)
	if err != nil || l.cut != nil {
		return nil
	}
	return l
}

// calleeWithArguments returns the function that the one at addr calls with a computed flag as the
// second argument, and its own fourth argument as the third.
func (f *Finder) calleeWithArguments(addr uint64) (uint64, error) {
	l := f.listAt(addr)
	if l == nil {
		return 0, fmt.Errorf("cannot decode the function at %#x: %w", addr, ErrNotFound)
	}
	kept := l.copyOf(x86asm.RCX)
	found := uint64(0)
	for n := range l.at {
		callee, ok := l.callee(n)
		if !ok || kept == nil || !l.isCopy(n, elffile.RDX, kept) || !l.isFlag(n, elffile.RSI) {
			continue
		}
		if found != 0 && found != callee {
			return 0, fmt.Errorf("function at %#x calls several with its arguments: %w", addr, ErrNotFound)
		}
		found = callee
	}
	if found == 0 {
		return 0, fmt.Errorf("function at %#x calls none with its arguments: %w", addr, ErrNotFound)
	}
	return found, nil
}

// A jniEnter is the result of the search for ObjectSynchronizer::jni_enter.
type jniEnter struct {
	function uint64   // it
	inflates []uint64 // functions that may be inflate_and_enter
	enters   []uint64 // functions that may be ObjectMonitor::enter
}

// searchEnter searches for jni_enter in the function at addr, and in its callees.
func (f *Finder) searchEnter(addr uint64, found *jniEnter) error {
	outer := f.listAt(addr)
	if outer == nil {
		return nil // it may only look like the function; then another one is
	}
	all := []uint64{addr}
	for n := range outer.at {
		if callee, ok := outer.callee(n); ok && !slices.Contains(all, callee) {
			all = append(all, callee)
		}
	}
	if len(all) > maxCallees {
		return fmt.Errorf("function at %#x calls more than %d others: %w", addr, maxCallees, elffile.ErrTooLarge)
	}
	for _, addr := range all {
		l := f.listAt(addr)
		if l == nil {
			continue
		}
		before := len(found.inflates) + len(found.enters)
		for _, thread := range l.toggled() {
			l.enters(thread, found)
		}
		if len(found.inflates)+len(found.enters) > before {
			found.function = addr
		}
	}
	return nil
}

// enters adds the functions that l calls in the way of jni_enter, with the thread in a register.
func (l *listing) enters(thread x86asm.Reg, found *jniEnter) {
	for n := range l.at {
		callee, ok := l.callee(n)
		if !ok {
			continue
		}
		if l.isCopy(n, elffile.R8, thread) && l.isCopy(n, elffile.RCX, thread) &&
			!slices.Contains(found.inflates, callee) {
			found.inflates = append(found.inflates, callee)
		}
		if l.isCopy(n, elffile.RSI, thread) && l.isCopy(n, elffile.RDI, x86asm.RAX) && l.resultOfCall(n) &&
			!slices.Contains(found.enters, callee) {
			found.enters = append(found.enters, callee)
		}
	}
}

// callerEverywhere returns the only caller of a function, apart from one of them, that has at least
// three callers.
func (f *Finder) callerEverywhere(callee, apart uint64) (uint64, error) {
	callers, err := f.callersOf(callee)
	if err != nil {
		return 0, err
	}
	if len(callers) > maxInflaters {
		return 0, fmt.Errorf("%d instead of three: %w", len(callers), ErrNotFound)
	}
	found := uint64(0)
	for _, c := range callers {
		if c == apart {
			continue
		}
		further, err := f.callersOf(c)
		if err != nil {
			return 0, err
		}
		if len(further) < 3 {
			continue
		}
		if found != 0 {
			return 0, fmt.Errorf("those at %#x and %#x both have many callers: %w", found, c, ErrNotFound)
		}
		found = c
	}
	if found == 0 {
		return 0, fmt.Errorf("none of %d has many callers: %w", len(callers), ErrNotFound)
	}
	return found, nil
}

// callersOf returns the beginnings of the functions with a call of, or a jump to, a function.
func (f *Finder) callersOf(addr uint64) ([]uint64, error) {
	branches, err := f.scan([]function{{start: addr}})
	if err != nil {
		return nil, err
	}
	var callers []uint64
	for _, at := range branches {
		fn, err := f.unnamed(at)
		if errors.Is(err, elffile.ErrTooLarge) {
			return nil, err
		}
		if err != nil || fn.start == addr || slices.Contains(callers, fn.start) {
			continue
		}
		if len(callers) == maxCallees {
			return nil, fmt.Errorf("function at %#x has more than %d callers: %w", addr, maxCallees,
				elffile.ErrTooLarge)
		}
		l, err := f.list(fn)
		if err != nil {
			return nil, err
		}
		if l.begins(at) {
			callers = append(callers, fn.start)
		}
	}
	return callers, nil
}
