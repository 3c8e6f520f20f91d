//go:build linux && amd64

package bpf

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// announcement is what one compiled__method__load says.
type announcement struct {
	class, name, signature string
	code                   uint64
	size                   int32
	frame                  [4]uint64 // memory for operands that are not in registers
}

// announce plays the place of the probe in the VM: its arguments are where Go's calling convention
// puts them, in rax, rbx, rcx, rdi, rsi, r8, r9, r10 and r11.
//
//go:noinline
func announce(
	class *byte, classLen int, name *byte, nameLen int, signature *byte, signatureLen int, code uint64, size int32,
	frame *[4]uint64,
) int {
	return classLen + nameLen + signatureLen + int(size) + int(code) + int(*class) + int(*name) + int(*signature) +
		int(frame[0])
}

func (a *announcement) fire() {
	announce(unsafe.StringData(a.class), len(a.class), unsafe.StringData(a.name), len(a.name),
		unsafe.StringData(a.signature), len(a.signature), a.code, a.size, &a.frame)
}

// Byte offsets in struct registers.
const (
	regBX, regR11, regR10, regR9, regR8 = 40, 48, 56, 64, 72
	regAX, regCX, regSI, regDI          = 80, 88, 104, 112
)

func register(reg uint8, size int8) Operand {
	return Operand{Kind: OperandRegister, Reg: reg, Size: size}
}

func memory(reg uint8, displacement int64, size int8) Operand {
	return Operand{Kind: OperandMemory, Reg: reg, Displacement: displacement, Size: size}
}

var inRegisters = LoadSite{
	ClassName: register(regAX, 8), ClassLen: register(regBX, -4), MethodName: register(regCX, 8),
	NameLen:   register(regDI, -4),
	Signature: register(regSI, 8), SignatureLen: register(regR8, -4), Code: register(regR9, 8),
	Size: register(regR10, -4),
}

func TestKernelCodeLoad(t *testing.T) {
	vm := newFakeVM(t, builds[1])
	c := vm.typical(48)
	withSite := func(change func(*LoadSite)) LoadSite {
		s := inRegisters
		change(&s)
		return s
	}
	hello := announcement{class: "java/lang/String", name: "hashCode", signature: "()I", code: c.begin, size: 96}
	tests := []struct {
		name string
		site LoadSite
		say  announcement
		want announcement
		id   uint32
	}{
		{name: "registers", site: inRegisters, say: hello, want: hello, id: c.id},
		{
			name: "memory and constants", id: c.id, want: hello,
			say: announcement{class: hello.class, name: hello.name, signature: hello.signature,
				frame: [4]uint64{0, c.begin, 0xffff_ffff_0000_0003, 0}},
			site: withSite(func(s *LoadSite) {
				s.Code = memory(regR11, 8, 8)
				s.SignatureLen = memory(regR11, 16, 2)
				s.Size = Operand{Kind: OperandConstant, Displacement: 96, Size: 4}
			}),
		},
		{
			name: "names longer than their fields", site: inRegisters,
			say: announcement{class: strings.Repeat("c", 300), name: strings.Repeat("n", 96),
				signature: strings.Repeat("s", 161)},
			want: announcement{class: strings.Repeat("c", 192), name: strings.Repeat("n", 96),
				signature: strings.Repeat("s", 160)},
		},
		{
			name: "a name that cannot be read", say: hello, id: c.id,
			site: withSite(func(s *LoadSite) { s.ClassName = Operand{Kind: OperandConstant, Displacement: 8} }),
			want: announcement{name: hello.name, signature: hello.signature, code: hello.code, size: hello.size},
		},
		{
			name: "code where no blob is", site: inRegisters,
			say:  announcement{class: "A", name: "b", signature: "()V", code: vm.code.end() - 8},
			want: announcement{class: "A", name: "b", signature: "()V", code: vm.code.end() - 8},
		},
	}
	for _, attach := range []struct {
		name string
		with func(t *testing.T, p *ebpf.Program, cookie uint64) link.Link
	}{{"single", attachSingle}, {"multi", attachMulti}} {
		t.Run(attach.name, func(t *testing.T) {
			o := load(t, Options{SingleProbes: attach.name == "single"})
			if err := o.Processes.Put(uint32(os.Getpid()), &vm.HotspotProcess); err != nil {
				t.Fatal(err)
			}
			for i, test := range tests {
				cookie := uint32(i * 7)
				if err := o.CodeMap.LoadSites.Put(cookie, &test.site); err != nil {
					t.Fatal(err)
				}
				l := attach.with(t, o.CodeMap.Load, uint64(cookie))
				test.say.fire()
				l.Close()
				n := 0
				drain(t, o, func(raw []byte) {
					n++
					var got CodeLoad
					if err := DecodeCodeLoad(raw, &got); err != nil {
						t.Fatal(err)
					}
					if got.Kind != EventCodeLoad || got.Pid != uint32(os.Getpid()) || got.CompileID != test.id {
						t.Errorf("%s: kind %d, pid %d, compile id %d; want %d, %d, %d", test.name, got.Kind, got.Pid,
							got.CompileID,
							EventCodeLoad, os.Getpid(), test.id)
					}
					said := announcement{class: string(got.Class), name: string(got.Name),
						signature: string(got.Signature), code: got.Begin, size: int32(got.Size)}
					if said != test.want {
						t.Errorf("%s: got %+v, want %+v", test.name, said, test.want)
					}
				})
				if n != 1 {
					t.Errorf("%s: %d records, want 1", test.name, n)
				}
			}
		})
	}
}

