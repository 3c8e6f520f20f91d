package probes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// FindValues fails if a --probe is in no file of the processes, with names that may be meant. A
// library that is named and that no process maps may be loaded later.
func FindValues(ctx context.Context, specs []valueprobe.Spec, pids []int) error {
	searches, err := searchValues(ctx, specs, pids)
	if err != nil {
		return nil // the recording tries itself, and says what it meets
	}
	for i := range searches {
		if err := searches[i].err(); err != nil {
			return err
		}
	}
	return nil
}

// searchValues looks for each --probe in the files of the processes, until all are found.
func searchValues(ctx context.Context, specs []valueprobe.Spec, pids []int) ([]valueSearch, error) {
	searches := make([]valueSearch, len(specs))
	for i, spec := range specs {
		searches[i].spec = spec
	}
	if len(searches) == 0 {
		return nil, nil
	}
	pool := proc.NewPool(proc.PoolOptions{Deadline: probesDeadline, FirstDeadline: probesDeadline})
	type looked struct {
		searches []valueSearch
		paths    map[string]bool // most processes map the same libraries
	}
	so := looked{searches, map[string]bool{}}
	var failed error
	for _, pid := range pids {
		before := so
		next, err := proc.Call(ctx, pool, pid, func() (looked, error) {
			// A call that takes too long is abandoned, and goes on: what it changes is its own.
			l := looked{slices.Clone(before.searches), maps.Clone(before.paths)}
			_, err := attach.MappedFiles(proc.DefaultRoot, pid, listed, func(m *attach.MappedFile) error {
				if l.paths[m.Path] || allFound(l.searches) {
					return nil
				}
				l.paths[m.Path] = true
				finder := probesite.New(m.ELF, m.File)
				for i := range l.searches {
					l.searches[i].look(m, finder)
				}
				return nil
			})
			return l, err
		})
		switch {
		case err == nil:
			so = next
		case !errors.Is(err, proc.ErrGone):
			failed = err
		}
		if allFound(so.searches) {
			return so.searches, nil
		}
	}
	return so.searches, failed
}

func allFound(searches []valueSearch) bool {
	return !slices.ContainsFunc(searches, func(s valueSearch) bool { return !s.found })
}

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
	if s.found || !s.spec.MatchesFile(m.Path) {
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
	s.names = append(slices.Clip(s.names), nearNames(m, finder, s.spec)...)
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
		return fmt.Errorf("--probe %s: no file that the process maps has it%s. If a library that is loaded later has "+
			"it, name that: --probe LIBRARY:%s",
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
	return cli.DidYouMean(near)
}

// searchPatience is for how long names are looked for that may be meant, after a recording of
// nothing.
const searchPatience = 10 * time.Second

// ValuesMissed is the error of a recording of values for which no probe was attached anywhere; nil
// if one was. The notes of the profile may have the reason. Names that may be meant are those in
// the files of the processes that run now.
func ValuesMissed(
	ctx context.Context, specs []valueprobe.Spec, stats *profile.EventStats, p *pprof.Profile,
) error {
	if stats == nil || stats.Wanted[profile.Values.String()] > 0 {
		return nil
	}
	var places []string
	for _, spec := range specs {
		places = append(places, spec.Place())
	}
	text := fmt.Sprintf("no process that was recorded has %s", strings.Join(places, " or "))
	if m, err := stored.MetadataOf(p); err == nil && len(m.Notes) > 0 {
		text += ": " + m.Notes[0].String()
	}
	ctx, cancel := context.WithTimeout(ctx, searchPatience)
	defer cancel()
	pids, _ := proc.DefaultRoot.PIDs()
	searches, _ := searchValues(ctx, specs, pids) // as far as it came
	for i := range searches {
		if near := searches[i].didYouMean(); near != "" && !searches[i].found {
			return errors.New(text + near)
		}
	}
	return errors.New(text + "; vmprof-agent probes -p PID lists the probes of a process")
}
