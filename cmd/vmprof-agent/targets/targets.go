// Package targets finds the processes that -p selects, by pid, name or pattern, and says of them
// what a user should know: which are JVMs, which have a method, and which do not run.
package targets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// A Flag is the value of -p: it selects processes by pids, names and patterns.
type Flag struct{ Words []string }

// Add defines the flag.
func (t *Flag) Add(fs *pflag.FlagSet, usage string) { fs.VarP(t, "pid", "p", usage) }

// Set adds words with commas between them. An empty one, as from a shell variable that is not set,
// is an error: without any word the whole machine would be profiled.
func (t *Flag) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			return errors.New("empty: want a pid, a name or a pattern such as 'shop*'")
		}
		t.Words = append(t.Words, word)
	}
	return nil
}

func (t *Flag) String() string { return strings.Join(t.Words, ",") }

func (*Flag) Type() string { return "strings" }

// Find are the processes of this machine that the words select now.
func (t *Flag) Find(ctx context.Context) ([]int, error) {
	return t.pids(func() ([]Candidate, error) { return processes(ctx, proc.DefaultRoot) })
}

// A Candidate is a process that a name may stand for.
type Candidate struct {
	PID  int
	comm string
	proc.Workload
	java   bool     // a JVM by its executable; there may be no more to go by
	others []string // what else the application is called, where it was given several names
}

// String is a line of a list.
func (c Candidate) String() string {
	name := c.Service
	var called []string
	for _, other := range []string{c.Application, c.Main} {
		if other != "" && other != name && !slices.Contains(called, other) {
			called = append(called, other)
		}
	}
	if len(called) > 0 {
		name += " (" + strings.Join(called, ", ") + ")"
	}
	if c.ContainerID != "" && c.ContainerID != c.Service {
		name += ", container " + c.ContainerID
	}
	if c.comm != "" && c.comm != name {
		name += ", " + c.comm
	}
	return fmt.Sprintf("%7d  %s", c.PID, name)
}

// names are what the process is called: its service with and without the suffix of a unit, its
// application and main class with and without the package, its container, and its own name.
func (c Candidate) names() []string {
	list := append([]string{c.comm, c.Service, strings.TrimSuffix(c.Service, unitSuffix), c.Application, c.Main},
		c.containers()...)
	list = append(list, c.others...)
	for _, class := range append([]string{c.Application, c.Main}, c.others...) {
		if i := strings.LastIndexAny(class, ".$"); i >= 0 {
			list = append(list, class[i+1:])
		}
	}
	return list
}

// containers are what the process's container is called.
func (c Candidate) containers() []string { return []string{c.Container, c.ContainerID, c.Pod} }

// Kinds that a pattern may be restricted to.
const (
	unitPrefix      = "unit:"
	unitSuffix      = ".service"
	containerPrefix = "container:"
)

// Matches reports whether a name or pattern, as path.Match has it, stands for the process.
func (c Candidate) Matches(word string) bool {
	names := c.names()
	if unit, ok := strings.CutPrefix(word, unitPrefix); ok {
		word, names = unit, []string{c.Unit, strings.TrimSuffix(c.Unit, unitSuffix)}
	} else if container, ok := strings.CutPrefix(word, containerPrefix); ok {
		word, names = container, c.containers()
	}
	return slices.ContainsFunc(names, func(name string) bool {
		matched, err := path.Match(word, name)
		return name != "" && (name == word || err == nil && matched)
	})
}

// isPattern reports whether a word may stand for several processes.
func isPattern(word string) bool { return strings.ContainsAny(word, "*?[") }

