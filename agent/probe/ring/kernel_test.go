package ring

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

const ethernetHeader = 14 // bytes, which the kernel takes off

// writerTo returns a program that writes a record of the time and the packet's first byte.
func writerTo(t *testing.T, ring *ebpf.Map, wakeup int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.FnKtimeGetNs.Call(),
			asm.StoreMem(asm.RFP, -16, asm.R0, asm.DWord),
			asm.LoadAbs(0, asm.Byte),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.LoadMapPtr(asm.R1, ring.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -16),
			asm.Mov.Imm(asm.R3, 16),
			asm.Mov.Imm(asm.R4, wakeup),
			asm.FnRingbufOutput.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Two rings that programs write are read as one stream, in order of time and complete, whether or
// not their writers wake the reader.
func TestKernelRings(t *testing.T) {
	needs.Root(t, "BPF")
	const (
		noWakeup, wakeup = 1, 2 // BPF_RB_NO_WAKEUP, BPF_RB_FORCE_WAKEUP
		records          = 5_000
	)
	var rings []*ebpf.Map
	var writers []*ebpf.Program
	for _, flags := range []int32{noWakeup, wakeup} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		rings = append(rings, m)
		writers = append(writers, writerTo(t, m, flags))
	}
	r, err := NewReader(rings...)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if want := 2 * os.Getpagesize(); r.Size() != want {
		t.Errorf("Size = %d, want %d", r.Size(), want)
	}
	written := make(chan [2]int, 1)
	go func() {
		var n [2]int
		packet := make([]byte, ethernetHeader+1)
		for i := range records {
			which := i % 7 & 1
			packet[ethernetHeader] = byte(which)
			for {
				failed, err := writers[which].Run(&ebpf.RunOptions{Data: packet})
				if err != nil {
					t.Error(err)
				}
				if failed == 0 {
					break
				}
				time.Sleep(time.Millisecond) // the ring is full
			}
			n[which]++
		}
		written <- n
		r.Flush()
	}()
	var read [2]int
	var last uint64
	for {
		r.SetDeadline(time.Now().Add(10 * time.Millisecond))
		record, err := r.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if errors.Is(err, ErrFlushed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		now := recordTime(record)
		if now < last {
			t.Fatalf("a record of time %d after one of %d", now, last)
		}
		last = now
		read[binary.NativeEndian.Uint64(record[8:])&1]++
	}
	if n := <-written; n != read {
		t.Errorf("%v records were read of %v", read, n)
	}
}

// A reader without a deadline is woken by writers that request it.
func TestKernelRingWakes(t *testing.T) {
	needs.Root(t, "BPF")
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	writer := writerTo(t, m, 0)
	r, err := NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var writing sync.WaitGroup
	defer writing.Wait()
	for range 200 {
		writing.Go(func() { writer.Run(&ebpf.RunOptions{Data: make([]byte, ethernetHeader+1)}) })
		if record, err := r.Next(); err != nil || len(record) != 16 {
			t.Fatalf("%d bytes, %v", len(record), err)
		}
	}
}
