package main

import (
	"strings"
	"testing"
)

func TestReadHeapLog(t *testing.T) {
	tests := []struct {
		name, log   string
		bytes       float64
		collections int
	}{
		{"Serial", `
[0.9s][info][gc          ] GC(0) Pause Young (Allocation Failure) 20M->3M(61M) 2.029ms
[1.0s][info][gc          ] GC(1) Pause Young (Allocation Failure) 23M->4M(61M) 1.765ms
[1.5s][info][gc,heap,exit] Heap
[1.5s][info][gc,heap,exit]  def new generation   total 19648K, used 3072K [0x00000000fc000000, 0x00000000fd550000, 0x00000000fd550000)
[1.5s][info][gc,heap,exit]   eden space 17472K,  11% used [0x00000000fc000000, 0x00000000fc20a9c0, 0x00000000fd110000)
[1.5s][info][gc,heap,exit]  tenured generation   total 43712K, used 2048K [0x00000000fd550000, 0x0000000100000000, 0x0000000100000000)
`, 41 * mib, 2},
		{"Parallel", `
[0.9s][info][gc          ] GC(0) Pause Young (Allocation Failure) 20M->3M(61M) 2.029ms
[84.894s][info][gc,heap,exit]  PSYoungGen      total 116736K, used 1024K [0x00000000f5580000, 0x0000000100000000, 0x0000000100000000)
[84.894s][info][gc,heap,exit]  ParOldGen       total 279552K, used 4096K [0x00000000e0000000, 0x00000000f1100000, 0x00000000f5580000)
`, 22 * mib, 1},
		{"G1", `
[1.304s][info][gc          ] GC(0) Pause Young (Concurrent Start) (G1 Humongous Allocation) 38M->3M(64M) 5.398ms
[1.305s][info][gc          ] GC(1) Concurrent Mark Cycle
[1.310s][info][gc          ] GC(1) Pause Remark 5M->4M(64M) 1.2ms
[1.475s][info][gc          ] GC(1) Concurrent Mark Cycle 6.121ms
[1.938s][info][gc,heap,exit]  garbage-first heap   total 65536K, used 20480K [0x00000000fc000000, 0x0000000100000000)
`, (38 + 2 + 16) * mib, 2},
		{"Shenandoah", `
[2.240s][info][gc          ] GC(6) Concurrent cleanup 48M->9M(64M) 0.022ms
[2.286s][info][gc,heap,exit]  65536K max, 65536K soft max, 65536K committed, 16384K used
`, (48 + 7) * mib, 1},
	}
	for _, test := range tests {
		h, err := readHeapLog(strings.NewReader(test.log))
		if err != nil || h.bytes != test.bytes || h.collections != test.collections {
			t.Errorf("%s: %+v, %v", test.name, h, err)
		}
	}
	if h, err := readHeapLog(strings.NewReader("[1.0s][info][gc ] GC(1) Pause Young (Allocation Failure) " +
		"23M->4M(61M) 1.7ms\n")); err == nil {
		t.Errorf("%+v of a log without the end", h)
	}
}
