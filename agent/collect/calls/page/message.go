package page

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The messages between a process and the agent, one packet each, in host byte order.
// contrib/guest/vmprof.h has the other side of the protocol.
const (
	protocol  = 1
	maxPacket = 4096 // bytes

	typeHello  = 1
	typeMethod = 2
	typeForget = 3
	typeNamed  = 4

	typeWelcome = 1
	typeRefused = 2
	typeTimings = 3
)

// errMessage: a process sent an invalid message.
var errMessage = errors.New("malformed message")

// A hello opens a connection.
type hello struct {
	version uint32
	runtime string // chosen by the process
}

// A method registers memory as code of a method from a given time on.
type method struct {
	id         uint32 // never 0
	begin      uint64 // address in the guest
	time       uint64 // ns, CLOCK_MONOTONIC
	size       uint32 // bytes, never 0
	line       uint32 // line of the method in its file, 0 if unknown
	name, file []byte // chosen by the process; point into the packet
	sites      []site
}

// A site is a call in the code of a method.
type site struct {
	offset uint32 // distance of the return address from the code's begin
	line   uint32
}

// A forget unregisters memory that is no longer code of a method.
type forget struct {
	id          uint32
	begin, time uint64 // as in method
}

// A named gives a version of a method a name. Processes send it to an agent that offered timings.
type named struct {
	method  uint32 // never 0
	version uint32
	name    []byte // chosen by the process; points into the packet
}

// Sizes of what precedes the variable part of a message, in bytes.
const (
	helloSize  = 24
	methodSize = 40
	forgetSize = 24
	namedSize  = 16
	siteSize   = 8
)

// parse returns the *hello, *method, *forget or *named in a packet, or an error that wraps
// errMessage.
func parse(packet []byte) (any, error) {
	if len(packet) < 4 || len(packet) > maxPacket {
		return nil, fmt.Errorf("packet of %d bytes: %w", len(packet), errMessage)
	}
	switch kind := u32(packet); kind {
	case typeHello:
		return orError(parseHello(packet))
	case typeMethod:
		return orError(parseMethod(packet))
	case typeForget:
		return orError(parseForget(packet))
	case typeNamed:
		return orError(parseNamed(packet))
	default:
		return nil, fmt.Errorf("type %d: %w", kind, errMessage)
	}
}

// orError converts a pointer to a message, unless there is an error.
func orError[T any](m *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

func parseHello(b []byte) (*hello, error) {
	if len(b) != helloSize {
		return nil, fmt.Errorf("hello of %d bytes: %w", len(b), errMessage)
	}
	name, _, _ := bytes.Cut(b[8:], []byte{0})
	return &hello{version: u32(b[4:]), runtime: string(name)}, nil
}

func parseMethod(b []byte) (*method, error) {
	if len(b) < methodSize {
		return nil, fmt.Errorf("method of %d bytes: %w", len(b), errMessage)
	}
	m := &method{id: u32(b[4:]), begin: u64(b[8:]), time: u64(b[16:]), size: u32(b[24:]), line: u32(b[28:])}
	if m.id == 0 || m.size == 0 || m.begin+uint64(m.size) < m.begin {
		return nil, fmt.Errorf("method %d at %#x, %d bytes: %w", m.id, m.begin, m.size, errMessage)
	}
	name, file, sites := int(u16(b[32:])), int(u16(b[34:])), uint64(u32(b[36:]))
	text := b[methodSize:]
	if name+file > len(text) {
		return nil, fmt.Errorf("method with names of %d and %d bytes: %w", name, file, errMessage)
	}
	m.name, m.file = text[:name], text[name:name+file]
	padded := (name + file + 3) &^ 3
	if uint64(max(len(text)-padded, 0)) < sites*siteSize {
		return nil, fmt.Errorf("method with %d sites: %w", sites, errMessage)
	}
	for i := range int(sites) {
		at := text[padded+siteSize*i:]
		m.sites = append(m.sites, site{offset: u32(at), line: u32(at[4:])})
	}
	return m, nil
}

func parseForget(b []byte) (*forget, error) {
	if len(b) != forgetSize {
		return nil, fmt.Errorf("forget of %d bytes: %w", len(b), errMessage)
	}
	return &forget{id: u32(b[4:]), begin: u64(b[8:]), time: u64(b[16:])}, nil
}

func parseNamed(b []byte) (*named, error) {
	if len(b) < namedSize || uint64(len(b)) != namedSize+uint64(u32(b[12:])) || u32(b[4:]) == 0 {
		return nil, fmt.Errorf("name of a version in %d bytes: %w", len(b), errMessage)
	}
	return &named{method: u32(b[4:]), version: u32(b[8:]), name: b[namedSize:]}, nil
}

// A refusal is why a process is refused. The process tries again later, and sooner if the reason
// may pass by itself.
type refusal uint32

const (
	refusedVersion   refusal = 1 + iota // the version of the protocol is another one
	refusedMalformed                    // the first message is not a hello
	refusedUnwanted                     // the process is not profiled
	refusedFull                         // too many guests
	refusedNoProbes                     // none in the process's files
	refusedProbes                       // they cannot be attached to
	refusedConnected                    // the process is connected already
	refusedOften                        // too many attempts
	refusalCount
)

var refusalNames = [refusalCount]string{
	refusedVersion: "version", refusedMalformed: "malformed", refusedUnwanted: "unwanted", refusedFull: "full",
	refusedNoProbes: "no_probes", refusedProbes: "probes", refusedConnected: "connected", refusedOften: "often",
}

// Error is one word, for logs and as a label.
func (r refusal) Error() string { return "refused: " + refusalNames[r] }

func welcomePacket(slots int) []byte {
	b := binary.NativeEndian.AppendUint32(nil, typeWelcome)
	b = binary.NativeEndian.AppendUint32(b, protocol)
	b = binary.NativeEndian.AppendUint32(b, maxPage)
	return binary.NativeEndian.AppendUint32(b, uint32(slots))
}

// timingsPacket offers the memory whose descriptor goes along.
func timingsPacket() []byte {
	b := binary.NativeEndian.AppendUint32(nil, typeTimings)
	b = binary.NativeEndian.AppendUint32(b, timingsVersion)
	b = binary.NativeEndian.AppendUint32(b, timingsRings)
	b = binary.NativeEndian.AppendUint32(b, ringEntries)
	return binary.NativeEndian.AppendUint64(b, timingsSize)
}

func refusedPacket(r refusal) []byte {
	b := binary.NativeEndian.AppendUint32(nil, typeRefused)
	return binary.NativeEndian.AppendUint32(b, uint32(r))
}

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }
func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
