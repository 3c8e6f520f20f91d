package hotspot

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Classes that are unloaded while they are listed may be others by then.
func TestMethodsStale(t *testing.T) {
	p := loadRecording(t, "testdata/jdk17.gz").attach(t, nil)
	epoch := uint32(0)
	p.Epoch = func() uint32 { epoch++; return epoch }
	if _, err := p.Methods(); !errors.Is(err, vmruntime.ErrStale) {
		t.Errorf("%v", err)
	}
	p.Version.JDK = 8
	if _, err := p.Methods(); err == nil || !strings.Contains(err.Error(), "use 9 or newer") {
		t.Errorf("JDK 8: %v", err)
	}
}
