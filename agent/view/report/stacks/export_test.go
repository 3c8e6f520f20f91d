package stacks

import (
	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// ContextsOf returns the calling context tree of all samples of a type, threads and processes
// merged.
func ContextsOf(p *pprof.Profile, sampleType string) (*cct.Tree[Method], error) {
	s, err := NewSamples(p, sampleType)
	if err != nil {
		return nil, err
	}
	tree := new(cct.Tree[Method])
	var frames []Frame
	var stack []Method
	for sample, value := range s.All() {
		frames = s.AppendFrames(frames[:0], sample)
		stack = stack[:0]
		for _, f := range frames {
			stack = append(stack, f.Method)
		}
		tree.Add(stack, value)
	}
	return tree, nil
}
