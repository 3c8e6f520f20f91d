package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
)

// minWindow is how short the windows of a recording may be: the agent drains its ring ten times a
// second.
const minWindow = 100 * time.Millisecond

// flatOutput is an output in another format than these; "" if there is none.
func (o *recordOptions) flatOutput(formats ...sink.Format) (path string, err error) {
	outputs, _ := o.outputs()
	for _, out := range outputs {
		if out.path == "" {
			continue
		}
		format, err := sink.FormatOf(out.path)
		if err != nil {
			return "", err
		}
		if !slices.Contains(formats, format) {
			path = out.path
		}
	}
	return path, nil
}

// checkWindow refuses --window where it can have no effect.
func (o *recordOptions) checkWindow() error {
	if o.window == 0 {
		return nil
	}
	flat, err := o.flatOutput(sink.FormatPprof)
	if err != nil {
		return nil // CheckWritable reports it
	}
	switch {
	case o.window < minWindow:
		return cli.Misuse(fmt.Sprintf("--window needs a duration of at least %v", minWindow))
	case o.Exact != "":
		return cli.Misuse("--exact counts the whole recording: remove --window")
	case flat != "":
		return cli.Misuse(fmt.Sprintf("--window needs the pprof format: use an output that ends in .pb.gz instead "+
			"of %s", flat))
	case o.duration > 0 && o.windows() < 2:
		return cli.Misuse(fmt.Sprintf("--window=%v makes only one window in -d %v: use a shorter window or a longer "+
			"recording", o.window, o.duration))
	case o.windows() > stored.MaxWindows:
		return cli.Misuse(fmt.Sprintf("--window=%v makes more than %d windows in -d %v: use a longer window", o.window,
			stored.MaxWindows, o.duration))
	}
	return nil
}

// windows is how many windows the recording is to have, 0 if that is not known. A rest of less than
// half a window belongs to the last one.
func (o *recordOptions) windows() int64 {
	return int64((o.duration + o.window/2) / o.window)
}

// store writes the outputs, which are of all windows if there are several, and returns the accounts
// of time. Its errors are those of write.
func (o *recordOptions) store(
	stdout io.Writer, last *profile.Profile, r *rotation, outputs []output,
) (counts profile.Counts, failed, unusable error) {
	if r == nil {
		counts := last.Counts
		failed, unusable := o.write(stdout, last, outputs)
		return counts, failed, unusable
	}
	if err := r.add(last); err != nil {
		return profile.Counts{}, nil, err
	}
	last.Processes = nil           // nobody else has this window
	counts = r.windows[0].Counts() // those of all files
	next := 0                      // of windows, which has one for each part
	for i := range outputs {
		out := &outputs[i]
		if out.again {
			out.stored = outputs[i-1].stored
		} else {
			stored, err := r.windows[next].Profile()
			if err != nil {
				return profile.Counts{}, failed, err
			}
			out.stored = stored
			next++
		}
		failed = errors.Join(failed, o.writeOne(stdout, last, out))
	}
	return counts, failed, nil
}

// A rotation closes one window after the other while a recording goes on, and keeps them apart in
// one profile for each file.
type rotation struct {
	windows []*sink.Windows                  // the closed ones, by output
	next    func() (*profile.Profile, error) // closes the open window and opens another
	open    *agent.Window
	quit    chan struct{}
	done    chan error // has one value once the last window is open
}

// rotate begins to close windows, of which w is the first, and returns at once. Until stop, w is
// the rotation's. It returns nil if there is to be one window only.
func (o *recordOptions) rotate(ctx context.Context, w *agent.Window) *rotation {
	if o.window == 0 {
		return nil
	}
	r := newRotation(o.parts())
	r.open = w
	ctx = context.WithoutCancel(ctx) // an interrupted window would be lost
	r.next = func() (*profile.Profile, error) {
		counts := o.count.take()
		next, p, err := r.open.Next(ctx)
		if err == nil {
			r.open = next
			o.count.fill(p, counts, false)
		}
		return p, err
	}
	go r.run(o.window, o.windows())
	return r
}

func newRotation(parts []sampling.Part) *rotation {
	r := &rotation{quit: make(chan struct{}), done: make(chan error, 1)}
	for _, p := range parts {
		r.windows = append(r.windows, sink.NewWindows(p.Content))
	}
	return r
}

// add appends a window to each file.
func (r *rotation) add(p *profile.Profile) error {
	for _, w := range r.windows {
		if err := w.Add(p); err != nil {
			return err
		}
	}
	return nil
}

// full says that the open window should be the last, because a file has no room for more.
func (r *rotation) full() bool { return slices.ContainsFunc(r.windows, (*sink.Windows).Full) }

// run closes a window each time its length is over, until stop is called, as many are wanted as
// there are with the open one (0: any number), or the profile has no room for more.
func (r *rotation) run(length time.Duration, wanted int64) {
	tick := time.NewTicker(length)
	defer tick.Stop()
	for !r.full() && (wanted == 0 || int64(r.windows[0].Len()) < wanted-1) {
		select {
		case <-r.quit:
			r.done <- nil
			return
		case <-tick.C:
		}
		p, err := r.next()
		if err == nil {
			err = r.add(p)
		}
		if err != nil {
			r.done <- fmt.Errorf("close window: %w", err)
			return
		}
	}
	r.done <- nil
}

// stop ends the rotation and returns the window that is open then: w if there is no rotation.
func (r *rotation) stop(w *agent.Window) (*agent.Window, error) {
	if r == nil {
		return w, nil
	}
	close(r.quit)
	err := <-r.done
	w, r.open = r.open, nil // what it belongs to is closed before the recording is written
	return w, err
}
