package hotspot

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
)

// burnOptions keep the method that is sampled in one piece.
var burnOptions = []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,hotspot.ScopesGuest::burn"}

// TestInlinedShares samples a program whose time is known to be spent in three inlined leaves,
// about 17, 8 and 16 of 41 cycles; how long each takes on this processor, the guest says. It is
// what decides which neighbour of a sampled instruction counts (see debuginfo.Table.At).
func TestInlinedShares(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			options := append(burnOptions, "-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints")
			vm := startJVM(t, home, append(options, "hotspot.ScopesGuest", "burn")...)
			p := vm.attach(t)
			share, total := vm.shares(t, p, "hotspot.ScopesGuest.burn")
			var divide, add, power float64
			if _, err := fmt.Sscanf(vm.said, "ready divide=%f add=%f power=%f", &divide, &add, &power); err != nil {
				t.Fatalf("guest said %q: %v", vm.said, err)
			}
			all := divide + add + power
			// power is four multiplications, and a leaf's last instruction may be given to its
			// neighbour.
			instruction := power / 4 / all
			for leaf, time := range map[string]float64{"divide": divide, "add": add, "power": power} {
				want := time / all
				chance := 4 * math.Sqrt(want*(1-want)/float64(total)) // four standard deviations
				got, tolerance := share["hotspot.ScopesGuest."+leaf], instruction+chance
				if math.Abs(got-want) > tolerance {
					t.Errorf("%s has %.3f of %d samples, want %.3f ± %.3f", leaf, got, total, want, tolerance)
				}
			}
			t.Log(share, strings.TrimSpace(vm.said))
		})
	}
}

// patience is how long tests wait for a guest to get enough of the CPUs.
const patience = 5 * time.Minute

// shares samples the worker until there are enough samples in C2's code of a method, and returns
// the shares of leaves.
func (vm *jvm) shares(t *testing.T, p *Process, enclosing string) (map[string]float64, int) {
	t.Helper()
	const enough = 1000
	count := make(map[string]float64)
	total := 0
	for deadline := time.Now().Add(patience); total < enough; {
		if time.Now().After(deadline) {
			t.Fatalf("only %d samples in %s", total, enclosing)
		}
		for _, pc := range vm.sample(t, "worker", 500*time.Millisecond) {
			frames, err := p.Lookup(p.siteAt(pc, true))
			if err != nil || frames[0].Tier != vmruntime.TierC2 || frames[len(frames)-1].Function != enclosing {
				continue
			}
			count[frames[0].Function]++
			total++
		}
	}
	for leaf := range count {
		count[leaf] /= float64(total)
	}
	return count, total
}

// siteAt makes the site that the kernel side would have made of a pc in compiled code now.
func (p *Process) siteAt(pc uint64, exact bool) vmruntime.Site {
	site := vmruntime.Site{Kind: vmruntime.Compiled, PC: pc, Exact: exact}
	if addr, err := p.Cache.Find(pc); err == nil {
		if header, err := p.Memory.Bytes(addr, p.Codes.Schema.Blob.Header); err == nil {
			site.Version = uint32(p.Codes.Schema.Blob.CompileID.Read(header)) & codecache.VersionMask
		}
	}
	return site
}

// TestInlinedSharesHidden: without DebugNonSafepoints the JVM does not record the leaves, and the
// profile says so.
func TestInlinedSharesHidden(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, append(burnOptions, "hotspot.ScopesGuest", "burn")...)
			p := vm.attach(t)
			const burn = "hotspot.ScopesGuest.burn"
			if share, total := vm.shares(t, p, burn); share[burn] < 0.9 {
				t.Errorf("%s has %.3f of %d samples, want nearly all: %v", burn, share[burn], total, share)
			}
			pc := vm.pcIn(t, p, burn)
			frames, err := p.Lookup(p.siteAt(pc, true))
			if err != nil || !frames[0].Approximate {
				t.Errorf("frames at %#x: %+v, %v: want the leaf marked as approximate", pc, frames, err)
			}
			if notes := strings.Join(p.Notes(), " "); !strings.Contains(notes, "DebugNonSafepoints is off") {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}

// pcIn samples until a pc of C2's code of the method comes along.
func (vm *jvm) pcIn(t *testing.T, p *Process, method string) uint64 {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, pc := range vm.sample(t, "worker", 200*time.Millisecond) {
			frames, err := p.Lookup(p.siteAt(pc, true))
			if err == nil && frames[0].Function == method && frames[0].Tier == vmruntime.TierC2 {
				return pc
			}
		}
	}
	t.Fatalf("no sample in %s", method)
	return 0
}

// BenchmarkAttachLive attaches to guests with thousands of compiled methods.
func BenchmarkAttachLive(b *testing.B) {
	for _, home := range jdks(b) {
		b.Run(filepath.Base(home), func(b *testing.B) {
			vm := startJVM(b, home, "-Xcomp", "-XX:TieredStopAtLevel=1", "hotspot.ScopesGuest", "crowd", guestSource)
			b.ReportAllocs()
			for b.Loop() {
				vm.attach(b)
			}
			var p *Process
			kept := heapOf(func() any { p = vm.attach(b); return p })
			known := float64(len(compiledSites(b, p)))
			b.ReportMetric(known, "compilations")
			b.ReportMetric(float64(kept)/known, "B/compilation")
		})
	}
}

// compiledSites is a place in the middle of each compilation.
func compiledSites(b *testing.B, p *Process) (sites []vmruntime.Site) {
	b.Helper()
	if err := p.Compilations(func(c vmruntime.Compilation) bool {
		sites = append(sites, vmruntime.Site{Kind: vmruntime.Compiled, Version: c.Version, Exact: true,
			PC: c.Begin + (c.End-c.Begin)/2})
		return true
	}); err != nil {
		b.Fatal(err)
	}
	return sites
}

// BenchmarkNamesLive names a place in each of many compilations that were not read before, as a
// worker does for the samples of a moment.
func BenchmarkNamesLive(b *testing.B) {
	home := jdks(b)[0]
	for _, options := range [][]string{{"-XX:TieredStopAtLevel=1"}, {"-XX:-TieredCompilation"}} {
		b.Run(options[0], func(b *testing.B) {
			vm := startJVM(b, home, append(options, "-Xcomp", "hotspot.ScopesGuest", "crowd", guestSource)...)
			p := vm.attach(b)
			sites := compiledSites(b, p)
			const atOnce = 32
			named := 0
			b.ReportAllocs()
			for b.Loop() {
				p.Forget(true)
				for chunk := range slices.Chunk(sites, atOnce) {
					p.Prepare(chunk)
					for _, site := range chunk {
						if _, err := p.Lookup(site); err == nil {
							named++
						}
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(named), "ns/name")
		})
	}
}
