package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// targets are the processes that -p selects: pids, names and patterns. It is the value of that flag.
type targets struct{ words []string }

func (t *targets) add(fs *pflag.FlagSet, usage string) { fs.VarP(t, "pid", "p", usage) }

// Set adds words with commas between them. An empty one, as from a shell variable that is not set, is an error: without any word the whole
// machine would be profiled.
func (t *targets) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			return errors.New("empty: want a pid, a name or a pattern such as 'shop*'")
		}
		t.words = append(t.words, word)
	}
	return nil
}

func (t *targets) String() string { return strings.Join(t.words, ",") }

func (*targets) Type() string { return "strings" }

// find are the processes of this machine that the words select now.
func (t *targets) find(ctx context.Context) ([]int, error) {
	return t.pids(func() ([]candidate, error) { return processes(ctx, proc.DefaultRoot) })
}

// A candidate is a process that a name may stand for.
type candidate struct {
	pid                        int
	comm, service, application string
	java                       bool     // a JVM by its executable; there may be no more to go by
	others                     []string // what else the application is called: its main class or jar, where it was given another name
}

// String is a line of a list.
func (c candidate) String() string {
	name := c.service
	if c.application != "" && c.application != name {
		name += " (" + c.application + ")"
	}
	if c.comm != "" && c.comm != name {
		name += ", " + c.comm
	}
	return fmt.Sprintf("%7d  %s", c.pid, name)
}

// names are what the process is called: its service with and without the suffix of a unit, its application, main class or jar with and
// without the package or version, and its own name.
func (c candidate) names() []string {
	list := []string{c.comm, c.service, strings.TrimSuffix(c.service, ".service")}
	for _, application := range append([]string{c.application}, c.others...) {
		list = append(list, application)
		if i := strings.LastIndexAny(application, ".$"); i >= 0 {
			list = append(list, application[i+1:])
		}
		if i := strings.IndexByte(application, '-'); i > 0 {
			list = append(list, application[:i])
		}
	}
	return list
}

// Kinds that a pattern may be restricted to.
const (
	unitPrefix      = "unit:"
	containerPrefix = "container:"
)

// matches reports whether a name or pattern, as path.Match has it, stands for the process.
func (c candidate) matches(word string) bool {
	names := c.names()
	if unit, ok := strings.CutPrefix(word, unitPrefix); ok {
		if word = unit; !strings.HasSuffix(c.service, ".service") {
			return false
		}
		names = []string{c.service, strings.TrimSuffix(c.service, ".service")}
	} else if container, ok := strings.CutPrefix(word, containerPrefix); ok {
		word, names = container, []string{c.service}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		matched, err := path.Match(word, name)
		return name != "" && (name == word || err == nil && matched)
	})
}

// isPattern reports whether a word may stand for several processes.
func isPattern(word string) bool { return strings.ContainsAny(word, "*?[") }

// pids are the processes that the words select. list returns the processes of the machine; it is called when there is a name.
func (t *targets) pids(list func() ([]candidate, error)) (pids []int, err error) {
	var all []candidate
	for _, word := range t.words {
		if pid, err := strconv.Atoi(word); err == nil {
			if pid < 1 {
				return nil, usageError(fmt.Sprintf("-p %s is no process", word))
			}
			pids = append(pids, pid)
			continue
		}
		if _, err := path.Match(word, ""); err != nil || word == "" {
			return nil, usageError(fmt.Sprintf("-p %q is neither a pid nor a name nor a pattern such as 'shop*'", word))
		}
		if all == nil {
			if all, err = list(); err != nil {
				return nil, err
			}
		}
		var found []candidate
		for _, c := range all {
			if c.matches(word) {
				found = append(found, c)
			}
		}
		switch {
		case len(found) == 0:
			return nil, fmt.Errorf("no process is called %s%s", word, listOf("; there are", applications(all)))
		case len(found) > 1 && !isPattern(word):
			return nil, fmt.Errorf("%d processes are called %s: give a pid, or -p '%s*' for all of them%s", len(found), word, word, listOf("", found))
		}
		for _, c := range found {
			pids = append(pids, c.pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// applications are the JVMs among processes.
func applications(all []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !c.java && c.application == "" })
}

// listOf is a list below an error, of a sensible length.
func listOf(heading string, list []candidate) string {
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

// patience is how long the machine's processes may take to say what they are called.
const patience = 10 * time.Second

// processes returns the processes of the machine but the agent's own, with what they are called.
func processes(ctx context.Context, root proc.Root) ([]candidate, error) {
	pids, err := root.PIDs()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pool := proc.NewPool(proc.PoolOptions{})
	var all []candidate
	for _, pid := range pids {
		exe, err := root.Executable(pid)
		if errors.Is(err, proc.ErrGone) || exe == "" {
			continue // it has ended, or is a thread of the kernel
		}
		c := candidate{pid: pid}
		c.comm, _ = root.Comm(pid)
		cgroup, _ := root.Cgroup(pid)
		if path.Base(exe) == "java" {
			c.java = true
			// Arguments are memory of the process, which may not answer: then it has the other names only.
			names, _ := proc.Call(ctx, pool, pid, func() ([]string, error) {
				arguments, err := root.Arguments(pid)
				if err != nil {
					return nil, err
				}
				environment, _ := root.Environment(pid) // it takes more privilege
				return applicationNames(arguments, environment), nil
			})
			if len(names) > 0 {
				c.application, c.others = names[0], names[1:]
			}
		}
		c.service = proc.Service(cgroup, c.application, c.comm)
		if pid != os.Getpid() {
			all = append(all, c)
		}
	}
	return all, nil
}

// applicationNames are all names of a JVM's program: first the one that it is reported under, then the others, which whoever started it may
// know better. It is empty if the arguments that were read end before the main class.
func applicationNames(arguments, environment []string) (names []string) {
	unnamed := slices.DeleteFunc(slices.Clone(arguments), func(arg string) bool { return strings.HasPrefix(arg, "-Dspring.application.name=") })
	for _, name := range []string{proc.Application(arguments, environment), proc.Application(arguments, nil), proc.Application(unnamed, nil)} {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
