package bpf

// Types of the listener's object. Layouts and units: listener.bpf.h.
type (
	ListenerWindow = ListenerListenerWindow
	ListenerHit    = ListenerListenerHit
)

// Bounds of the listener's kernel side.
const (
	MaxListenerWindows = 16  // processes listened to at once: MAX_WINDOWS
	ListenerEntries    = 3   // addresses of a window: WINDOW_ENTRIES
	MaxListenerHits    = 256 // hits of a window: MAX_WINDOW_HITS
)
