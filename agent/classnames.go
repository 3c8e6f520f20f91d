package agent

import (
	"context"
	"fmt"
	"iter"
)

// classNames has p's worker name classes of its VM, by address; those that cannot be named are missing. Addresses are good
// until classes are unloaded.
func (ts *targets) classNames(ctx context.Context, p *targetProcess, klasses iter.Seq[uint64]) (map[uint64]string, error) {
	done := make(chan map[uint64]string, 1)
	err := ts.withGuest(ctx, p, func(g *guest) error {
		names := map[uint64]string{}
		epoch := ts.classEpoch(g)
		for klass := range klasses {
			if class, err := g.vm.Klass(klass, epoch); err == nil {
				names[klass] = class.Name
			}
		}
		done <- names
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("name classes: %w", err)
	}
	return <-done, nil
}
