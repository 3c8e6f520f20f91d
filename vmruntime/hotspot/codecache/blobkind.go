package codecache

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Kind sorts CodeBlobs by how their frames look and how they are named.
type Kind uint8

const (
	KindStub    Kind = iota // anything else that the VM generated
	KindNMethod             // a compiled method
	KindNative              // a wrapper of a native method, an nmethod without debug information
	KindInterpreter
	KindVtable
	KindAdapter
	KindContinuation // stubs of JDK 21+ that freeze and thaw virtual threads
	KindUpcall       // stubs of JDK 16+ through which native code calls Java: java.lang.foreign
)

// The names of stubs for upcalls: since JDK 20, and before.
const (
	UpcallName    = "upcall_stub"
	OldUpcallName = "optimized_upcall_stub"
)

// KindOf classifies a blob by its name. HotSpot creates all blobs of a kind with the same string
// literal.
func KindOf(name string) Kind {
	switch name {
	case "nmethod":
		return KindNMethod
	case "native nmethod":
		return KindNative
	case "Interpreter":
		return KindInterpreter
	case "vtable chunks":
		return KindVtable
	case "I2C/C2I adapters":
		return KindAdapter
	case UpcallName, OldUpcallName:
		return KindUpcall
	}
	// "StubRoutines (continuation stubs)", in JDK 25 without a space; later "continuation_blob
	// (stub gen)".
	if lower := strings.ToLower(name); strings.Contains(lower, "continuation") && strings.Contains(lower, "stub") {
		return KindContinuation
	}
	return KindStub
}

// A KindTable remembers the names of blobs by the addresses of these names. It is learned: a kind
// is known once a blob of it was seen.
type KindTable struct {
	Names map[uint64]string
}

// MaxKinds bounds the table. JDK 25 has 120 names; stubs of foreign functions do not add any.
const MaxKinds = 4096

// Learn reads the names at these addresses that are new, and reports whether there were any.
func (k *KindTable) Learn(t vmstructs.Reader, addrs []uint64) (news bool, err error) {
	var unknown []uint64
	for _, addr := range vmstructs.Distinct(addrs) {
		if _, ok := k.Names[addr]; !ok && len(k.Names)+len(unknown) < MaxKinds {
			unknown = append(unknown, addr)
		}
	}
	if len(unknown) == 0 {
		return false, nil
	}
	names, err := t.Texts(unknown)
	if err != nil {
		return false, err
	}
	if k.Names == nil {
		k.Names = make(map[uint64]string)
	}
	for _, addr := range unknown {
		if name, ok := names[addr]; ok {
			k.Names[addr] = name
			news = true
		}
	}
	return news, nil
}

// Lookup returns the kind of blobs whose name is at addr.
func (k *KindTable) Lookup(addr uint64) Kind { return KindOf(k.Names[addr]) }

// Pointer returns where the name of a kind is, or 0 if no blob of that kind was seen yet. Where a
// linker did not merge equal strings, the lowest address counts.
func (k *KindTable) Pointer(kind Kind) (lowest uint64) {
	for addr, name := range k.Names {
		if KindOf(name) == kind && (lowest == 0 || addr < lowest) {
			lowest = addr
		}
	}
	return lowest
}
