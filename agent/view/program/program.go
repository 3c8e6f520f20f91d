// Package program hands each closed window to a program of the user, a profiler of their own
// (Moret, Binder and Villazón, PEPM 2009, section 5.1), and reads metrics and labels of processes
// from its standard output.
//
//	p, err := program.Start(program.Options{Path: "/usr/local/libexec/rule", Parts: parts})
//	p.Observe(window)     // each closed window
//	err = p.Run(ctx)
//	state := p.State()
//	window = p.Label(window)
//
// The agent may be root, so the program is kept away from it: it runs as another user, in a process
// namespace of its own, without capabilities, with an empty environment and no descriptors but the
// standard ones, in bounded time and memory. A runner does this: a process that the agent starts
// while it still may, and that has given up all privileges itself. The agent believes neither of
// them.
package program

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// A Part of each window goes to the program by itself.
type Part struct {
	Name    string // as -e has it: cpu
	Content sink.Content
}

// Options say what runs how.
type Options struct {
	Path    string // absolute; see CheckPath
	User    string // name or number, neither root nor the agent's own; "" for one that nobody else has
	Timeout time.Duration
	Memory  int64 // bytes of writable memory that each of its processes may have
	Parts   []Part
	Log     *slog.Logger
}

// Defaults of Options.
const (
	DefaultTimeout = 5 * time.Second
	DefaultMemory  = 256_000_000
)

const (
	maxOutput  = 256 << 10 // bytes of the answer
	maxProfile = 64 << 20  // bytes of a part
	// grace is how much longer than the program's time the runner may take.
	grace = 5 * time.Second
)

// Causes of parts of windows without an answer.
const (
	FailedBusy    = "busy"    // the window before was not done
	FailedTimeout = "timeout" // killed
	FailedExit    = "exit"    // ended with a code or by a signal
	FailedOutput  = "output"  // wrote too much; killed
	FailedFormat  = "format"  // wrote no metrics, too many, or labels that are refused
	FailedStart   = "start"   // could not be started, or others may write to it
	FailedRunner  = "runner"  // the runner has ended, so that nothing can run any more
)

// Failures lists the causes.
var Failures = []string{FailedBusy, FailedTimeout, FailedExit, FailedOutput, FailedFormat, FailedStart, FailedRunner}

// A State is what came of the windows so far.
type State struct {
	Runs   uint64 // with an answer
	Failed map[string]uint64
	Series []Series // series of the last answers; counters are those of all answers
}

// A Program runs on one window after the other.
type Program struct {
	o        Options
	queue    chan *profile.Profile
	runner   *exec.Cmd
	requests *os.File
	answers  *os.File
	ended    bool
	failing  bool

	mu     sync.Mutex
	state  State
	kept   series
	labels map[string]processLabels // by part: of its last answer
}

// Start starts the runner. The agent needs its privileges for that, and not later.
func Start(o Options) (*Program, error) {
	if err := CheckPath(o.Path); err != nil {
		return nil, err
	}
	uid, gid, err := chooseUser(o.User)
	if err != nil {
		return nil, err
	}
	requestsHere, requests, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start runner: %w", err)
	}
	defer requestsHere.Close()
	answers, answersThere, err := os.Pipe()
	if err != nil {
		requests.Close()
		return nil, fmt.Errorf("start runner: %w", err)
	}
	defer answersThere.Close()
	// What the agent itself inherited without the flag is not handed on.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start runner: close descriptors: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", Verb, o.Path, strconv.Itoa(uid), strconv.Itoa(gid), o.Timeout.String(),
		strconv.FormatInt(o.Memory, 10))
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdin, cmd.Stdout = requestsHere, answersThere
	// Namespaces of its own: when the runner ends, or kills all, the program's children end as
	// well, and they see no other process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Setsid: true}
	if err := cmd.Start(); err != nil {
		requests.Close()
		answers.Close()
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w; it needs CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID at the start: run serve as root, "+
				"or install contrib/systemd/window-exec.conf", err)
		}
		return nil, fmt.Errorf("start runner of %s: %w", o.Path, err)
	}
	p := &Program{o: o, queue: make(chan *profile.Profile, 1), runner: cmd, requests: requests, answers: answers,
		kept: newSeries(), labels: make(map[string]processLabels),
		state: State{Failed: make(map[string]uint64)}}
	// The runner says once that it has given up its privileges.
	answer, text, err := p.receive(grace)
	if err == nil && answer != ready {
		err = errors.New(text)
	}
	if err != nil {
		_ = cmd.Process.Kill() // it may be stuck
		p.end()
		return nil, fmt.Errorf("start runner of %s: %w", o.Path, err)
	}
	return p, nil
}

// User ids that neither distributions nor systemd give anybody
// (https://systemd.io/UIDS-GIDS/, "Summary").
const firstUnused, lastUnused = 65520, 65533

// chooseUser returns the ids of a user who has nothing to say to the agent. Without a name it is
// one whom nothing else runs as, so that nobody can look into the program: processes of the same
// user can.
func chooseUser(name string) (uid, gid int, err error) {
	if name != "" {
		return lookUp(name)
	}
	var root proc.Root
	pids, err := root.PIDs()
	if err != nil {
		return 0, 0, fmt.Errorf("find an unused user id: %w", err)
	}
	used := map[int]bool{}
	for _, pid := range pids {
		if status, err := root.Status(pid); err == nil { // else it has ended
			used[int(status.UID)] = true
		}
	}
	for uid := firstUnused; uid <= lastUnused; uid++ {
		if _, err := user.LookupId(strconv.Itoa(uid)); err != nil && !used[uid] {
			return uid, uid, nil
		}
	}
	return 0, 0, fmt.Errorf("user ids %d to %d are all in use: name the user with --window-exec-user", firstUnused,
		lastUnused)
}

