package unwinding

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile/unwind"
)

// A kernel is the kernel side: requests, and what answers them. Tests have another one.
type kernel interface {
	// asked reports whether there are requests, but for those of processes that are left alone.
	asked(left map[uint32]struct{}) bool
	// requests returns the requests that are there, by pid.
	requests() map[uint32]bpf.UnwindWant
	// takeOut takes out the request of a process, which may leave another one then.
	takeOut(pid uint32)

	setProcess(pid uint32, record *bpf.UnwoundProcess) error
	dropProcess(pid uint32)
	// eachProcess calls f with each record, children's included. The record is f's until it returns.
	eachProcess(f func(pid uint32, record *bpf.UnwoundProcess))

	setTable(slot uint16, generation uint32, rows []unwind.Row) error
	dropTable(slot uint16)
}

// objects are the real one's maps. What cannot be deleted there is gone already.
type objects struct{ *bpf.Objects }

func (o objects) asked(left map[uint32]struct{}) bool {
	var pid, next uint32
	err := o.UnwindWanted.NextKey(nil, &next)
	// While the map changes, the kernel may return a key twice, so the loop is bounded.
	for range len(left) + 1 {
		if err != nil {
			return false
		}
		if _, ok := left[next]; !ok {
			return true
		}
		pid = next
		err = o.UnwindWanted.NextKey(&pid, &next)
	}
	return err == nil
}

func (o objects) requests() (found map[uint32]bpf.UnwindWant) {
	var pid uint32
	var want bpf.UnwindWant
	for entries := o.UnwindWanted.Iterate(); entries.Next(&pid, &want); {
		if found == nil {
			found = map[uint32]bpf.UnwindWant{}
		}
		found[pid] = want
	}
	return found
}

func (o objects) takeOut(pid uint32) { _ = o.UnwindWanted.Delete(pid) }

// setProcess tries more than once: the kernel allocates records from what it keeps for that, which
// may be used up for a moment.
func (o objects) setProcess(pid uint32, record *bpf.UnwoundProcess) (err error) {
	for range 3 {
		if err = o.Unwound.Put(pid, record); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

func (o objects) dropProcess(pid uint32) { _ = o.Unwound.Delete(pid) }

func (o objects) eachProcess(f func(pid uint32, record *bpf.UnwoundProcess)) {
	var pid uint32
	var record bpf.UnwoundProcess
	for entries := o.Unwound.Iterate(); entries.Next(&pid, &record); {
		f(pid, &record)
	}
}

func (o objects) setTable(slot uint16, generation uint32, rows []unwind.Row) error {
	m, err := bpf.NewUnwindTable(generation, len(rows), func(i int) uint64 {
		return uint64(rows[i].Rule)<<32 | uint64(rows[i].Offset)
	})
	if err != nil {
		return err
	}
	defer m.Close() // it stays as long as it is in the map
	return o.UnwindTables.Put(uint32(slot), m)
}

func (o objects) dropTable(slot uint16) { _ = o.UnwindTables.Delete(uint32(slot)) }
