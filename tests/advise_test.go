package tests

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Two guests gain from hints (go run ./tests/advise measures how much). A recording without hints
// is enough to find them, and the JVM does what they say.
func TestAdvise(t *testing.T) {
	needs.Root(t, "sampling")
	jdks := needs.JDKs(t)
	jdk := jdks[len(jdks)-1]
	classes, err := guests.Compile(t.Context(), needs.JDK(t))
	if err != nil {
		t.Fatal(err)
	}
	path, file := output(t, "calls.pb.gz"), output(t, "directives.json")
	command := func(program string, flags ...string) jvm.Command {
		return jvm.Command{JDK: jdk, Flags: flags, Classpath: []string{classes}, Main: "guest." + program,
			Dirs: []string{filepath.Dir(file)}}
	}
	beyond, majority := startClocked(t, command("Beyond")), startClocked(t, command("Majority"))

	var directives, flags outcome
	eventually(t, "both guests get advice", func() bool {
		pids := []string{strconv.Itoa(beyond), strconv.Itoa(majority)}
		mustSucceed(t, "record", "-e", "cpu,calls", "-p", pids[0], "-p", pids[1], "-d", "4", "-o", path)
		directives = mustSucceed(t, "advise", "--for=hotspot", "-p", pids[0], "-o", file, path)
		flags = mustSucceed(t, "advise", "--for=hotspot", "-p", pids[1], path)
		return strings.Contains(directives.stdout, "inline guest.Beyond.apply into ") &&
			strings.Contains(flags.stdout, "-XX:TypeProfileMajorReceiverPercent=")
	})
	if content, err := os.ReadFile(file); err != nil || !strings.Contains(string(content),
		`"+guest/Beyond.apply(II)I"`) {
		t.Fatalf("%v: %s\n%s", err, content, directives.stdout)
	}
	commands := mustSucceed(t, "advise", "--for=compilecommand", "-p", strconv.Itoa(beyond), path)
	if !strings.Contains(commands.stdout, "\ninline guest/Beyond.apply (II)I\n") {
		t.Errorf("no command in\n%s", commands.stdout)
	}
	var lines []string
	for _, line := range strings.Split(commands.stdout, "\n") {
		if strings.HasPrefix(line, "inline guest/") {
			lines = append(lines, line)
		}
	}
	commandFile := filepath.Join(filepath.Dir(file), ".hotspot_compiler")
	if err := os.WriteFile(commandFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var major string
	for _, word := range strings.Fields(flags.stdout) {
		if strings.HasPrefix(word, "-XX:TypeProfileMajorReceiverPercent=") {
			major = strings.TrimSuffix(word, ",")
		}
	}

	inlining := []string{"-XX:+UnlockDiagnosticVMOptions", "-XX:+PrintCompilation", "-XX:+PrintInlining"}
	for _, run := range []struct {
		program, flag string
		says          []string // texts that one line has
	}{
		{"Beyond", "-XX:CompilerDirectivesFile=" + file, []string{"guest.Beyond::apply", "force inline by"}},
		{"Beyond", "-XX:CompileCommandFile=" + commandFile, []string{"guest.Beyond::apply", "force inline by"}},
		{"Majority", major, []string{"guest.Majority$Square::area", "inline (hot)"}},
	} {
		t.Run(fmt.Sprintf("%s %.32s", run.program, run.flag), func(t *testing.T) {
			printed := make(chan string, 1<<16)
			g, err := jvm.Process(t.Context(), command(run.program, append(inlining, run.flag)...))
			if err != nil {
				t.Fatal(err)
			}
			orders, err := g.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			answers, err := g.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Start(); err != nil {
				t.Fatal(err)
			}
			go func() {
				defer close(printed)
				for lines := bufio.NewScanner(answers); lines.Scan(); {
					printed <- lines.Text()
				}
			}()
			defer func() {
				orders.Close()
				for range printed { // a JVM that cannot print does not end
				}
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			}()
			fmt.Fprintln(orders, "run 100")
			timeout := time.After(patience)
			for {
				select {
				case line, ok := <-printed:
					if !ok {
						t.Fatal("the JVM ended")
					}
					if line == "done" {
						fmt.Fprintln(orders, "run 100")
					}
					if strings.Contains(line, run.says[0]) && strings.Contains(line, run.says[1]) {
						return
					}
				case <-timeout:
					t.Fatalf("no line with %q", run.says)
				}
			}
		})
	}
}

// startClocked starts a guest that works on demand, keeps it working until the test ends, and
// returns its process id.
func startClocked(t *testing.T, c jvm.Command) (pid int) {
	t.Helper()
	g, err := jvm.Start(context.WithoutCancel(t.Context()), c)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := g.Order("run 100"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g.PID()
}