// pids are the processes that the words select. list returns the processes of the machine; it is
// called when there is a name.
func (t *Flag) pids(list func() ([]Candidate, error)) (pids []int, err error) {
	var all []Candidate
	for _, word := range t.Words {
		if pid, err := strconv.Atoi(word); err == nil {
			if pid < 1 {
				return nil, cli.Misuse(fmt.Sprintf("-p %s: a pid is a positive number", word))
			}
			pids = append(pids, pid)
			continue
		}
		if _, err := path.Match(word, ""); err != nil || word == "" {
			return nil, cli.Misuse(fmt.Sprintf("-p %q: malformed pattern: close every [, and quote it, as in -p 'shop*'", word))
		}
		if all == nil {
			if all, err = list(); err != nil {
				return nil, err
			}
		}
		var found []Candidate
		for _, c := range all {
			if c.Matches(word) {
				found = append(found, c)
			}
		}
		switch {
		case len(found) == 0:
			return nil, fmt.Errorf("no process is called %s%s", word, listOf("; running JVMs and services:", applications(all)))
		case len(found) > 1 && !isPattern(word):
			return nil, fmt.Errorf("%d processes are called %s: give one pid, or -p %s for all of them%s", len(found),
				word, List(found), listOf("", found))
		}
		for _, c := range found {
			pids = append(pids, c.PID)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// IsRunning reports whether a name, without -p in front of it, stands for a process of this
// machine.
func IsRunning(name string) bool {
	all, err := processes(context.Background(), proc.DefaultRoot)
	return err == nil && slices.ContainsFunc(all, func(c Candidate) bool { return c.Matches(name) })
}

// List is the argument of -p that selects these processes and no others.
func List(list []Candidate) string {
	var pids []string
	for _, c := range list {
		pids = append(pids, strconv.Itoa(c.PID))
	}
	return strings.Join(pids, ",")
}

// applications are the JVMs among processes.
func applications(all []Candidate) []Candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return !c.java && c.Application == "" })
}

// listOf is a list below an error, of a sensible length.
func listOf(heading string, list []Candidate) string {
	const most = 20
	if len(list) == 0 {
		return ""
	}
	text := heading
	for i, c := range list {
		if i == most {
			return text + fmt.Sprintf("\n  and %d more", len(list)-most)
		}
		text += "\n  " + c.String()
	}
	return text
}

const (
	patience  = 10 * time.Second // how long the machine's processes may take to say what they are called
	inquirers = 8                // processes that are asked at once
)

// processes returns the processes of the machine but the agent's own, with what they are called, by
// pid.
func processes(ctx context.Context, root proc.Root) ([]Candidate, error) {
	pids, err := root.PIDs()
	if err != nil {
		return nil, err
	}
	return Inquire(ctx, root, pids), nil
}

// Inquire returns those of the processes that are not the agent's own, with what they are
// called, by pid.
func Inquire(ctx context.Context, root proc.Root, pids []int) (all []Candidate) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pool, host := proc.NewPool(proc.PoolOptions{Workers: inquirers}), proc.HostName()
	next := make(chan int)
	go func() {
		defer close(next)
		for _, pid := range pids {
			if pid != os.Getpid() {
				next <- pid
			}
		}
	}()
	var (
		mu      sync.Mutex
		waiting sync.WaitGroup
	)
	for range inquirers {
		waiting.Go(func() {
			for pid := range next {
				if c, ok := inquireOne(ctx, root, pool, pid, host); ok {
					mu.Lock()
					all = append(all, c)
					mu.Unlock()
				}
			}
		})
	}
	waiting.Wait()
	slices.SortFunc(all, func(a, b Candidate) int { return cmp.Compare(a.PID, b.PID) })
	return all
}

// inquireOne finds out what a process is called; ok is false if it has ended or is a thread of the
// kernel. One that does not answer has only the names that the kernel knows.
func inquireOne(ctx context.Context, root proc.Root, pool *proc.Pool, pid int, host string) (c Candidate, ok bool) {
	exe, err := root.Executable(pid)
	if errors.Is(err, proc.ErrGone) || exe == "" {
		return c, false
	}
	c.PID = pid
	c.comm, _ = root.Comm(pid)
	cgroup, _ := root.Cgroup(pid)
	var launch proc.Launch
	if proc.NeedsLaunch(exe, cgroup) {
		launch, _ = proc.Call(ctx, pool, pid, func() (proc.Launch, error) { return root.Launch(pid) })
	}
	c.Workload, c.java, c.others = proc.WorkloadOf(cgroup, &launch, c.comm, host), proc.IsJava(exe),
		proc.ApplicationNames(&launch)
	return c, true
}
