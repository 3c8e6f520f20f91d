package program

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/host/privilege"
)

// Verb is the hidden verb of the runner.
const Verb = "run-windows"

const (
	maxErrors = 1 << 10 // bytes of the standard error that are kept
	maxName   = 64
	// Of the program and the runner together. The kernel counts all processes and threads of the
	// user.
	maxTasks = 256
	maxFile  = 1 << 20 // bytes of a file that the program writes
	maxOpen  = 256
	// stray is how long processes that the program left behind may hold its output open.
	stray = 100 * time.Millisecond
)

// Main is the runner: it gives up its privileges and runs the program for each request, until its
// input ends.
func Main(args []string) error {
	out := os.Stdout
	if len(args) != 5 || os.Getpid() != 1 {
		return errors.New("this verb is internal to the serve verb")
	}
	timeout, err := time.ParseDuration(args[3])
	if err == nil {
		err = mountProc()
	}
	if err == nil {
		err = confine(args[1], args[2], args[4])
	}
	if err != nil {
		return errors.Join(reply(out, refused, err.Error()), err)
	}
	// The program may signal the runner, which has its user; signals that nobody waits for do
	// nothing.
	signal.Notify(make(chan os.Signal, 1))
	if err := reply(out, ready, ""); err != nil {
		return err
	}
	// As process 1 of its namespace, the runner takes all others with it when it ends. It must
	// notice the end of its input while the program runs.
	type request struct {
		name    string
		profile []byte
	}
	requests := make(chan request)
	go func() {
		for {
			name, profile, err := read(os.Stdin)
			if err != nil {
				os.Exit(0)
			}
			requests <- request{name, profile}
		}
	}()
	for r := range requests {
		answer, text := run(args[0], r.name, r.profile, timeout)
		killAll()
		if err := reply(out, answer, text); err != nil {
			return err
		}
	}
	return nil
}

// mountProc has /proc show the processes of this namespace. The one that was inherited shows those
// of the agent's, where process 1 is another: who looks there for threads of its own, as libcap
// does in programs with cgo, waits for ever.
func mountProc() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate mounts: %w; it needs CAP_SYS_ADMIN at the start", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// confine gives up all privileges, and sets limits, for the runner and all that it starts.
func confine(uid, gid, memory string) error {
	u, err1 := strconv.Atoi(uid)
	g, err2 := strconv.Atoi(gid)
	m, err3 := strconv.ParseUint(memory, 10, 63)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_DATA: m, unix.RLIMIT_NPROC: maxTasks, unix.RLIMIT_FSIZE: maxFile, unix.RLIMIT_NOFILE: maxOpen,
		unix.RLIMIT_CORE: 0,
	} {
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	// Whoever is in the same cgroup, the program goes first.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("volunteer for the OOM killer: %w", err)
	}
	if may, err := cap.GetProc().GetFlag(cap.Effective, cap.SETPCAP); err == nil && may {
		for c := range cap.MaxBits() {
			if err := cap.DropBound(c); err != nil {
				return fmt.Errorf("empty the bounding set: %w", err)
			}
		}
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leave all groups: %w; it needs CAP_SETGID at the start", err)
	}
	if err := syscall.Setresgid(g, g, g); err != nil {
		return fmt.Errorf("become group %d: %w", g, err)
	}
	if err := syscall.Setresuid(u, u, u); err != nil {
		return fmt.Errorf("become user %d: %w; it needs CAP_SETUID at the start", u, err)
	}
	if err := privilege.Drop(nil); err != nil {
		return err
	}
	// The program has the same user: it shall not trace the runner.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("refuse to be traced: %w", err)
	}
	if os.Getuid() != u || os.Geteuid() != u || os.Getgid() != g || syscall.Setuid(0) == nil {
		return errors.New("privileges are left")
	}
	return nil
}

// run runs the program once.
func run(path, name string, profile []byte, limit time.Duration) (answer, string) {
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	out, errs := &bounded{most: maxOutput, full: stop}, &bounded{most: maxErrors}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8",
		"VMPROF_KIND=" + name}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(profile), out, errs
	cmd.WaitDelay = stray
	if err := cmd.Start(); err != nil {
		return unstarted, err.Error()
	}
	err := cmd.Wait()
	switch {
	case out.over:
		return tooLong, fmt.Sprintf("more than %d kB of output", maxOutput>>10)
	case ctx.Err() != nil:
		return timeout, fmt.Sprintf("killed after %v", limit)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return exited, fmt.Sprintf("%v: %s", err, errs.kept)
	}
	return done, string(out.kept)
}

// killAll ends all other processes of the namespace, and waits for them.
func killAll() {
	_ = unix.Kill(-1, unix.SIGKILL) // ESRCH if there are none
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // ECHILD
		}
	}
}

// read reads a request.
func read(in io.Reader) (name string, profile []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return "", nil, err
	}
	n, length := binary.LittleEndian.Uint32(head[:4]), binary.LittleEndian.Uint32(head[4:])
	if n > maxName || length > maxProfile {
		return "", nil, errors.New("the request is too long")
	}
	text := make([]byte, n+length)
	if _, err := io.ReadFull(in, text); err != nil {
		return "", nil, err
	}
	return string(text[:n]), text[n:], nil
}

// reply writes an answer, as Program.receive reads it.
func reply(out io.Writer, a answer, text string) error {
	text = text[:min(len(text), maxOutput)]
	message := append(make([]byte, 5, 5+len(text)), text...)
	message[0] = byte(a)
	binary.LittleEndian.PutUint32(message[1:], uint32(len(text)))
	_, err := out.Write(message)
	return err
}

// bounded keeps what is written up to a length, and calls full, if there is one, when there is
// more. It has no ReadFrom, which would have no bound.
type bounded struct {
	kept []byte
	most int
	over bool
	full func()
}

// Write never fails: the writer would get a signal for it.
func (b *bounded) Write(text []byte) (int, error) {
	if room := b.most - len(b.kept); len(text) > room {
		b.kept = append(b.kept, text[:room]...)
		if !b.over && b.full != nil {
			b.full()
		}
		b.over = true
		return len(text), nil
	}
	b.kept = append(b.kept, text...)
	return len(text), nil
}
