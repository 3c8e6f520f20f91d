package hotspot

import "strings"

// blobKind sorts CodeBlobs by how their frames look and how they are named.
type blobKind uint8

const (
	kindStub    blobKind = iota // anything else that the VM generated
	kindNMethod                 // a compiled method
	kindNative                  // a wrapper of a native method, an nmethod without debug information
	kindInterpreter
	kindVtable
	kindAdapter
	kindContinuation // stubs of JDK 21+ that freeze and thaw virtual threads
)

// kindOf classifies a blob by its name. HotSpot creates all blobs of a kind with the same string literal.
func kindOf(name string) blobKind {
	switch name {
	case "nmethod":
		return kindNMethod
	case "native nmethod":
		return kindNative
	case "Interpreter":
		return kindInterpreter
	case "vtable chunks":
		return kindVtable
	case "I2C/C2I adapters":
		return kindAdapter
	}
	// "StubRoutines (continuation stubs)", in JDK 25 without a space; later "continuation_blob (stub gen)".
	if lower := strings.ToLower(name); strings.Contains(lower, "continuation") && strings.Contains(lower, "stub") {
		return kindContinuation
	}
	return kindStub
}

// A kindTable remembers the names of blobs by the addresses of these names. It is learned: a kind is known once a
// blob of it was seen.
type kindTable struct {
	names map[uint64]string
}

// maxKinds bounds the table. JDK 25 has 120 names; stubs of foreign functions do not add any.
const maxKinds = 4096

// learn reads the names at these addresses that are new, and reports whether there were any.
func (k *kindTable) learn(t target, addrs []uint64) (news bool, err error) {
	var unknown []uint64
	for _, addr := range distinct(addrs) {
		if _, ok := k.names[addr]; !ok && len(k.names)+len(unknown) < maxKinds {
			unknown = append(unknown, addr)
		}
	}
	if len(unknown) == 0 {
		return false, nil
	}
	names, err := t.strings(unknown)
	if err != nil {
		return false, err
	}
	if k.names == nil {
		k.names = make(map[uint64]string)
	}
	for _, addr := range unknown {
		if name, ok := names[addr]; ok {
			k.names[addr] = name
			news = true
		}
	}
	return news, nil
}

// of returns the kind of blobs whose name is at addr.
func (k *kindTable) of(addr uint64) blobKind { return kindOf(k.names[addr]) }

// pointer returns where the name of a kind is, or 0 if no blob of that kind was seen yet. Where a linker did not
// merge equal strings, the lowest address counts.
func (k *kindTable) pointer(kind blobKind) (lowest uint64) {
	for addr, name := range k.names {
		if kindOf(name) == kind && (lowest == 0 || addr < lowest) {
			lowest = addr
		}
	}
	return lowest
}
