package hotspot

import (
	"errors"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxThreads bounds how many threads are asked for their objects: any one will do.
const maxThreads = 64

// threads returns the addresses of JavaThreads, at most so many.
func (p *Process) threads(most uint64) (threads []uint64, err error) {
	s := &p.schema.object
	if s.threadList == 0 || !s.listLength.known || !s.listThreads.known {
		return p.linkedThreads(most)
	}
	list, err := p.word(s.threadList)
	if err != nil {
		return nil, err
	}
	if list == 0 {
		return nil, vmruntime.ErrStarting
	}
	header, err := p.bytes(list, lastEnd(s.listLength, s.listThreads))
	if err != nil {
		return nil, err
	}
	table, err := p.bytes(s.listThreads.of(header), wordSize*min(most, s.listLength.of(header)))
	for ; len(table) >= wordSize; table = table[wordSize:] {
		threads = append(threads, number(table[:wordSize]))
	}
	return threads, err
}

// linkedThreads does so where each leads to the next one.
func (p *Process) linkedThreads(most uint64) (threads []uint64, err error) {
	s := &p.schema.object
	if s.firstThread == 0 || !s.nextThread.known {
		return nil, errors.New("the VM does not export its threads")
	}
	next, err := p.word(s.firstThread)
	for err == nil && next != 0 && uint64(len(threads)) < most {
		threads = append(threads, next)
		next, err = p.word(s.nextThread.at(next))
	}
	return threads, err
}
