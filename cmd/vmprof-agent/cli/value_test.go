package cli

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"200MB": 200e6, "200M": 200e6, "1.5GB": 15e8, "1GiB": 1 << 30, "64KiB": 64 << 10, "5k": 5000, "12345": 12345,
		"12 mb": 12e6, "7B": 7,
	} {
		var got Size
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MB", "-1MB", "1TBx", "nan", "1e30GB"} {
		if err := new(Size).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	def := Size(history.DefaultMaxSize)
	if got := def.String(); got != "300MB" {
		t.Errorf("the default is %s", got)
	}
}
