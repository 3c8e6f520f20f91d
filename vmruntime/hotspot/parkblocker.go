package hotspot

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// layoutParkBlocker finds a field of java.lang.Thread, through the object of any thread. ErrStarting if no thread has
// one yet.
func (p *Process) layoutParkBlocker() error {
	const attempts = 3 // threads come and go, objects move
	var offset uint32
	var err error
	for range attempts {
		if offset, err = p.findParkBlocker(); err == nil || errors.Is(err, vmruntime.ErrStarting) {
			break
		}
	}
	if errors.Is(err, vmruntime.ErrStarting) {
		return err
	}
	if err != nil {
		p.missing(fmt.Sprintf("Thread.parkBlocker was not found (%v): "+
			"what threads wait for in java.util.concurrent cannot be told.", err))
		return nil
	}
	p.layout.Objects.ParkBlocker, p.layout.Objects.HasParkBlocker = offset, true
	return nil
}

func (p *Process) findParkBlocker() (offset uint32, err error) {
	objects, err := p.threadObjects()
	if err != nil {
		return 0, err
	}
	for _, object := range objects {
		if offset, err = p.parkBlockerOf(object); err == nil {
			return offset, nil
		}
	}
	return 0, err
}

// handle reads the object that a handle leads to.
func (p *Process) handle(addr uint64) (uint64, error) {
	reference, err := p.word(addr)
	return p.layout.Objects.uncolour(reference), err
}

// parkBlockerOf finds the field in the class of a thread's object, or the one of its superclasses that is
// java.lang.Thread.
func (p *Process) parkBlockerOf(object uint64) (uint32, error) {
	header, err := p.bytes(object, p.layout.Objects.headerSize())
	if err != nil {
		return 0, err
	}
	class, err := p.Klass(p.layout.Objects.klass(header), p.currentEpoch())
	if err != nil {
		return 0, err
	}
	for _, f := range class.fields {
		if f.Class == "java.lang.Thread" && f.Name == "parkBlocker" {
			return f.Offset, nil
		}
	}
	return 0, fmt.Errorf("%s has no such field", class.Name)
}
