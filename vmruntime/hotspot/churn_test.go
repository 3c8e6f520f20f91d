package hotspot

import (
	"errors"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/nmethod"
)

// generation is the number that the churning guest puts into all names of a class and its methods.
// They only call one another.
var generation = regexp.MustCompile(`^guest\.Gen(\d{6})\.\D*(\d{6})?$`)

// TestChurn reads a guest that unloads classes and reuses code memory all the time, and looks up
// code long after it was there. Whatever has a name must have the right one: each version always
// the same, with one generation in all of its frames. (What a sampled stack looks like is another
// test's concern.)
func TestChurn(t *testing.T) {
	const (
		duration = 3 * time.Second // at least, and until there was churn
		delay    = 20              // rounds between the sample and its lookup
	)
	sources, err := filepath.Glob("../../tests/guests/java/guest/*.java")
	if err != nil {
		t.Fatal(err)
	}
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startGuest(t, home, sources, "-XX:ReservedCodeCacheSize=8m", "guest.Main", "Churn")
			p, err := vm.image.Attach(vmruntime.Target{Memory: vm.mem, Bias: vm.bias})
			if err != nil {
				t.Fatal(err)
			}
			c := churn{t: t, Process: whole(t, p), names: make(map[uint32]string)}
			var late [][]vmruntime.Site
			for start := time.Now(); time.Since(start) < duration || !c.enough() &&
				time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
				now := c.sites()
				for _, site := range now {
					c.check(site)
				}
				if late = append(late, now); len(late) > delay {
					for _, site := range late[0] {
						c.check(site)
					}
					late = late[1:]
				}
			}
			t.Logf("%d lookups, %d stale, %d compilations named", c.lookups, c.stale, len(c.names))
			if !c.enough() {
				t.Error("there was no churn")
			}
		})
	}
}

// enough says that there was so much churn that wrong names would have shown.
func (c *churn) enough() bool { return len(c.names) >= 100 && c.stale >= 10 }

type churn struct {
	*Process
	t              *testing.T
	names          map[uint32]string // version -> outermost function
	lookups, stale int
}

// sites makes a site of every compilation that is there now.
func (c *churn) sites() (all []vmruntime.Site) {
	if err := c.Cache.Walk(&c.Codes.Schema.Blob, func(blobs []codecache.Blob) error {
		for _, b := range blobs {
			if c.Compiled(&b) {
				site := vmruntime.Site{Kind: vmruntime.Compiled, Version: b.Version(), PC: (b.Begin + b.End) / 2,
					Exact: true}
				all = append(all, site)
			}
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	return all
}

func (c *churn) check(site vmruntime.Site) {
	c.Forget(true) // no memory of earlier lookups
	c.Versions = nmethod.VersionTable{}
	frames, err := c.Lookup(site)
	c.lookups++
	if err != nil {
		c.stale++
		if !errors.Is(err, vmruntime.ErrStale) && !errors.Is(err, vmruntime.ErrMalformed) {
			c.t.Errorf("%+v: %v", site, err)
		}
		return
	}
	outer := frames[len(frames)-1].Function
	if before, ok := c.names[site.Version]; ok && before != outer {
		c.t.Errorf("version %d is %s, and was %s", site.Version, outer, before)
	}
	c.names[site.Version] = outer
	number := ""
	for _, f := range frames {
		m := generation.FindStringSubmatch(f.Function)
		if m == nil {
			continue
		}
		if m[2] != "" && m[1] != m[2] || number != "" && number != m[1] {
			c.t.Errorf("version %d mixes generations: %+v", site.Version, frames)
		}
		number = m[1]
	}
}
