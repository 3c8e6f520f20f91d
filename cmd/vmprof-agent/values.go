package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/valueprobe"
)

// findValues fails if a --probe is in no file of the processes, with names that may be meant. A library that is named and that no process maps
// may be loaded later.
func (e *eventFlags) findValues(ctx context.Context, pids []int) error {
	if len(e.events.Values) == 0 {
		return nil
	}
	searches := make([]valueSearch, len(e.events.Values))
	for i, spec := range e.events.Values {
		searches[i].spec = spec
	}
	pool := proc.NewPool(proc.PoolOptions{Deadline: probesDeadline, FirstDeadline: probesDeadline})
	for _, pid := range pids {
		_, err := proc.Call(ctx, pool, pid, func() (struct{}, error) {
			_, err := attach.MappedFiles(proc.DefaultRoot, pid, listed, func(m *attach.MappedFile) error {
				finder := probesite.New(m.ELF, m.File)
				for i := range searches {
					searches[i].look(m, finder)
				}
				if !slices.ContainsFunc(searches, func(s valueSearch) bool { return !s.found }) {
					return errAllFound
				}
				return nil
			})
			return struct{}{}, err
		})
		if errors.Is(err, errAllFound) {
			return nil
		}
		if err != nil && !errors.Is(err, proc.ErrGone) {
			return nil // the recording tries itself, and says what it meets
		}
	}
	for i := range searches {
		if err := searches[i].err(); err != nil {
			return err
		}
	}
	return nil
}

var errAllFound = errors.New("all probes are found")

// A valueSearch looks for a spec in files.
type valueSearch struct {
	spec   valueprobe.Spec
	found  bool
	mapped string // a file in which it may be
	why    error  // it is not there
	names  []string
}

// look looks for the spec in a file.
func (s *valueSearch) look(m *attach.MappedFile, finder *probesite.Finder) {
	if s.found || !s.spec.In(m.Path) {
		return
	}
	_, err := attach.ValueSites(finder, s.spec)
	if err == nil {
		s.found = true
		return
	}
	if s.why == nil || !errors.Is(err, probesite.ErrNotFound) {
		s.mapped, s.why = plainText(m.Path, maxPath), err
	}
	s.names = append(s.names, nearNames(m, finder, s.spec)...)
}

// maxNear is how many names may be meant.
const maxNear = 3

// nearNames are probes or functions of a file that may be meant, with dots.
func nearNames(m *attach.MappedFile, finder *probesite.Finder, spec valueprobe.Spec) []string {
	var names []string
	if spec.Name == "" {
		names, _ = finder.Names()
		for i, name := range names {
			names[i] = strings.ReplaceAll(name, "::", ".")
		}
	} else {
		found, _ := m.ELF.Probes()
		for _, p := range found {
			names = append(names, p.Provider+"."+p.Name)
		}
	}
	return stored.Near(names, dotted(spec), maxNear)
}

// dotted is what a spec is about, as Near compares names: by class and method.
func dotted(spec valueprobe.Spec) string {
	if spec.Name != "" {
		return spec.Provider + "." + spec.Name
	}
	return strings.ReplaceAll(spec.Symbol, "::", ".")
}

// err is why the spec is nowhere; nil if it is somewhere, or may still come to be.
func (s *valueSearch) err() error {
	place := s.spec.Place()
	switch {
	case s.found, s.why == nil:
		return nil
	case !errors.Is(s.why, probesite.ErrNotFound):
		return fmt.Errorf("--probe %s: %s: %w", place, s.mapped, s.why)
	case s.spec.Library == "":
		return fmt.Errorf("--probe %s: no file that the process maps has it%s. If a library that is loaded later has it, name that: --probe LIBRARY:%s",
			place, s.didYouMean(), place)
	}
	return fmt.Errorf("--probe %s: not in %s%s", place, s.mapped, s.didYouMean())
}

// didYouMean has the names that may be meant as --probe takes them.
func (s *valueSearch) didYouMean() string {
	near := stored.Near(s.names, dotted(s.spec), maxNear)
	for i, name := range near {
		if s.spec.Name != "" {
			near[i] = "usdt:" + strings.Replace(name, ".", ":", 1)
		} else {
			near[i] = "func:" + strings.ReplaceAll(name, ".", "::")
		}
	}
	return didYouMean(near)
}

// valuesMissed is the error of a recording of values for which no probe was attached anywhere; nil if one was. The notes of the profile may
// have the reason.
func (e *eventFlags) valuesMissed(stats *profile.EventStats, p *pprof.Profile) error {
	if stats == nil || !e.events.Kinds[profile.Values] || stats.Wanted[profile.Values.String()] > 0 {
		return nil
	}
	var places []string
	for _, spec := range e.events.Values {
		places = append(places, spec.Place())
	}
	text := fmt.Sprintf("no process that was recorded has %s", strings.Join(places, " or "))
	if m, err := stored.MetadataOf(p); err == nil && len(m.Notes) > 0 {
		return fmt.Errorf("%s: %s", text, m.Notes[0].String())
	}
	return errors.New(text + "; vmprof-agent probes -p PID lists the probes of a process")
}
