package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

var kinds = []*Kind{{Name: "cpu", Content: sink.Time}}

// crowd is a window of processes that have n long stacks each, mostly of different frames.
func crowd(processes, n int) *profile.Profile {
	p := &profile.Profile{Start: time.Unix(1000, 0), Duration: 10 * time.Second, Period: time.Second / 99,
		Event: "cpu-clock"}
	r := rand.New(rand.NewPCG(1, 2))
	for pid := range processes {
		var tree cct.Tree[symbol.Symbol]
		for range n {
			var stack []symbol.Symbol
			for range 20 + r.IntN(20) {
				name := fmt.Sprintf("com.acme.shop.checkout.internal.Component%d.handleRequest", r.IntN(3000))
				stack = append(stack, symbol.Intern(symbol.Frame{Function: name, SystemName: name + "()V",
					File: "Component.java", Line: r.IntN(100), Kind: symbol.KindJIT}))
			}
			tree.Add(stack, 1+r.Uint64N(1000))
		}
		p.Processes = append(p.Processes, &profile.Process{PID: 1 + pid, Comm: "java",
			Threads: []*profile.Thread{{TID: 1, Tree: &tree}}})
	}
	return p
}

// BenchmarkConvert makes what the page keeps of a window with 90,000 contexts.
func BenchmarkConvert(b *testing.B) {
	w := crowd(10, 300)
	b.ReportAllocs()
	for b.Loop() {
		f, err := flameOf(w, kinds[0], kinds)
		if err != nil {
			b.Fatal(err)
		}
		f.Cut(maxKeptNodes)
	}
}

// BenchmarkPage makes the answer to a page that shows five minutes.
func BenchmarkPage(b *testing.B) {
	k := newKept(func() []*Kind { return kinds }, slog.New(slog.DiscardHandler))
	now := time.Unix(1000, 0)
	k.now = func() time.Time { return now }
	k.asked = now
	for i := range maxKept {
		w := crowd(10, 30+i%5)
		w.Start = now.Add(time.Duration(i) * 10 * time.Second)
		k.observe(w)
	}
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		f, err := k.Flame(b.Context(), kinds[0].Name, "", time.Time{}, time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		text, err := json.Marshal(f.Cut(maxFlameNodes))
		if err != nil {
			b.Fatal(err)
		}
		size = len(text)
	}
	b.ReportMetric(float64(size), "bytes/page")
}