// Unloading counts up the epochs of the process that does it.
func TestKernelUnload(t *testing.T) {
	o := load(t, Options{SingleProbes: true})
	const slot = 17
	if err := o.Processes.Put(uint32(os.Getpid()), &HotspotProcess{Serial: 1, Slot: slot}); err != nil {
		t.Fatal(err)
	}
	expect := func(want ProfileEpochs) {
		t.Helper()
		var got ProfileEpochs
		if err := o.Epochs.Lookup(uint32(slot), &got); err != nil || got != want {
			t.Errorf("epochs %+v, %v; want %+v", got, err, want)
		}
	}
	some := announcement{class: "A", name: "b", signature: "c"}
	code := attachSingle(t, o.CodeMap.CodeUnload, 0)
	some.fire()
	expect(ProfileEpochs{Code: 1})
	code.Close()
	classes := attachSingle(t, o.CodeMap.ClassUnload, 0)
	some.fire()
	expect(ProfileEpochs{Code: 2, Classes: 1})
	if err := o.Processes.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	some.fire() // not attached any more
	expect(ProfileEpochs{Code: 2, Classes: 1})
	classes.Close()
}

// Nobody reads while more is announced than the ring holds.
func TestKernelEventLoss(t *testing.T) {
	o := load(t, Options{SingleProbes: true, RingBytes: uint32(os.Getpagesize())})
	if err := o.CodeMap.LoadSites.Put(uint32(0), &inRegisters); err != nil {
		t.Fatal(err)
	}
	l := attachSingle(t, o.CodeMap.Load, 0)
	some := announcement{class: "A", name: "b", signature: "c"}
	const fired = 30
	for range fired {
		some.fire()
	}
	l.Close()
	c, err := o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	if c[EventsAttempted] != fired || c[EventsDelivered]+c[EventsDroppedRingFull] != fired ||
		c[EventsDroppedRingFull] == 0 {
		t.Errorf("attempted %d, delivered %d, dropped %d; want %d in all", c[EventsAttempted], c[EventsDelivered],
			c[EventsDroppedRingFull], fired)
	}
	var drained uint64
	drain(t, o, func([]byte) { drained++ })
	if drained != c[EventsDelivered] {
		t.Errorf("%d records in the ring, %d delivered", drained, c[EventsDelivered])
	}
}

// Where too many threads announce code at once, what finds no room is dropped and counted, and
// takes nothing of the others.
func TestKernelCodeLoadBusy(t *testing.T) {
	o := load(t, Options{SingleProbes: true})
	const cookie = 3
	site := inRegisters
	if err := o.CodeMap.LoadSites.Put(uint32(cookie), &site); err != nil {
		t.Fatal(err)
	}
	defer attachSingle(t, o.CodeMap.Load, cookie).Close()
	claim := func(claimed byte) {
		for i := range o.CodeMap.Drafts.MaxEntries() {
			draft := make([]byte, o.CodeMap.Drafts.ValueSize())
			draft[0] = claimed
			if err := o.CodeMap.Drafts.Put(i, draft); err != nil {
				t.Fatal(err)
			}
		}
	}
	hello := announcement{class: "java/lang/String", name: "hashCode", signature: "()I"}
	for _, test := range []struct {
		claimed byte
		want    int
	}{{1, 0}, {0, 1}, {0, 1}} {
		claim(test.claimed)
		hello.fire()
		n := 0
		drain(t, o, func([]byte) { n++ })
		if n != test.want {
			t.Errorf("claimed %d: %d records, want %d", test.claimed, n, test.want)
		}
	}
	c, err := o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	if c[EventsAttempted] != 3 || c[EventsDelivered] != 2 || c[EventsDroppedBusy] != 1 ||
		c[EventsDroppedRingFull] != 0 {
		t.Errorf("attempted %d, delivered %d, %d and %d dropped; want 3, 2, 1 and 0",
			c[EventsAttempted], c[EventsDelivered], c[EventsDroppedBusy], c[EventsDroppedRingFull])
	}
}
