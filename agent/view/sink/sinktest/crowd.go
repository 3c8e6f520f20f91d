package sinktest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Crowd is a window of CPU time of processes that have n long stacks each, mostly of different
// frames.
func Crowd(processes, n int) *profile.Profile {
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
