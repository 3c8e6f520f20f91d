package semaphore

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// A verb says what an order is about.
type verb uint32

// What the agent orders of its guard. Each is answered by verbDone or verbFailed.
const (
	verbAdd     verb = iota + 1 // take the process under guard; a descriptor of its memory comes along
	verbRemove                  // clear and forget it
	verbHold                    // set its semaphore, and leave it so
	verbRelease                 // clear it
)

// What the guard tells the agent.
const (
	verbDone   verb = iota + 16
	verbFailed      // Text says why
	verbStray       // a process that the guard does not know has its semaphore set
	verbHeld        // a process was let go: another tracer holds its semaphore
	verbHung        // a process was let go: its memory does not answer
)

// An order is one message between the agent and its guard: they are the same program, so this is its layout, too.
type order struct {
	Verb       verb
	PID        uint32
	StartTicks uint64 // of the process, 10 ms of CLOCK_BOOTTIME
	Addr       uint64 // of the semaphore, with verbAdd
}

const (
	orderSize = int(unsafe.Sizeof(order{}))
	maxOrder  = orderSize + 512 // with the text behind it
)

// encode returns the message.
func (o order) encode(text string) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, o)
	if err != nil {
		panic(err) // order has no fields that cannot be encoded
	}
	return append(b, text[:min(len(text), maxOrder-orderSize)]...)
}

// decodeOrder returns a message and the text behind it.
func decodeOrder(b []byte) (o order, text string, err error) {
	n, err := binary.Decode(b, binary.NativeEndian, &o)
	if err != nil {
		return order{}, "", fmt.Errorf("message of %d bytes: %w", len(b), err)
	}
	return o, string(b[n:]), nil
}
