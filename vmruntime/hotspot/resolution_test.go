package hotspot

import (
	"encoding/binary"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
)

// Entries of the constant pool cache, as the interpreter leaves them: of JDK 17 {indices, f1, f2,
// flags}, of JDK 25.
func TestResolutions(t *testing.T) {
	schemas := map[int]*calldata.PoolSchema{}
	for jdk, name := range map[int]string{17: "testdata/jdk17.gz", 25: "testdata/jdk25.gz"} {
		schemas[jdk] = &loadRecording(t, name).attach(t, nil).calldata(t).Pool
	}
	const method, other, iface = 0x7f0000001000, 0x7f0000002000, 0x7f0000003000
	const vfinal, forced = 1 << 20, 1 << 23 // flags of JDK 17
	old := func(op1, op2 byte, f1, f2, flags uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(
			binary.LittleEndian.AppendUint64(nil, 77|uint64(op1)<<16|uint64(op2)<<24), f1), f2), flags)
	}
	now := func(op1, op2 byte, method, specific uint64, flags byte) []byte {
		b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, method), specific)
		return append(b, 77, 0, 2, 0, 4, flags, op1, op2)
	}
	direct := calldata.Resolution{Resolved: true, Target: method, Vtable: calldata.NoVtable}
	for _, test := range []struct {
		name     string
		op       byte
		old, now []byte
		want     calldata.Resolution
	}{
		{"nothing", calldata.OpInvokeStatic, old(0, 0, 0, 0, 0), now(0, 0, 0, 0, 0), calldata.Resolution{}},
		{"static", calldata.OpInvokeStatic, old(184, 0, method, 0, 0), now(184, 0, method, iface, 0), direct},
		{"static, as special", calldata.OpInvokeSpecial, old(184, 0, method, 0, 0), now(184, 0, method, iface, 0),
			calldata.Resolution{}},
		{"special", calldata.OpInvokeSpecial, old(183, 0, method, 0, 0), now(183, 0, method, 0, 0), direct},
		{"special, entry shared with virtual", calldata.OpInvokeVirtual, old(183, 182, other, 12, 0),
			now(183, 182, other, 12, 0),
			calldata.Resolution{Resolved: true, Vtable: 12}},
		{"virtual", calldata.OpInvokeVirtual, old(0, 182, 0, 12, 0), now(0, 182, 0, 12, 0),
			calldata.Resolution{Resolved: true, Vtable: 12}},
		{"first in vtable", calldata.OpInvokeVirtual, old(0, 182, 0, 0, 0), now(0, 182, 0, 0, 0),
			calldata.Resolution{Resolved: true}},
		{"final", calldata.OpInvokeVirtual, old(0, 182, 0, method, vfinal), now(0, 182, method, 0, 1), direct},
		{"final, rewritten", calldata.OpFastInvokeFinal, old(0, 182, 0, method, vfinal), now(0, 182, method, 0, 1),
			direct},
		{"interface", calldata.OpInvokeInterface, old(185, 0, iface, method, 0), now(185, 0, method, iface, 0),
			calldata.Resolution{Resolved: true, Vtable: calldata.NoVtable, Method: method}},
		{"interface, method of Object", calldata.OpInvokeInterface, old(185, 182, 0, 3, forced), now(185, 182, 0, 3, 4),
			calldata.Resolution{Resolved: true, Vtable: 3}},
		{"interface, final method of Object", calldata.OpInvokeInterface, old(185, 182, 0, method, forced|vfinal),
			now(185, 182, method, 0, 4|1), direct},
		{"interface, private method", calldata.OpInvokeInterface, old(185, 182, iface, method, vfinal),
			now(185, 0, method, iface, 1), direct},
		{"handle", calldata.OpInvokeHandle, old(233, 0, method, 5, 0), now(233, 0, method, 5, 8|32), direct},
		{"impossible index", calldata.OpInvokeVirtual, old(0, 182, 0, 1<<40, 0), now(0, 182, 0, 1, 0),
			calldata.Resolution{}},
	} {
		constant, got := schemas[17].DecodeEntry(test.old, test.op)
		if constant != 77 || got != test.want {
			t.Errorf("%s, JDK 17: constant %d, %+v; want %+v", test.name, constant, got, test.want)
		}
		if test.name == "impossible index" { // not with 16 bits
			continue
		}
		constant, got = schemas[25].DecodeMethodEntry(test.now, test.op)
		if constant != 77 || got != test.want {
			t.Errorf("%s, JDK 25: constant %d, %+v; want %+v", test.name, constant, got, test.want)
		}
	}
}