// lookUp returns the ids of a user who has nothing to say to the agent.
func lookUp(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return 0, 0, fmt.Errorf("there is no user %s: create one, or leave out --window-exec-user", name)
		}
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	switch {
	case errU != nil || errG != nil:
		return 0, 0, fmt.Errorf("user %s has no numbers", name)
	case uid == 0 || gid == 0:
		return 0, 0, errors.New("the program cannot run as root: name another user")
	case uid == os.Getuid():
		return 0, 0, fmt.Errorf("the program cannot run as %s, as the agent does: name another user", name)
	}
	return uid, gid, nil
}

// Observe takes a closed window. It never waits: if the window before is not done, this one is
// counted as a failure.
func (p *Program) Observe(w *profile.Profile) {
	select {
	case p.queue <- w:
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state.Failed[FailedBusy]++
	}
}

// Run hands windows to the program until ctx ends, and then ends the runner.
func (p *Program) Run(ctx context.Context) error {
	defer p.end()
	for {
		select {
		case w := <-p.queue:
			p.window(w)
		case <-ctx.Done():
			return nil
		}
	}
}

// end lets the runner end: it does when its input does.
func (p *Program) end() {
	if p.ended {
		return
	}
	p.ended = true
	p.requests.Close()
	p.answers.Close()
	go p.runner.Wait() // it may be of another user, whom the agent cannot kill
}

// window runs the program on the parts of a window.
func (p *Program) window(w *profile.Profile) {
	failed := false
	for _, part := range p.o.Parts {
		cause, err := p.part(w, part)
		p.mu.Lock()
		if cause == "" {
			p.state.Runs++
		} else {
			p.state.Failed[cause]++
		}
		p.mu.Unlock()
		if err != nil && !p.failing {
			p.o.Log.Warn("the program of --window-exec failed; vmprof_window_exec_failures_total counts on", "cause",
				cause, "err", err)
		}
		failed = failed || err != nil
	}
	p.failing = failed
}

// part runs the program on one part, and returns the cause of a failure.
func (p *Program) part(w *profile.Profile, part Part) (cause string, err error) {
	if p.ended {
		return FailedRunner, errors.New("the runner has ended: restart the agent")
	}
	if err := CheckPath(p.o.Path); err != nil {
		return FailedStart, err
	}
	var encoded bytes.Buffer
	converted, err := sink.Pprof(w, part.Content)
	if err == nil {
		err = converted.Write(&encoded)
	}
	if err == nil && encoded.Len() > maxProfile {
		err = fmt.Errorf("the profile of %s has more than %d MB", part.Name, maxProfile>>20)
	}
	if err != nil {
		return FailedStart, err
	}
	if err := p.send(part.Name, encoded.Bytes()); err != nil {
		p.end()
		return FailedRunner, err
	}
	answer, text, err := p.receive(p.o.Timeout + grace)
	if err != nil {
		p.end()
		return FailedRunner, err
	}
	if answer != done {
		return causes[answer], fmt.Errorf("%s: %s", p.o.Path, text)
	}
	if err := p.take(w, part.Name, text); err != nil {
		return FailedFormat, fmt.Errorf("%s: %w", p.o.Path, err)
	}
	return "", nil
}

// take takes what the program said of a part of a window: all of it or nothing.
func (p *Program) take(w *profile.Profile, part, text string) error {
	list, err := parse([]byte(text))
	if err != nil {
		return err
	}
	metrics, labels, err := labelsIn(list, w)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.kept.add(part, metrics); err != nil {
		return err
	}
	p.labels[part] = labels
	return nil
}

// An answer is how a run ended.
type answer uint8

const (
	ready   answer = iota // the runner is ready, and nothing ran
	done                  // with an output
	timeout               // these have a text for people
	exited
	tooLong
	unstarted
	refused // the runner does not run
	answers
)

var causes = [answers]string{timeout: FailedTimeout, exited: FailedExit, tooLong: FailedOutput, unstarted: FailedStart,
	refused: FailedRunner, ready: FailedRunner}

// send writes a request: the lengths of the name and of the profile, and both.
func (p *Program) send(name string, profile []byte) error {
	if err := p.requests.SetWriteDeadline(time.Now().Add(grace)); err != nil {
		return err
	}
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:4], uint32(len(name)))
	binary.LittleEndian.PutUint32(head[4:], uint32(len(profile)))
	for _, text := range [][]byte{head[:], []byte(name), profile} {
		if _, err := p.requests.Write(text); err != nil {
			return fmt.Errorf("hand a window to the runner: %w", err)
		}
	}
	return nil
}

// receive reads an answer: a byte, a length, and a text.
func (p *Program) receive(within time.Duration) (answer, string, error) {
	if err := p.answers.SetReadDeadline(time.Now().Add(within)); err != nil {
		return 0, "", err
	}
	var head [5]byte
	if _, err := io.ReadFull(p.answers, head[:]); err != nil {
		return 0, "", fmt.Errorf("read from the runner: %w", err)
	}
	a, length := answer(head[0]), binary.LittleEndian.Uint32(head[1:])
	if a >= answers || length > maxOutput {
		return 0, "", errors.New("the answer of the runner is malformed")
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(p.answers, text); err != nil {
		return 0, "", fmt.Errorf("read from the runner: %w", err)
	}
	return a, string(text), nil
}

// State may be called from any goroutine.
func (p *Program) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.Failed, s.Series = maps.Clone(p.state.Failed), slices.Clone(p.kept.all())
	return s
}
