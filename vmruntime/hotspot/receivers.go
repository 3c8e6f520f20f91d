package hotspot

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// Memory that a Process keeps of receivers at most: methods that calls lead to, and names of classes.
const (
	dispatchBytes = 2 << 20
	klassBytes    = 1 << 20
)

// A receiverTable answers which method a receiver has, and what its class is called.
type receiverTable struct {
	schema *profileSchema
	epoch  uint32
	*Process
	names map[uint64]string
}

// readReceivers looks methods up that are not known in this epoch, and names classes.
func (p *Process) readReceivers(asked []dispatch, klasses []uint64, epoch uint32, search *methodSearch) (receiverTable, error) {
	table := receiverTable{schema: &p.schema.profile, epoch: epoch, Process: p, names: make(map[uint64]string)}
	targets, err := search.targets(asked)
	if err != nil {
		return table, err
	}
	for i, d := range asked {
		p.dispatched.add(d.key(epoch), dispatchTarget(targets[i]))
	}
	var unknown []uint64
	for _, klass := range distinct(klasses) {
		if name, ok := p.klasses.get(methodKey{addr: klass, epoch: epoch}); ok {
			table.names[klass] = string(name)
		} else if len(unknown) < maxReceivers {
			unknown = append(unknown, klass)
		}
	}
	names, err := p.methodReader().klassNames(unknown)
	if err != nil {
		return table, err
	}
	for klass, name := range names {
		table.names[klass] = name
		p.klasses.add(methodKey{addr: klass, epoch: epoch}, klassName(name))
	}
	return table, nil
}

// receiver describes a class of which receivers were seen at a call.
func (t receiverTable) receiver(site *callSite, row receiverRow) vmruntime.Receiver {
	target := site.target
	if target == 0 {
		found, _ := t.dispatched.get(site.dispatch(row.klass).key(t.epoch))
		target = uint64(found)
	}
	return vmruntime.Receiver{Class: t.names[row.klass], Klass: row.klass, Count: row.count, Target: target}
}

// klassNames reads the names of classes. Those that cannot be read are absent.
func (r methodReader) klassNames(klasses []uint64) (map[uint64]string, error) {
	var pointers batch
	for _, klass := range klasses {
		pointers.add(r.schema.klassName.at(klass), wordSize)
	}
	if err := pointers.read(r.mem); err != nil {
		return nil, err
	}
	names := make(map[uint64]uint64, len(klasses))
	var addrs []uint64
	for i, klass := range klasses {
		if symbol, ok := pointers.word(i); ok {
			names[klass] = symbol
			addrs = append(addrs, symbol)
		}
	}
	symbols, err := r.symbols(addrs)
	if err != nil {
		return nil, err
	}
	found := make(map[uint64]string, len(klasses))
	for klass, symbol := range names {
		if name, ok := symbols[symbol]; ok {
			found[klass] = className(name)
		}
	}
	return found, nil
}
