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

// targets are the processes that -p selects: pids, names and patterns.
type targets struct{ words []string }

func (t *targets) add(fs *pflag.FlagSet, usage string) {
	fs.StringSliceVarP(&t.words, "pid", "p", nil, usage)
}

// find are the processes of this machine that the words select now.
func (t *targets) find(ctx context.Context) ([]int, error) {
	return t.pids(func() ([]candidate, error) { return processes(ctx, proc.DefaultRoot) })
}

// A candidate is a process that a name may stand for.
type candidate struct {
	pid                        int
	comm, service, application string
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

// names are what the process is called: its service with and without the suffix of a unit, its application with and without the package
// or version, and its own name.
func (c candidate) names() []string {
	list := []string{c.comm, c.service, strings.TrimSuffix(c.service, ".service"), c.application}
	if i := strings.LastIndexAny(c.application, ".$"); i >= 0 {
		list = append(list, c.application[i+1:])
	}
	if i := strings.IndexByte(c.application, '-'); i > 0 {
		list = append(list, c.application[:i])
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
	return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.application == "" })
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
			// Arguments are memory of the process, which may not answer: then it has the other names only.
			c.application, _ = proc.Call(ctx, pool, pid, func() (string, error) {
				arguments, err := root.Arguments(pid)
				if err != nil {
					return "", err
				}
				environment, _ := root.Environment(pid) // it takes more privilege
				return proc.Application(arguments, environment), nil
			})
		}
		c.service = proc.Service(cgroup, c.application, c.comm)
		if pid != os.Getpid() {
			all = append(all, c)
		}
	}
	return all, nil
}
