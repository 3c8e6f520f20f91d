package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// Columns of a service's accounts, after the time.
const (
	ledgerBytes = iota
	ledgerWaited
	ledgerSlept
	ledgerRequests
	ledgerCPU
	ledgerColumns
)

// A line of the accounts: what was counted until a time.
type line struct {
	at     int64 // since 1970, nanoseconds
	counts [ledgerColumns]float64
}

// running is a service that runs and keeps accounts.
type running struct {
	process *exec.Cmd
	mu      sync.Mutex
	lines   []line
	ended   chan error
}

func startService(ctx context.Context, c jvm.Command) (*running, error) {
	process, err := jvm.Process(ctx, c)
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open the service's accounts: %w", err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	g := &running{process: process, ended: make(chan error, 1)}
	go func() {
		for text := bufio.NewScanner(out); text.Scan(); {
			var l line
			c := &l.counts
			if n, _ := fmt.Sscan(text.Text(), &l.at, &c[ledgerBytes], &c[ledgerWaited], &c[ledgerSlept],
				&c[ledgerRequests], &c[ledgerCPU]); n == 1+ledgerColumns {
				g.mu.Lock()
				g.lines = append(g.lines, l)
				g.mu.Unlock()
			}
		}
		g.ended <- process.Wait()
	}()
	return g, nil
}

func (g *running) pid() int { return g.process.Process.Pid }

// warm lets the service run. It fails if the service ends.
func (g *running) warm(ctx context.Context, length time.Duration) error {
	select {
	case err := <-g.ended:
		g.ended <- err
		return fmt.Errorf("the service ended: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}

func (g *running) stop() {
	_ = g.process.Process.Kill()
	<-g.ended
}

// at returns what a column had counted at a time, interpolated between lines.
func (g *running) at(when int64, column int) (float64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := 1; i < len(g.lines); i++ {
		before, after := &g.lines[i-1], &g.lines[i]
		if before.at <= when && when <= after.at {
			part := float64(when-before.at) / float64(max(after.at-before.at, 1))
			return before.counts[column] + part*(after.counts[column]-before.counts[column]), nil
		}
	}
	return 0, fmt.Errorf("the accounts have %d lines, none about %v", len(g.lines), time.Unix(0, when))
}
