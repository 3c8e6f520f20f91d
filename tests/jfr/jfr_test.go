package jfr

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const text = `{"recording": {"events": [
		{"type": "jdk.ExecutionSample", "values": {"startTime": "2026-11-23T15:34:13.281532042Z", "state": "STATE_RUNNABLE",
			"stackTrace": {"truncated": true, "frames": [
				{"method": {"type": {"name": "java\/lang\/String"}, "name": "length"}, "type": "Inlined"},
				{"method": {"type": {"name": "shop.Cart"}, "name": "add"}, "type": "JIT compiled"},
				{"method": {"type": {"name": "shop.Main"}, "name": "main"}, "type": "Interpreted"}]}}},
		{"type": "jdk.JavaMonitorEnter", "values": {"startTime": "2026-11-23T16:34:14+01:00", "duration": "PT0.0015S", "stackTrace": null}}]}}`
	list, err := parse(strings.NewReader(text))
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	sample, wait := list[0], list[1]
	if len(sample.Stack) != 3 || sample.Stack[0] != (Frame{"java.lang.String.length", true}) || sample.Compiled() != "shop.Cart.add" {
		t.Errorf("%+v", sample)
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
