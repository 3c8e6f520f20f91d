package top

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// processesChosen notes which processes it is to sample.
type processesChosen struct{ pids []int }

func (c *processesChosen) Choose(pid int) error {
	c.pids = append(c.pids, pid)
	return nil
}

// waiting starts a process of that name, which ends when its input does.
func waiting(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	// The name is that of the file. The shell has another one until it executes it.
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(cat)
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/" + name
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sh", "-c", "exec "+path)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { input.Close(); command.Process.Kill(); command.Wait() })
	wait.For(t, wait.Long, name+" runs", func() bool {
		comm, _ := proc.DefaultRoot.Comm(command.Process.Pid)
		return comm == name
	})
	return command
}

// Processes that start later and have the name are processesChosen by all agents, and it is said
// once when the last one has ended.
func TestFollower(t *testing.T) {
	name := "followed" + strconv.Itoa(os.Getpid()%1e6)
	look := func(f *follower) string {
		t.Helper()
		news, err := f.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return news
	}
	first := waiting(t, name)
	f, err := newFollower(targets.Flag{Words: []string{name}}, proc.DefaultRoot)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.choose(first.Process.Pid); err != nil {
		t.Fatal(err)
	}
	var one, two processesChosen
	if _, err := f.join(&one); err != nil {
		t.Fatal(err)
	}
	if news := look(f); news != "" {
		t.Errorf("nothing happened: %q", news)
	}
	second := waiting(t, name)
	leave, err := f.join(&two)
	if err != nil {
		t.Fatal(err)
	}
	if news := look(f); !strings.HasPrefix(news, "started: "+strconv.Itoa(second.Process.Pid)+"  "+name) {
		t.Errorf("a second one started: %q", news)
	}
	want := []int{first.Process.Pid, second.Process.Pid}
	if !slices.Equal(one.pids, want) || !slices.Equal(two.pids, want) || !slices.Equal(f.pids(), want) {
		t.Errorf("processesChosen: %v, %v and %v, want %v", one.pids, two.pids, f.pids(), want)
	}
	leave()
	for i, command := range []*exec.Cmd{first, second} {
		command.Process.Kill()
		command.Wait()
		want := ""
		if i == 1 {
			want = "no process of -p " + name + " runs any more; a later one will be shown"
		}
		if news := look(f); news != want {
			t.Errorf("%d ended: %q, want %q", i+1, news, want)
		}
	}
	if news := look(f); news != "" {
		t.Errorf("it is said again: %q", news)
	}
	third := waiting(t, name)
	if news := look(f); news == "" || !slices.Contains(one.pids, third.Process.Pid) ||
		slices.Contains(two.pids, third.Process.Pid) {
		t.Errorf("a third one started: %q, processesChosen are %v and %v", news, one.pids, two.pids)
	}
}

// By pid, nothing comes later, but the end is said.
func TestFollowerOfPIDs(t *testing.T) {
	command := exec.Command("sleep", "1000")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(command.Process.Pid)
	f, err := newFollower(targets.Flag{Words: []string{pid}}, proc.DefaultRoot)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.choose(command.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if news, err := f.look(t.Context()); news != "" || err != nil {
		t.Errorf("%q, %v", news, err)
	}
	command.Process.Kill() // and is a zombie
	var news string
	wait.For(t, wait.Long, "the end is said", func() bool {
		if news, err = f.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return news != ""
	})
	command.Wait()
	if want := "process " + pid + " has ended"; news != want {
		t.Errorf("%q, want %q", news, want)
	}
}

// Without -p there is nobody to follow.
func TestFollowerOfAll(t *testing.T) {
	f, err := newFollower(targets.Flag{}, proc.DefaultRoot)
	if err != nil {
		t.Fatal(err)
	}
	var all processesChosen
	if _, err := f.join(&all); err != nil {
		t.Fatal(err)
	}
	if news, err := f.look(t.Context()); news != "" || err != nil || len(all.pids)+len(f.pids()) > 0 {
		t.Errorf("%q, %v, %v", news, err, all.pids)
	}
}
