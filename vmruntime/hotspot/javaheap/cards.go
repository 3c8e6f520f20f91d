package javaheap

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A CardSchema leads to the table of cards. All of it is optional.
type CardSchema struct {
	barrierSet uint64          // static BarrierSet*: for collectors with cards a CardTableBarrierSet*
	table      vmstructs.Field // field of CardTableBarrierSet: CardTable*
	base       vmstructs.Field // field of CardTable: the byte that the card of address 0 would have
}

// NewCardSchema looks up the fields.
func NewCardSchema(r *vmstructs.Resolver) CardSchema {
	return CardSchema{
		barrierSet: r.OptionalStatic("BarrierSet._barrier_set"),
		table:      r.Optional("CardTableBarrierSet._card_table"),
		base:       r.Optional("CardTable._byte_map_base"),
	}
}

var errNoCards = errors.New("this JVM does not say where its table of cards is")

// Read reads where the table is; number reads a command line flag, with an error if the VM has none
// of that name.
func (s *CardSchema) Read(t vmstructs.Reader, number func(name string) (int64, error)) (c vmruntime.Cards, err error) {
	if s.barrierSet == 0 || !s.table.Known || !s.base.Known {
		return c, errNoCards
	}
	at := s.barrierSet
	for _, offset := range []uint32{0, s.table.Offset, s.base.Offset} {
		if at, err = t.Word(at + uint64(offset)); err != nil {
			return c, fmt.Errorf("read the table of cards: %w", err)
		}
	}
	c = vmruntime.Cards{Base: at, Bytes: 512} // up to JDK 17
	// The first two are bounds of GCCardSizeInBytes, the last is one of the queue: more than
	// anybody sets.
	const smallest, largest, most = 128, 1024, 1 << 20
	if n, err := number("GCCardSizeInBytes"); err == nil {
		c.Bytes = uint64(uint32(n))
	}
	if c.Bytes < smallest || c.Bytes > largest || bits.OnesCount64(c.Bytes) != 1 {
		return c, fmt.Errorf("cards of %d bytes: %w", c.Bytes, vmruntime.ErrMalformed)
	}
	n, err := number("G1UpdateBufferSize")
	if err != nil {
		return c, fmt.Errorf("read the size of a queue of cards: %w", err)
	}
	if c.Queue = uint64(n); c.Queue == 0 || c.Queue > most {
		return c, fmt.Errorf("queues of %d cards: %w", c.Queue, vmruntime.ErrMalformed)
	}
	return c, nil
}
