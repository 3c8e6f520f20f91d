package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A meter measures the agent.
type meter struct {
	agent profiler.Agent
	dir   string // for files of a run
	short bool
	waits bool // only waits by cause
}

// A result is what came of a cell.
type result struct {
	cell
	absent   string // why this JVM cannot run so, in its own words
	untried  bool
	err      error // error of what should have worked
	verdicts []verdict
	ways     []way
}

func (r result) wrong() bool {
	return r.err != nil || slices.ContainsFunc(r.verdicts, func(v verdict) bool { return v.state == wrong })
}

// memory is what the programs get. What they allocate fits, so that a collector that frees nothing
// will do.
var memory = []string{"-Xms1g", "-Xmx1g"}

// How much the programs do: some two seconds each.
const (
	threads     = 2
	workMillis  = 1500 // milliseconds of each thread's work
	objects     = 1_200_000
	waiters     = 4
	waitRounds  = 2000
	frequency   = 1999
	warmupShare = 10 // one part in so many of the work is done before it is recorded
)

// try runs the cell's programs in JVMs of their own, and records each.
func (m meter) try(ctx context.Context, c cell) (r result) {
	r.cell = c
	command, err := m.command(ctx, c)
	if err != nil {
		r.err = err
		return r
	}
	if r.absent = refusal(ctx, command); r.absent != "" {
		return r
	}
	parts := []func(context.Context, jvm.Command) ([]verdict, error){m.work, m.allocate, m.wait}
	if m.waits {
		parts = nil
	}
	for _, part := range parts {
		verdicts, err := part(ctx, command)
		r.verdicts, r.err = append(r.verdicts, verdicts...), errors.Join(r.err, err)
	}
	r.ways, err = m.away(ctx, c, command)
	r.verdicts, r.err = append(r.verdicts, waitVerdicts(r.ways)...), errors.Join(r.err, err)
	return r
}

// command is how the cell's JVM is started, with its archive written.
func (m meter) command(ctx context.Context, c cell) (jvm.Command, error) {
	compiler, err := jvm.Oldest()
	if err != nil {
		return jvm.Command{}, err
	}
	classes, err := guests.CompileOld(ctx, compiler)
	if err != nil {
		return jvm.Command{}, err
	}
	command := jvm.Command{JDK: c.jdk, Classpath: []string{classes}, Main: events.Main, Dirs: []string{m.dir}}
	if c.archive == nil {
		command.Flags = append(c.flags(c.jdk.Version), memory...)
		return command, nil
	}
	jar, err := m.jar(classes)
	if err != nil {
		return jvm.Command{}, err
	}
	command.Classpath = []string{jar}
	return m.writeArchive(ctx, command, c.archive(c.jdk.Version))
}

// jar packs classes: JVMs take no others into archives.
func (m meter) jar(classes string) (path string, err error) {
	path = filepath.Join(m.dir, "guest.jar")
	out, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("pack the guest: %w", err)
	}
	archive := zip.NewWriter(out)
	err = archive.AddFS(os.DirFS(classes))
	if err = errors.Join(err, archive.Close(), out.Close()); err != nil {
		return "", fmt.Errorf("pack the guest: %w", err)
	}
	return path, nil
}

// writeArchive has the JVM write an archive, and returns how it starts from that.
func (m meter) writeArchive(ctx context.Context, c jvm.Command, a archive) (jvm.Command, error) {
	dir, err := os.MkdirTemp(m.dir, "archive-")
	if err != nil {
		return c, fmt.Errorf("create a directory for an archive: %w", err)
	}
	in := func(flags []string) []string {
		replaced := slices.Clone(memory)
		for _, flag := range flags {
			replaced = append(replaced, strings.ReplaceAll(flag, file, filepath.Join(dir, "archive")))
		}
		return replaced
	}
	c.Args = []string{events.Working.Class}
	for _, flags := range a.writes {
		c.Flags = in(flags)
		if out, err := output(ctx, c); err != nil {
			return c, fmt.Errorf("write an archive with %s: %w\n%s", strings.Join(flags, " "), err, out)
		}
	}
	c.Flags, c.Args = in(a.reads), nil
	return c, nil
}

// output runs a JVM to its end, which comes with that of its input, at once.
func output(ctx context.Context, c jvm.Command) (string, error) {
	process, err := jvm.Process(ctx, c)
	if err != nil {
		return "", err
	}
	out, err := process.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// refusal is what the JVM says against its flags, "" if it takes them.
func refusal(ctx context.Context, c jvm.Command) string {
	c.Args = []string{events.Working.Class}
	out, err := output(ctx, c)
	line, _, _ := strings.Cut(out, "\n")
	var exit *exec.ExitError
	if errors.As(err, &exit) && (strings.Contains(out, "Unrecognized VM option") ||
		strings.Contains(out, "not supported")) {
		return line
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "Ignoring option") || strings.Contains(line, "support was removed") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// record records a program's second run, of which the first one had its code compiled.
func (m meter) record(
	ctx context.Context, c jvm.Command, p events.Program, threads, amount int, extra ...string,
) (seen, error) {
	guest, err := events.StartIn(ctx, c, p)
	if err != nil {
		return seen{}, err
	}
	defer guest.Close()
	if _, err := guest.Run(threads, max(1, amount/warmupShare)); err != nil {
		return seen{}, err
	}
	var s seen
	s.recording, err = m.agent.While(ctx, profiler.Options{PID: guest.PID(), Extra: extra},
		(*profiler.AgentRun).WaitAttached,
		func(*profiler.AgentRun) error {
			var err error
			s.truth, err = guest.Run(threads, amount)
			return err
		})
	if err != nil {
		return seen{}, fmt.Errorf("record %s: %w", p.Class, err)
	}
	return s, nil
}

// A seen is a recording of a run, and what the run did in truth.
type seen struct {
	truth     events.Truth
	recording *profiler.Recording
}
