package hotspot

import (
	"fmt"
	"strings"
)

// A field is where in an object a value is, and how wide. The zero field is absent.
type field struct {
	offset uint32 // bytes from the object's start
	width  uint8  // bytes
	known  bool
}

// end is the offset of the first byte behind the field.
func (f field) end() uint64 { return uint64(f.offset) + uint64(f.width) }

// of returns the field's value in object, zero-extended; 0 if it is absent or object is too short.
func (f field) of(object []byte) uint64 {
	if !f.known || f.end() > uint64(len(object)) {
		return 0
	}
	return number(object[f.offset:f.end()])
}

// signedOf returns the field's value in object, sign-extended.
func (f field) signedOf(object []byte) int64 {
	unused := 64 - 8*uint(f.width)
	return int64(f.of(object)<<unused) >> unused
}

// at is the field's address in the object at addr.
func (f field) at(addr uint64) uint64 { return addr + uint64(f.offset) }

// Bounds on what the tables may say, so that nobody can make the agent read much at once. The largest offset seen is
// 1,560 (JavaThread), the largest type that is read whole has 352 bytes (nmethod).
const (
	maxOffset = 16 << 10
	maxSize   = 4 << 10
)

// A resolver looks names up in the VM's tables, and remembers which ones were missing.
type resolver struct {
	*structs
	missing []string
}

// field returns the first of the named fields that the VM has; it is an error if it has none.
func (r *resolver) field(names ...string) field {
	f := r.optional(names...)
	if !f.known {
		r.missing = append(r.missing, strings.Join(names, " or "))
	}
	return f
}

// optional returns the first of the named fields that the VM has, or an absent one.
func (r *resolver) optional(names ...string) field {
	for _, name := range names {
		if f, ok := r.fields[name]; ok && !f.static && f.value <= maxOffset {
			return field{offset: uint32(f.value), width: f.width, known: true}
		}
	}
	return field{}
}

// static returns the address of a static variable; it is an error if it is missing.
func (r *resolver) static(name string) uint64 {
	addr := r.optionalStatic(name)
	if addr == 0 {
		r.missing = append(r.missing, name)
	}
	return addr
}

// optionalStatic returns the address of a static variable, or 0.
func (r *resolver) optionalStatic(name string) uint64 {
	if f, ok := r.fields[name]; ok && f.static {
		return f.value
	}
	return 0
}

// size returns the size of a type in bytes; it is an error if it is missing.
func (r *resolver) size(name string) uint64 {
	n, ok := r.sizes[name]
	if !ok || n == 0 || n > maxSize {
		r.missing = append(r.missing, "sizeof("+name+")")
	}
	return n
}

// constant returns the first of the named constants that the VM has, or 0.
func (r *resolver) constant(names ...string) int64 {
	for _, name := range names {
		if n, ok := r.constants[name]; ok {
			return n
		}
	}
	return 0
}

// err lists everything that was missing, in one error.
func (r *resolver) err() error {
	if len(r.missing) == 0 {
		return nil
	}
	return fmt.Errorf("unknown libjvm: missing %s", strings.Join(r.missing, ", "))
}

func lastEnd(fields ...field) (end uint64) {
	for _, f := range fields {
		if f.known {
			end = max(end, f.end())
		}
	}
	return end
}
