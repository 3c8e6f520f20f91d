package vmstructs

import (
	"fmt"
	"strings"
)

// A Field is where in an object a value is, and how wide. The zero field is absent.
type Field struct {
	Offset uint32 // bytes from the object's start
	Width  uint8  // bytes
	Known  bool
}

// Of is the address of the field of an object, 0 if there is no such object or field.
func (f Field) Of(object uint64) uint64 {
	if object == 0 || !f.Known {
		return 0
	}
	return f.At(object)
}

// End is the offset of the first byte behind the field.
func (f Field) End() uint64 { return uint64(f.Offset) + uint64(f.Width) }

// Read returns the field's value in object, zero-extended; 0 if it is absent or object is too short.
func (f Field) Read(object []byte) uint64 {
	if !f.Known || f.End() > uint64(len(object)) {
		return 0
	}
	return Number(object[f.Offset:f.End()])
}

// ReadSigned returns the field's value in object, sign-extended.
func (f Field) ReadSigned(object []byte) int64 {
	unused := 64 - 8*uint(f.Width)
	return int64(f.Read(object)<<unused) >> unused
}

// At is the field's address in the object at addr.
func (f Field) At(addr uint64) uint64 { return addr + uint64(f.Offset) }

// Bounds on what the tables may say, so that no process can make the agent read much at once. The
// largest offset in use is 1,560 (JavaThread), the largest type that is read whole has 352 bytes
// (nmethod).
const (
	MaxOffset = 16 << 10
	MaxSize   = 4 << 10
)

// A Resolver looks names up in the VM's tables, and collects the missing ones for Err.
type Resolver struct {
	*Tables
	Missing []string
}

// Field returns the first of the named fields that the VM has; it is an error if it has none.
func (r *Resolver) Field(names ...string) Field {
	f := r.Optional(names...)
	if !f.Known {
		r.Missing = append(r.Missing, strings.Join(names, " or "))
	}
	return f
}

// Optional returns the first of the named fields that the VM has, or an absent one.
func (r *Resolver) Optional(names ...string) Field {
	for _, name := range names {
		if f, ok := r.Fields[name]; ok && !f.static && f.value <= MaxOffset {
			return Field{Offset: uint32(f.value), Width: f.width, Known: true}
		}
	}
	return Field{}
}

// Static returns the address of a static variable; it is an error if it is missing.
func (r *Resolver) Static(name string) uint64 {
	addr := r.OptionalStatic(name)
	if addr == 0 {
		r.Missing = append(r.Missing, name)
	}
	return addr
}

// OptionalStatic returns the address of a static variable, or 0.
func (r *Resolver) OptionalStatic(name string) uint64 {
	if f, ok := r.Fields[name]; ok && f.static {
		return f.value
	}
	return 0
}

// Size returns the size of a type in bytes; it is an error if it is missing.
func (r *Resolver) Size(name string) uint64 {
	n, ok := r.Sizes[name]
	if !ok || n == 0 || n > MaxSize {
		r.Missing = append(r.Missing, "sizeof("+name+")")
	}
	return n
}

// Constant returns the first of the named constants that the VM has, or 0.
func (r *Resolver) Constant(names ...string) int64 {
	for _, name := range names {
		if n, ok := r.Constants[name]; ok {
			return n
		}
	}
	return 0
}

// Err lists everything that was missing, in one error.
func (r *Resolver) Err() error {
	if len(r.Missing) == 0 {
		return nil
	}
	return fmt.Errorf("unknown libjvm: missing %s", strings.Join(r.Missing, ", "))
}

// LastEnd is the offset behind the last of those fields that are known.
func LastEnd(fields ...Field) (end uint64) {
	for _, f := range fields {
		if f.Known {
			end = max(end, f.End())
		}
	}
	return end
}
