package watch

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// ErrChanged: other code stands at a watched address. What was observed is void.
var ErrChanged = errors.New("the method was compiled again")

// A Code is what stands at an address.
type Code struct {
	Address uint64
	Bytes   []byte
}

// ReadCode reads the first n bytes at addresses. ErrChanged if nothing is there.
func ReadCode(mem vmruntime.Memory, n int, addresses ...uint64) ([]Code, error) {
	code := make([]Code, len(addresses))
	ranges := make([]vmruntime.Range, len(addresses))
	for i, address := range addresses {
		code[i] = Code{address, make([]byte, n)}
		ranges[i] = vmruntime.Range{Addr: address, Buf: code[i].Bytes}
	}
	if err := mem.ReadBatch(ranges); err != nil {
		return nil, fmt.Errorf("read code: %w", err)
	}
	for i := range ranges {
		if !ranges[i].OK {
			return nil, fmt.Errorf("read code at %#x: %w", addresses[i], ErrChanged)
		}
	}
	return code, nil
}

// CheckCode is ErrChanged if anything else stands there by now. All pieces have the same length.
func CheckCode(mem vmruntime.Memory, before []Code) error {
	if len(before) == 0 {
		return nil
	}
	addresses := make([]uint64, len(before))
	for i := range before {
		addresses[i] = before[i].Address
	}
	now, err := ReadCode(mem, len(before[0].Bytes), addresses...)
	if err != nil {
		return err
	}
	for i := range now {
		if !bytes.Equal(now[i].Bytes, before[i].Bytes) {
			return fmt.Errorf("code at %#x: %w", addresses[i], ErrChanged)
		}
	}
	return nil
}
