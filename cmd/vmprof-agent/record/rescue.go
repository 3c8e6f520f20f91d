package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// A rescuer finds another place for a file that cannot be written where it should be: a recording
// cannot be repeated, and disks fill up while it goes on.
type rescuer struct {
	ctx    context.Context
	say    io.Writer
	places []string
	pause  time.Duration // between attempts if no place has room
}

func newRescuer(ctx context.Context, say io.Writer) *rescuer {
	// The last is memory, which all but the smallest systems have.
	places := []string{os.TempDir(), "/var/tmp"}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, home)
	}
	return &rescuer{ctx, say, append(places, "/dev/shm"), time.Second}
}

// write has a file written: to path, or else to the next place that has room, of which it says why.
// If there is none, it keeps trying, as long as nobody ends the program; what is to be written is
// in memory meanwhile. It returns where the file is, also with an error, "" if nowhere. A nil
// rescuer knows no other place.
func (r *rescuer) write(path string, write func(path string) error) (where string, err error) {
	if err = write(path); err == nil {
		return path, nil
	}
	if r == nil || path == sink.Stdout || !isFileError(err) {
		return "", err
	}
	if where := r.elsewhere(path, write); where != "" {
		return where, fmt.Errorf("%w. It was written to %s instead", err, where)
	}
	fmt.Fprintf(r.say, "vmprof-agent: %v. No other directory has room either: the recording stays in memory until "+
		"there is room (Ctrl-C discards it)\n", err)
	// The context ends with the recording.
	waiting, stop := signal.NotifyContext(context.WithoutCancel(r.ctx), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	for again := time.NewTicker(r.pause); ; {
		select {
		case <-waiting.Done():
			again.Stop()
			return "", err
		case <-again.C:
		}
		if err := write(path); err == nil {
			return path, nil
		}
		if where := r.elsewhere(path, write); where != "" {
			return where, fmt.Errorf("%w. It was written to %s instead", err, where)
		}
	}
}

// elsewhere has the file written to the first other place that has room; "" if there is none.
// Others can write to these places: the file gets a directory of its own there, so that nobody else
// can have made what its name leads to.
func (r *rescuer) elsewhere(path string, write func(path string) error) string {
	for _, place := range r.places {
		dir, err := os.MkdirTemp(place, "vmprof-")
		if err != nil {
			continue
		}
		to := filepath.Join(dir, filepath.Base(path))
		if write(to) == nil {
			return to
		}
		_ = os.Remove(dir) // the file removed itself
	}
	return ""
}

// isFileError reports whether it is the place that a file cannot be written to.
func isFileError(err error) bool {
	return errors.As(err, new(syscall.Errno)) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}
