package vmruntime

import "testing"

func TestMethodProfileCall(t *testing.T) {
	p := &MethodProfile{Calls: []CallCount{{BCI: 1}, {BCI: 4}, {BCI: 9}}}
	for bci := -1; bci < 12; bci++ {
		call := p.Call(bci)
		want := bci == 1 || bci == 4 || bci == 9
		if (call != nil) != want || want && call.BCI != bci {
			t.Errorf("call at %d: %+v", bci, call)
		}
	}
	if call := new(MethodProfile).Call(0); call != nil {
		t.Errorf("a profile without calls has %+v", call)
	}
}

func TestCallKindString(t *testing.T) {
	for kind, want := range map[CallKind]string{0: "unknown", StaticCall: "static", DynamicCall: "dynamic",
		77: "unknown"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is %q, want %q", kind, got, want)
		}
	}
}
