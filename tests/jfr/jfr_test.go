package jfr

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const text = `{"recording": {"events": [
		{"type": "jdk.ExecutionSample", "values": {"startTime": "2026-11-23T15:34:13.281532042Z", "state": "STATE_RUNNABLE",
			"sampledThread": {"osName": "worker-1", "javaName": "worker-1 of the shop"},
			"stackTrace": {"truncated": true, "frames": [
				{"method": {"type": {"name": "java\/lang\/String"}, "name": "length"}, "type": "Inlined"},
				{"method": {"type": {"name": "shop.Cart"}, "name": "add"}, "type": "JIT compiled"},
				{"method": {"type": {"name": "shop.Main"}, "name": "main"}, "type": "Interpreted"}]}}},
		{"type": "jdk.CPUTimeSample", "values": {"startTime": "2026-11-23T16:34:13Z", "eventThread": {"osName": "VM Thread", "javaName": null},
			"stackTrace": {"frames": [{"method": {"type": {"name": ""}, "name": "memcpy"}, "type": "Native"}]}}},
		{"type": "jdk.JavaMonitorEnter", "values": {"eventThread": {"javaName": "worker-2"}, "startTime": "2026-11-23T16:34:14+01:00", "duration": "PT0.0015S", "stackTrace": null}}]}}`
	list, err := parse(strings.NewReader(text))
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	sample, native, wait := list[0], list[1], list[2]
	inlined := Frame{Method: "java.lang.String.length", Inlined: true}
	if len(sample.Stack) != 3 || sample.Stack[0] != inlined || sample.Compiled() != "shop.Cart.add" ||
		sample.Thread != "worker-1 of the shop" {
		t.Errorf("%+v", sample)
	}
	if native.Thread != "VM Thread" || len(native.Stack) != 1 ||
		native.Stack[0] != (Frame{Method: "memcpy", Native: true}) {
		t.Errorf("%+v", native)
	}
	if wait.Duration != 1500*time.Microsecond || wait.Start.Sub(sample.Start) <= 0 || wait.Compiled() != "" {
		t.Errorf("%+v", wait)
	}
	for _, bad := range []string{"", `{"recording": {"events": [{"type": "x", "values": {"duration": "PTxS"}}]}}`} {
		if list, err := parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: %+v", bad, list)
		}
	}
}
