package main

import (
	"context"
	"errors"
	"math"
)

// startTurns starts these programs of the reference guest, or PHP-Parser.
func startTurns(ctx context.Context, m meter, engine string, programs []string) (_ *turns, err error) {
	t := newTurns(m, engine)
	defer func() {
		if err != nil {
			err = closing(t, err)
		}
	}()
	for _, program := range programs {
		if program == parser {
			guest, err := startPHP(ctx)
			if err != nil {
				return nil, err
			}
			if err := t.add(program, guest); err != nil {
				return nil, err
			}
			continue
		}
		vm, err := m.vm()
		if err != nil {
			return nil, err
		}
		if err := t.startVM(ctx, vm, program); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// closing closes the guests after what was done with them ended with err.
func closing(t *turns, err error) error { return errors.Join(err, t.close()) }

// moments are mean and standard deviation.
func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(max(len(values)-1, 1))
	}
	return mean, math.Sqrt(deviation)
}
