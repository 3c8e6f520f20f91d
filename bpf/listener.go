package bpf

import "fmt"

// Types of the listener's object. Layouts and units: listener.bpf.h.
type (
	CallWatch   = ListenerListenerWatch
	ListenerHit = ListenerListenerHit
)

// MaxListenerHits bounds the hits of a watch on entry points: MAX_LISTENER_HITS.
const MaxListenerHits = 256

// LoadListeners loads the program behind breakpoints on entry points next to o. The caller closes
// it before o.
func (o *Objects) LoadListeners() (*ListenerObjects, error) {
	spec, err := LoadListener()
	if err != nil {
		return nil, fmt.Errorf("read listener object: %w", err)
	}
	var l ListenerObjects
	if err := o.LoadBeside(spec, &l); err != nil {
		return nil, fmt.Errorf("load listener program: %w", err)
	}
	return &l, nil
}
