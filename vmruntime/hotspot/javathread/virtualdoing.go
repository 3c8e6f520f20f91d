package javathread

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// DescribeVirtual implements vmruntime.VirtualLister.
func (p *Lister) DescribeVirtual(
	words []vmruntime.VirtualWords, collections uint64,
) ([]vmruntime.VirtualDoing, error) {
	all, err := p.describeVirtual(words)
	if err != nil {
		return nil, err
	}
	now, err := p.Collections()
	if err == nil && now != collections {
		err = vmruntime.ErrMoved
	}
	if err == nil {
		return all, nil
	}
	for i := range all {
		// What is there now where the object was is an array more often than anything else.
		if d := &all[i]; d.State == vmruntime.VirtualParked && strings.HasSuffix(d.Class, "[]") {
			d.Class = ""
		}
	}
	return all, fmt.Errorf("what virtual threads wait for: %w", err)
}

func (p *Lister) describeVirtual(words []vmruntime.VirtualWords) ([]vmruntime.VirtualDoing, error) {
	if p.virtualList == nil {
		return nil, errors.New("virtual threads were not listed")
	}
	l, err := p.virtualList()
	if err != nil {
		return nil, err
	}
	epoch := p.CurrentEpoch()
	all, blockers := make([]vmruntime.VirtualDoing, len(words)), make([]uint64, len(words))
	monitors, err := p.waitedMonitors(words)
	if err != nil {
		return nil, fmt.Errorf("what virtual threads wait for: %w", err)
	}
	for i, w := range words {
		switch all[i].State = l.states[uint64(w.State)&^suspendedState]; all[i].State {
		case vmruntime.VirtualParked:
			blockers[i] = p.Referent(w.Blocker)
		case vmruntime.VirtualBlocked:
			blockers[i] = monitors[i]
		}
	}
	classes, err := p.Classes(blockers, epoch)
	if err != nil {
		return nil, fmt.Errorf("what virtual threads wait for: %w", err)
	}
	owners, err := p.References(javaobject.FieldsOf(blockers, classes, func(f javaobject.Field) bool {
		return f.Class == classOwnable &&
			f.Name == "exclusiveOwnerThread"
	}))
	if err != nil {
		return nil, fmt.Errorf("owners of locks: %w", err)
	}
	ownerClasses, err := p.Classes(owners, epoch)
	if err != nil {
		return nil, fmt.Errorf("owners of locks: %w", err)
	}
	ids, err := p.Words(javaobject.FieldsOf(owners, ownerClasses, func(f javaobject.Field) bool {
		return f.Class == classThread &&
			f.Name == "tid"
	}), vmstructs.WordSize)
	if err != nil {
		return nil, fmt.Errorf("owners of locks: %w", err)
	}
	for i, class := range classes {
		if class != nil {
			all[i].Class, all[i].Owner = class.Name, ids[i]
		}
	}
	return all, nil
}

// waiterMonitor is where an ObjectWaiter of JDK 24 and later has its ObjectMonitor
// (src/hotspot/share/runtime/objectMonitor.hpp): behind two links and two words for the thread.
const waiterMonitor = 4 * vmstructs.WordSize

// waitedMonitors returns the objects of the monitors that threads wait for, 0 for others.
func (p *Lister) waitedMonitors(words []vmruntime.VirtualWords) ([]uint64, error) {
	l := &p.Layout.Objects
	at := make([]uint64, len(words))
	for i, w := range words {
		if w.Waiter != 0 {
			at[i] = w.Waiter + waiterMonitor
		}
	}
	monitors, err := p.Words(at, vmstructs.WordSize)
	if err != nil {
		return nil, err
	}
	for i, monitor := range monitors {
		if monitor != 0 {
			monitors[i] = monitor + uint64(l.MonitorObject)
		}
	}
	return p.nativeReferents(monitors, l.MonitorObjectIsHandle)
}
