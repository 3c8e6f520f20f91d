package sink

import (
	"errors"
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Bounds of the windows in one profile.
const (
	// maxWindowSamples and maxWindowFrames bound the memory that the windows take until they are
	// written: about 150 bytes for a sample and 8 for each of its frames.
	maxWindowSamples = 1 << 20
	maxWindowFrames  = 1 << 25
)

// Windows makes one pprof profile of consecutive windows of one recording, which stay apart: each
// sample carries the number of its window as the numeric label window, from 1. The metadata says
// when each window began and accounts for its samples; its contexts name their window. All else is
// that of Pprof, for all windows together.
//
//	w := sink.NewWindows(sink.Time)
//	for !w.Full() {
//		err := w.Add(p) // the next window
//	}
//	stored, err := w.Profile()
//
// Windows are converted when they are added, and not needed any more afterwards.
type Windows struct {
	builder *pprofBuilder
	counted int // samples of the builder whose frames are in frames
	frames  int
	max     struct{ windows, samples, frames int }
}

// NewWindows begins a profile of this content. Entries need not be asked for: there is a column for
// them once a window has some.
func NewWindows(content Content) *Windows {
	w := &Windows{builder: newPprofBuilder(content)}
	w.max.windows, w.max.samples, w.max.frames = stored.MaxWindows, maxWindowSamples, maxWindowFrames
	return w
}

// Full says that the window which is being recorded should be the last: it still has room, however
// long it takes.
func (w *Windows) Full() bool {
	return w.Len() >= w.max.windows-1 || len(w.builder.profile.Sample) >= w.max.samples || w.frames >= w.max.frames
}

// Len is how many windows were added.
func (w *Windows) Len() int { return int(w.builder.window) }

// Counts are those of all windows.
func (w *Windows) Counts() profile.Counts { return w.builder.accounts.metadata.Samples }

// Add appends the next window. After an error the profile is of no use.
func (w *Windows) Add(p *profile.Profile) error {
	b := w.builder
	if w.Len() >= w.max.windows {
		return fmt.Errorf("more than %d windows: use longer windows", w.max.windows)
	}
	if w.Full() {
		b.accounts.remark("windows: a profile has no room for more, so the last window contains the rest of the "+
			"recording", b.window)
	}
	if content := b.content | ContentOf(p)&Entries; content != b.content {
		b.widen(content)
	}
	b.window++
	if err := b.add(p); err != nil {
		return fmt.Errorf("window %d: %w", b.window, err)
	}
	for _, sample := range b.profile.Sample[w.counted:] {
		w.frames += len(sample.Location)
	}
	w.counted = len(b.profile.Sample)
	return nil
}

// widen changes the content to one that also has entries, in the last column.
func (b *pprofBuilder) widen(content Content) {
	b.content = content
	b.profile.SampleType, b.profile.DefaultSampleType = content.sampleTypes()
	for _, sample := range b.profile.Sample {
		for len(sample.Value) < len(b.profile.SampleType) {
			sample.Value = append(sample.Value, 0)
		}
	}
}

// Profile returns the profile of all windows. It is called once.
func (w *Windows) Profile() (*pprof.Profile, error) {
	if w.Len() == 0 {
		return nil, errors.New("no window was recorded")
	}
	return w.builder.finish()
}
