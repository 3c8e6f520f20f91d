// Package journeys follows users to the answers of five questions, with the commands that
// docs/tasks shows, in a terminal of 80 columns and in a browser. What the terminal showed is in
// these pages, with pictures of the browser, and the first of them in the README:
//
//	go test ./tests/journeys -update     # as root: runs the commands and rewrites both
//
// The commands are in the pages, and nowhere else: a test runs those that it finds there.
package journeys

import (
	"embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/tests/browser"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/terminal"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var update = flag.Bool("update", false, "rewrite the transcripts and pictures in docs/tasks and the README")

// firstScreen is the section of the README with the transcript of the first task.
const (
	readme      = "../../README.md"
	firstScreen = "first screen"
)

var built profiler.Agent

func TestMain(m *testing.M) { harness.RunTests(m, &built) }

//go:embed Shop.java Depot.java Slow.java
var sources embed.FS

// start starts a program that is looked at. Nothing of it is inlined, so that methods have their
// own names in every run.
func start(t *testing.T, program string, args ...string) *jvm.Guest {
	t.Helper()
	jdk := needs.JDK(t)
	classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: sources, Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	guest, err := jvm.Start(t.Context(), jvm.Command{
		JDK: jdk, Main: program, Args: args, Classpath: []string{classes},
		Flags: []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline," + program + "*::*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	return guest
}

// A journey runs the commands of a page.
type journey struct {
	*testing.T
	dir      string // where the commands run
	past     string // what they find as the history; "" for none
	page     string // in docs/tasks
	section  string
	also     string // page with the same transcript, in a section "first screen"; "" for none
	commands []string
	text     strings.Builder // transcript
	old      string          // that of the page
}

// newJourney begins a journey with the commands in a section of a page of docs/tasks.
func newJourney(t *testing.T, page, section string) *journey {
	t.Helper()
	j := &journey{T: t, dir: t.TempDir(), page: filepath.Join("..", "..", "docs", "tasks", page), section: section}
	var err error
	if j.old, err = report.Section(j.page, section); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(j.old) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			j.commands = append(j.commands, strings.TrimSpace(command))
		}
	}
	return j
}

// run runs the next command, and returns what the terminal shows once it has ended. All of wanted
// must be there, as in the page.
func (j *journey) run(wanted ...string) string {
	j.Helper()
	if len(j.commands) == 0 {
		j.Fatalf("%s has too few commands in its section %s", j.page, j.section)
	}
	text := j.commands[0]
	j.commands = j.commands[1:]
	command := exec.Command("bash", "-c", text)
	command.Dir = j.dir
	command.Env = append(os.Environ(), "TZ="+place.String(), "PATH="+programs(j.T)+":"+filepath.Dir(built.Path)+":"+
		os.Getenv("PATH"))
	if j.past != "" {
		// The directory that the commands read by default, for them alone.
		const mount = "mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/vmprof-agent && ln -s $PAST " +
			"/var/lib/vmprof-agent/history && "
		command.Args[2] = mount + text
		command.Env = append(command.Env, "PAST="+j.past)
		command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	term := terminal.Start(j, command)
	<-term.Ended
	shown := term.Screen()
	if code := command.ProcessState.ExitCode(); code != 0 {
		j.Fatalf("%s ended with %d:\n%s", text, code, shown)
	}
	for _, want := range wanted {
		if !strings.Contains(unfolded(shown), want) {
			j.Errorf("%s: the terminal does not show %q:\n%s", text, want, shown)
		}
		if !*update && !strings.Contains(unfolded(j.old), want) {
			j.Errorf("%s does not show %q for %s: run this test with -update", j.page, want, text)
		}
	}
	fmt.Fprintf(&j.text, "%s\n\n", strings.TrimSpace("$ "+text+"\n"+shown))
	return shown
}

// unfolded is text with one space instead of line ends and other spaces, as long sentences take
// several lines.
func unfolded(text string) string { return strings.Join(strings.Fields(text), " ") }

// programs is a directory with a sudo that needs no password, as the test runs as root.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// maxPicture is how many bytes a picture of a page may have.
const maxPicture = 180_000

// look opens a file that a command wrote, waits until a user sees all of wanted, and takes a
// picture for the page.
func (j *journey) look(b *browser.Browser, file, picture string, wanted ...string) {
	j.Helper()
	tab := b.Open(j, "file://"+filepath.Join(j.dir, file), browser.View{Width: 1100, Height: 700})
	tab.Wait(j, `document.body.dataset.ready`)
	for _, want := range wanted {
		tab.Sees(j, want)
	}
	path := filepath.Join(filepath.Dir(j.page), "pictures", picture)
	if *update {
		tab.Picture(j, path)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > maxPicture {
		j.Errorf("the picture %s is missing or has more than %d bytes: %v", path, maxPicture, err)
	}
	for _, problem := range tab.Problems() {
		j.Error(problem)
	}
}

// end writes the transcript to the page if it is to be updated.
func (j *journey) end() {
	j.Helper()
	if len(j.commands) > 0 {
		j.Errorf("%s shows commands that nobody has run: %q", j.page, j.commands)
	}
	if !*update || j.Failed() {
		return
	}
	text := "```\n" + strings.TrimSpace(j.text.String()) + "\n```"
	if err := report.Update(j.page, j.section, text); err != nil {
		j.Fatal(err)
	}
	if j.also != "" {
		if err := report.Update(j.also, firstScreen, text); err != nil {
			j.Fatal(err)
		}
	}
}

// The README begins with the transcript of the first task.
func TestFirstScreen(t *testing.T) {
	j := newJourney(t, "find-hot-methods.md", "hot method")
	first, err := report.Section(readme, firstScreen)
	if err != nil {
		t.Fatal(err)
	}
	if first != j.old {
		t.Errorf("%s has\n%s\nand not, as %s,\n%s", readme, first, j.page, j.old)
	}
}

// A recorder is a server that keeps a history.
type recorder struct{ dir string }

func startRecorder(t *testing.T, shop *jvm.Guest) recorder {
	t.Helper()
	r := recorder{filepath.Join(t.TempDir(), "history")}
	command := exec.Command(built.Path, "serve", "-p", fmt.Sprint(shop.PID()), "--web.listen-address=127.0.0.1:0",
		"--history-dir="+r.dir)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Signal(os.Interrupt); command.Wait() })
	return r
}

// windows waits for so many windows in a time, and returns those that are wholly in it.
func (r recorder) windows(t *testing.T, from, to time.Time, least int) (list []*profile.Profile) {
	t.Helper()
	wait.For(t, wait.Long, fmt.Sprintf("%d windows are in the history", least), func() bool {
		list = nil
		err := history.Read(r.dir).Split(t.Context(), history.Selection{From: from, To: to}, 1000,
			func(p *profile.Profile) error {
				if !p.Start.Before(from) && !p.Start.Add(p.Duration).After(to) {
					list = append(list, p)
				}
				return nil
			})
		return err == nil && len(list) >= least // there may be none yet
	})
	return list
}

// lastNight is the latest 03:12 before now, where now is.
func lastNight(now time.Time) time.Time {
	y, m, d := now.Date()
	night := time.Date(y, m, d, 3, 12, 0, 0, now.Location())
	if night.After(now) {
		night = night.AddDate(0, 0, -1)
	}
	return night
}

// place is where journeys take place: at UTC, or an hour west of it where the time that they ask
// about would be just now.
var place = placeAt(time.Now())

func placeAt(now time.Time) *time.Location {
	const around = 10 * time.Minute
	if later := now.UTC().Add(around); later.Sub(lastNight(later)) < 2*around {
		return time.FixedZone("Etc/GMT+1", -3600)
	}
	return time.UTC
}

func TestPlace(t *testing.T) {
	for clock, want := range map[string]string{"03:01": "UTC", "03:03": "Etc/GMT+1", "03:12": "Etc/GMT+1",
		"03:21": "Etc/GMT+1", "03:23": "UTC", "23:59": "UTC"} {
		now, err := time.Parse("2006-01-02 15:04", "2026-03-04 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		there := placeAt(now)
		if there.String() != want {
			t.Errorf("%s: %v, want %s", clock, there, want)
		}
		if since := now.Sub(lastNight(now.In(there))); since < 10*time.Minute || since > 24*time.Hour {
			t.Errorf("%s: the last night was %v ago", clock, since)
		}
	}
}

// shifted makes a history of windows that were recorded just now, as if that had been in the last
// night: changed begins at 03:12, with quiet just before it. Yesterday all was quiet.
func shifted(t *testing.T, quiet, changed []*profile.Profile) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "past")
	night := lastNight(time.Now().In(place))
	now := night
	s, err := history.Open(dir, &history.Options{Keep: 72 * time.Hour, Fine: 48 * time.Hour,
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	add := func(windows []*profile.Profile, at time.Time) {
		for _, w := range windows {
			p := *w
			p.Comments = nil // they say when it was
			p.Start, now = at, at.Add(w.Duration)
			at = now
			if err := s.Add(&p); err != nil {
				t.Fatal(err)
			}
		}
	}
	length := time.Duration(0)
	for _, w := range quiet {
		length += w.Duration
	}
	yesterday := night.AddDate(0, 0, -1)
	add(quiet, yesterday)
	add(quiet, night.Add(-5*time.Minute))
	add(quiet, night.Add(-length))
	add(changed, night)
	return dir
}

// The question is in the name of each test, and the answer in what it wants to see.
func TestJourneys(t *testing.T) {
	needs.Root(t, "sampling")
	b := browser.Start(t)
	shop := start(t, "Shop")
	began := time.Now()
	recorder := startRecorder(t, shop)

	t.Run("which method of an unknown service is hot", func(t *testing.T) {
		j := newJourney(t, "find-hot-methods.md", "hot method")
		j.also = readme
		first := time.Now()
		j.run("Shop.price")
		j.look(b, "shop.html", "hot-method.png", "Shop.price")
		t.Logf("from the running JVM to its first flame graph: 1 command, %.1f s", time.Since(first).Seconds())
		j.end()
	})
	t.Run("who allocates", func(t *testing.T) {
		j := newJourney(t, "who-allocates.md", "allocations")
		j.run("char[]", "Shop.receipt")
		j.end()
	})
	t.Run("who holds the lock", func(t *testing.T) {
		j := newJourney(t, "who-waits-for-a-lock.md", "lock")
		j.run("Shop$Ledger.add", "Shop$Ledger.close", "waited for in Shop$Ledger.add",
			"held by Shop$Ledger.close")
		j.run("Shop$Ledger.close")
		j.end()
	})

	later := time.Now().Add(time.Hour)
	quiet := recorder.windows(t, began, later, 2)
	if _, err := shop.Order("change"); err != nil {
		t.Fatal(err)
	}
	past := shifted(t, quiet, recorder.windows(t, time.Now(), later, 1))

	t.Run("what changed since yesterday", func(t *testing.T) {
		j := newJourney(t, "what-changed-since-yesterday.md", "changed")
		j.past = past
		j.run("new: Shop.loyalty under Shop.request, 0 → ", "Shop.points", "before: from ")
		j.look(b, "changed.html", "changed.png", "Shop.points")
		j.end()
	})
	t.Run("what happened at 03:12", func(t *testing.T) {
		j := newJourney(t, "what-happened-at-three.md", "03:12")
		j.past = past
		j.run("Shop.points", "before: in the hour before")
		j.run("Shop.loyalty", "Shop.points")
		j.end()
	})
}

// The page on wall time shows what threads do over time, in a picture and as text.
func TestThreadsOverTime(t *testing.T) {
	needs.Root(t, "sampling")
	b := browser.Start(t)
	start(t, "Depot")
	j := newJourney(t, filepath.Join("..", "wall-clock.md"), "threads over time")
	j.run()
	j.run("accountant", "clerk-1", "clerk-3", "M monitor") // who works may wait for a CPU all the time
	j.run("written to wall.html")
	j.look(b, "wall.html", "threads-over-time.png", "Threads over time", "clerk-2")
	j.end()
}
