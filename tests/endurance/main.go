// Command endurance runs `serve` with every kind of events and a history while JVMs start and end,
// and records what it uses: what grows with the number of processes that came and went would end a
// service after days.
//
//	go run ./tests/endurance                   # two hours, a JVM every 5 s
//	go run ./tests/endurance -length 20m
//	go run ./tests/endurance -update           # also rewrites the table in docs/reliability.md
//
// An interrupted trial ends at once, with the table of the time until then.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// docs is the page with the table, from the root of the repository.
const docs = "docs/reliability.md"

//go:embed java
var sources embed.FS

func main() { harness.Main("endurance", run) }

// A trial says how long it lasts, and what happens meanwhile.
type trial struct {
	length time.Duration
	every  time.Duration // a JVM starts
	lives  time.Duration // a JVM
	rows   time.Duration // time between two rows of the table
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("endurance", "half a minute", docs)
	t := trial{}
	flags.DurationVar(&t.length, "length", 2*time.Hour, "of the trial")
	flags.DurationVar(&t.every, "every", 5*time.Second, "time between two starts of a JVM")
	flags.DurationVar(&t.lives, "lives", 20*time.Second, "of a JVM, in whole seconds")
	flags.DurationVar(&t.rows, "rows", 10*time.Minute, "time between two rows")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Short {
		t = trial{30 * time.Second, 3 * time.Second, 3 * time.Second, 10 * time.Second}
	}
	jdk, err := jvm.Oldest()
	if err != nil {
		return err
	}
	classes, err := compile(ctx, jdk)
	if err != nil {
		return err
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
		s, err := startServer(ctx, agent, dir)
		if err != nil {
			return err
		}
		rows, err := t.run(ctx, s, jdk, classes, out)
		output, ended := s.Interrupt()
		err = errors.Join(err, ended)
		fmt.Fprintf(out, "\nserve printed:\n%s", output)
		if len(rows) == 0 {
			return err
		}
		table := tableOf(rows)
		fmt.Fprintln(out)
		if err := errors.Join(err, table.Print(out)); err != nil {
			return err
		}
		if !o.Update {
			return nil
		}
		return report.Update(docs, "endurance", table.Markdown())
	})
}

// run starts JVMs until the trial ends or is interrupted, and returns what the server used from
// time to time. The first row is of the first minute, when each of the kinds has attached to a JVM.
func (t trial) run(
	ctx context.Context, s *server, jdk jvm.JDK, classes string, out io.Writer,
) (rows []usage, err error) {
	ctx, stop := context.WithTimeout(ctx, t.length)
	defer stop()
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer cancel()
	var guests sync.WaitGroup
	defer guests.Wait()
	var started, failed atomic.Int64
	guests.Go(func() {
		for starts := time.NewTicker(t.every); ctx.Err() == nil; {
			guests.Go(func() {
				if err := live(ctx, jdk, classes, t.lives); err != nil && ctx.Err() == nil {
					failed.Add(1)
					fmt.Fprintln(out, err)
				}
			})
			started.Add(1)
			select {
			case <-starts.C:
			case <-ctx.Done():
			}
		}
	})
	began, minute := time.Now(), min(time.Minute, t.rows)
	looks := time.NewTicker(minute)
	defer looks.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
		case <-looks.C:
		}
		u, err := s.usage()
		if err != nil {
			return rows, err
		}
		u.after, u.jvms = time.Since(began), started.Load()-failed.Load()
		fmt.Fprintln(out, u)
		if n == 1 || n%int(t.rows/minute) == 0 || ctx.Err() != nil {
			rows = append(rows, u)
		}
		if ctx.Err() != nil {
			return rows, nil
		}
	}
}

// compile compiles the JVMs' program.
func compile(ctx context.Context, jdk jvm.JDK) (string, error) {
	java, err := fs.Sub(sources, "java")
	if err != nil {
		return "", err
	}
	return jdk.Compile(ctx, jvm.Build{Sources: java, Release: jvm.MinVersion})
}

// live runs a JVM until it ends.
func live(ctx context.Context, jdk jvm.JDK, classes string, d time.Duration) error {
	process, err := jvm.Process(ctx, jvm.Command{
		JDK: jdk, Flags: []string{"-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"},
		Classpath: []string{classes},
		Main:      "Short", Args: []string{fmt.Sprint(int(d.Seconds()))},
	})
	if err != nil {
		return err
	}
	if output, err := process.CombinedOutput(); err != nil {
		return fmt.Errorf("JVM: %w\n%s", err, output)
	}
	return nil
}
