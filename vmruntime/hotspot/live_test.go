package hotspot

import (
	"fmt"
	"testing"
	"path/filepath"
	"time"
)

func TestLive(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, "hotspot.ScopesGuest", "warm")
			start := time.Now()
			p := vm.attach(t)
			t.Log(time.Since(start), p.Describe(), p.Notes())
			t.Logf("%+v", p.layout)
			fmt.Println(len(p.versions.named), p.layout.Pending)
			for name, v := range p.kinds.names { _ = name; _ = v }
			p.stubs.load(p)
			t.Log(len(p.stubs.routines))
			c, err := readCodelets(p.target, &p.schema.stubs)
			t.Log(len(c), err)
		})
	}
}
