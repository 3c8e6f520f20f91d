package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/httpd"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// live makes a profiler of an agent.
type live struct{ *agent.Agent }

// Collect is the agent's, for processes that exist: who asks for another one should not wait for an empty profile.
func (l live) Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error) {
	for _, pid := range pids {
		if _, err := proc.DefaultRoot.Identify(pid); errors.Is(err, proc.ErrGone) {
			return nil, fmt.Errorf("pid %d: %w", pid, httpd.ErrNoProcess)
		}
	}
	return l.Agent.Collect(ctx, d, pids)
}
