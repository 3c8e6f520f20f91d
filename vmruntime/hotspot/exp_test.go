package hotspot

import (
	"encoding/binary"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

func TestExp(t *testing.T) {
	for _, home := range jdks(t) {
		for _, opts := range [][]string{{"-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"}, {},
			{"-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints", "-XX:TieredStopAtLevel=1"}, {"-XX:TieredStopAtLevel=1"}} {
			vm := startJVM(t, home, append(opts, "hotspot.ScopesGuest", "burn")...)
			p := vm.attach(t)
			pcs := vm.sample(t, "worker", 2*time.Second)
			res := map[string]map[string]int{}
			count := func(rule, name string) {
				if res[rule] == nil {
					res[rule] = map[string]int{}
				}
				res[rule][name]++
			}
			n := 0
			flags := map[[2]bool]int{}
			for _, pc := range pcs {
				addr, err := p.find(pc)
				if err != nil {
					continue
				}
				header, _ := p.bytes(addr, max(p.schema.blob.header, p.schema.scopes.header()))
				b, err := p.schema.blob.decodeBlob(addr, header)
				if err != nil || p.kinds.of(b.name) != kindNMethod {
					continue
				}
				n++
				if n == 1 {
					raw, _ := readScopes(p.target, &p.schema.scopes, addr, header)
					for x := raw.pcs; len(x) >= 16; x = x[16:] {
						flags[[2]bool{binary.LittleEndian.Uint32(x[8:]) == 0, binary.LittleEndian.Uint32(x[4:]) == 0}]++
					}
				}
				c, err := p.readCode(b.version(), pc)
				if err != nil {
					count("err", err.Error())
					continue
				}
				off := int32(pc - c.begin)
				pos := c.scopes.positions
				i := sort.Search(len(pos), func(i int) bool { return pos[i].offset >= off })
				name := func(i int) string {
					if i < 0 || i >= len(pos) || pos[i].scope == noScope {
						return "none"
					}
					return c.sources[c.scopes.scopes[pos[i].scope].method].name.Value()
				}
				own := c.own.name.Value()
				_ = own
				count("next>=", name(i))
				j := i
				if j < len(pos) && pos[j].offset == off {
					j++
				}
				count("next>", name(j))
				count("last<=", name(j-1))
				count("last<", name(i-1))
			}
			t.Log(filepath.Base(home), opts, n, len(pcs), "objnull,scopenull:", flags)
			for _, r := range []string{"next>=", "next>", "last<=", "last<", "err"} {
				t.Log("  ", r, res[r])
			}
			f := map[string]int{}
			for _, pc := range pcs {
				addr, err := p.find(pc)
				if err != nil { f["nocode"]++; continue }
				header, _ := p.bytes(addr, max(p.schema.blob.header, p.schema.scopes.header()))
				b, _ := p.schema.blob.decodeBlob(addr, header)
				fr, err := p.Lookup(vmruntime.Site{Kind: vmruntime.Compiled, Exact: true, PC: pc, Version: b.version()})
				if err != nil { f[err.Error()]++; continue }
				k := fr[0].Function
				if fr[0].Approximate { k += "~" }
				f[k]++
			}
			t.Log("   lookup", f)
		}
	}
}
