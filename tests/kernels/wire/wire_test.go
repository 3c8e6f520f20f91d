package wire

import "testing"

func TestMark(t *testing.T) {
	for _, tt := range []struct {
		mark Mark
		line string
	}{
		{Mark{Up, "6.1.0-56-cloud-amd64", "2.31"}, "== up 6.1.0-56-cloud-amd64 2.31"},
		{Mark{Run, "bpf", ""}, "== run bpf"},
		{Mark{Exit, "bpf", "fork/exec: no such file"}, "== exit bpf fork/exec: no such file"},
		{Mark{Done, "", ""}, "== done"},
	} {
		if got := tt.mark.String(); got != tt.line {
			t.Errorf("%#v is written as %q, want %q", tt.mark, got, tt.line)
		}
		if got := Parse(tt.line); got != tt.mark {
			t.Errorf("%q is read as %#v, want %#v", tt.line, got, tt.mark)
		}
	}
	for _, line := range []string{"", "=== RUN   TestKernelLoad", "== ", "== runs bpf", "PASS"} {
		if got := Parse(line); got != (Mark{}) {
			t.Errorf("%q is read as %#v, want no marker", line, got)
		}
	}
}
