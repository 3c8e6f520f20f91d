package profiler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/binary"
)

// An Agent is a built vmprof-agent.
type Agent struct {
	Path string
}

// Build builds the agent into dir.
func Build(ctx context.Context, dir string) (Agent, error) {
	path, err := binary.Build(ctx, "github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent", dir)
	return Agent{Path: path}, err
}

// A Recording is what the agent recorded.
type Recording struct {
	Profile *profile.Profile
	Kinds   map[string]*profile.Profile // by name (cpu, alloc, …), if several were recorded: Profile is nil then
	Stats   Stats
	Output  string // what it printed
}

// An AgentRun is an agent that records.
type AgentRun struct {
	*Run
	dir  string         // directory of its files, removed with them
	says map[string]int // what it prints once it has attached to its target, and how often
	tick bool           // it samples at the kernel's tick, for which it has no perf event
}

// WaitSampling waits until the agent samples, and has attached to its target if that is a JVM.
func (r *AgentRun) WaitSampling() error {
	if err := r.waitFor(r.says); err != nil {
		return err
	}
	if r.tick {
		time.Sleep(settle)
		return nil
	}
	return r.Run.WaitSampling()
}

// WaitAttached waits until the agent has attached what it attaches to its target.
func (r *AgentRun) WaitAttached() error {
	if err := r.waitFor(r.says); err != nil {
		return err
	}
	return r.Run.WaitAttached()
}

// Said is how often the agent has printed text so far.
func (r *AgentRun) Said(text string) int { return strings.Count(r.output.String(), text) }

// attachments are the lines of the log that say that the agent is where it is to be.
func (o Options) attachments() map[string]int {
	says := map[string]int{"msg=recording": 1}
	if maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", o.PID)); err == nil &&
		bytes.Contains(maps, []byte("/libjvm.so")) && !slices.ContainsFunc(o.Extra,
		func(arg string) bool { return strings.HasPrefix(arg, "--exact") && arg != "--exact-alloc" }) {
		says[fmt.Sprintf("msg=attached pid=%d ", o.PID)] = 1
	}
	for _, arg := range o.Extra {
		if arg == "--probe" {
			says[`msg="values are recorded"`]++
		}
		if strings.HasPrefix(arg, "--exact") && arg != "--exact-alloc" {
			says[`msg="calls are counted"`]++
		}
	}
	return says
}

// Record records from beginning to end.
func (a Agent) Record(ctx context.Context, o Options) (*Recording, error) {
	run, err := a.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return run.Finish()
}

// While records what work does, all of it: work begins when the agent is ready, by WaitSampling or
// WaitAttached, and the recording ends with it. Everything that the agent attempted is accounted
// for.
func (a Agent) While(ctx context.Context, o Options, ready, work func(*AgentRun) error) (*Recording, error) {
	run, err := a.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err = ready(run); err == nil {
		err = work(run)
	}
	recording, stopped := run.Stop() // also one whose guest has failed
	if err := errors.Join(err, stopped); err != nil {
		return nil, err
	}
	return recording, recording.Stats.CheckIdentities()
}

// Start starts a recording.
func (a Agent) Start(ctx context.Context, o Options) (*AgentRun, error) {
	dir, err := os.MkdirTemp("", "vmprof-recording-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the recording: %w", err)
	}
	args := []string{"record", "--verbose", "-o", filepath.Join(dir, profileName), "--stats",
		filepath.Join(dir, statsName)}
	if o.Frequency != 0 {
		args = append(args, "-F", strconv.Itoa(o.Frequency))
	}
	if o.PID != 0 {
		args = append(args, "-p", strconv.Itoa(o.PID))
	}
	if o.Duration != 0 {
		args = append(args, "-d", o.Duration.String())
	} else {
		args = append(args, "-d", "1h") // until it is stopped
	}
	run, err := start(ctx, a.Path, append(args, o.Extra...)...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &AgentRun{Run: run, dir: dir, says: o.attachments(), tick: slices.Contains(o.Extra, "--clock=tick")}, nil
}

// Names of the files in a recording's directory.
const (
	profileName = "profile.pb.gz"
	statsName   = "stats.json"
)

// Finish waits for the recording's own end.
func (r *AgentRun) Finish() (*Recording, error) {
	output, err := r.Wait()
	return r.recording(output, err)
}

// Stop ends the recording as Ctrl-C does.
func (r *AgentRun) Stop() (*Recording, error) {
	output, err := r.Interrupt()
	return r.recording(output, err)
}

// recording reads what a recording wrote, given how it ended.
func (r *AgentRun) recording(output string, ended error) (*Recording, error) {
	defer os.RemoveAll(r.dir)
	if ended != nil {
		return nil, fmt.Errorf("record: %w\n%s", ended, output)
	}
	recording := &Recording{Output: output}
	if err := recording.read(filepath.Join(r.dir, profileName)); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(r.dir, statsName))
	if err != nil {
		return nil, fmt.Errorf("read the agent's counters: %w", err)
	}
	recording.Stats, err = parseStats(text)
	return recording, err
}

// read reads the file of one kind, or the directory of several.
func (r *Recording) read(path string) (err error) {
	files, err := filepath.Glob(filepath.Join(path, "*.pb.gz"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		r.Profile, err = ReadProfile(path)
		return err
	}
	r.Kinds = make(map[string]*profile.Profile)
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".pb.gz")
		if r.Kinds[kind], err = ReadProfile(file); err != nil {
			return err
		}
	}
	return nil
}

// ReadProfile reads a pprof file and checks that it is a valid one.
func ReadProfile(path string) (*profile.Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the profile: %w", err)
	}
	defer file.Close()
	p, err := profile.Parse(file) // checks it too
	if err != nil {
		return nil, fmt.Errorf("parse the profile: %w", err)
	}
	return p, nil
}
