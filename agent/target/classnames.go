package target

import (
	"context"
	"fmt"
	"iter"
)

// ClassNames has p's worker name classes of its VM, by address; those that cannot be named are missing. Addresses are good
// until classes are unloaded.
func (rs *Resolver) ClassNames(ctx context.Context, p *Process, klasses iter.Seq[uint64]) (map[uint64]string, error) {
	done := make(chan map[uint64]string, 1)
	err := rs.WithVM(ctx, p, func(g *VM) error {
		names := map[uint64]string{}
		epoch := rs.ClassEpoch(g)
		for klass := range klasses {
			if class, err := g.HotSpot.Klass(klass, epoch); err == nil {
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
