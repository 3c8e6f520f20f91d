package estimate

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// A fuzzReader makes an input from bytes: any numbers, and ids that mostly exist.
type fuzzReader struct{ data []byte }

func (r *fuzzReader) byte() int {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return int(b)
}

// number is mostly small, and sometimes any float.
func (r *fuzzReader) number() float64 {
	b := r.byte()
	if b < 250 || len(r.data) < 8 {
		return float64(b)
	}
	bits := binary.LittleEndian.Uint64(r.data)
	r.data = r.data[8:]
	return math.Float64frombits(bits)
}

func (r *fuzzReader) id() int32 { return int32(r.byte()%12) - 2 }

func (r *fuzzReader) site() (site []Place) {
	for range r.byte() % 4 {
		site = append(site, Place{MethodID(r.id()), int32(r.byte() % 4)})
	}
	return site
}

func (r *fuzzReader) input() *Input {
	in := &Input{Duration: r.number(), CPU: r.number(), Period: r.number() / 100, HitCost: r.number() / 1e6}
	for range r.byte() % 10 {
		p := Profile{Invocations: r.number(), Work: r.number(), Entered: r.number(), EntersKnown: true}
		for range r.byte() % 4 {
			s := Site{BCI: int32(r.byte() % 4), Count: r.number()}
			for range r.byte() % 3 {
				s.Targets = append(s.Targets, Target{MethodID(r.id()), r.number()})
			}
			p.Sites = append(p.Sites, s)
		}
		in.Methods = append(in.Methods, p)
	}
	for range r.byte() % 10 {
		flags := r.byte()
		c := Code{Method: MethodID(r.id()), Tier: Tier(flags % 5), Loop: flags&32 != 0, Replaced: flags&64 != 0}
		for range r.byte() % 5 {
			places := []int32{int32(r.byte() % 4)}
			c.Copies = append(c.Copies, Copy{MethodID(r.id()), r.id(), int32(r.byte() % 4), places})
		}
		in.Codes = append(in.Codes, c)
	}
	for range r.byte() % 20 {
		in.Edges = append(in.Edges, Edge{CodeID(r.id()), r.site(), CodeID(r.id()), r.number(), r.number()})
	}
	for range r.byte() % 20 {
		w := Window{Length: r.number() / 1e3, Armed: r.number() / 1e3, Full: r.byte()%2 == 0}
		for range r.byte() % 4 {
			w.Codes = append(w.Codes, CodeID(r.id()))
			w.Hits = append(w.Hits, Hit{CodeID(r.id()), CodeID(r.id()), r.number()})
		}
		in.Windows = append(in.Windows, w)
	}
	return in
}

// FuzzEstimate: for any input, the result has valid numbers, and a plan keeps to its budget.
func FuzzEstimate(f *testing.F) {
	f.Add([]byte{})
	random := rand.NewChaCha8([32]byte{})
	for range 50 {
		seed := make([]byte, 50+random.Uint64()%1000)
		random.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := (&fuzzReader{data}).input()
		r := Estimate(in, Options{Logical: true})
		check(t, in, r)
		b := budget()
		plan := Plan(in, r, b)
		if len(plan) > b.Windows {
			t.Fatalf("%d windows planned", len(plan))
		}
		for _, q := range plan {
			if len(q.Codes) == 0 || len(q.Codes) > b.Codes || !(q.Duration > 0) || q.Duration > b.MaxDuration {
				t.Fatalf("planned %+v", q)
			}
		}
	})
}
