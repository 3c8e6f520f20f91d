//go:build !amd64

package breakpoint

// catchLostTraps does nothing: no exception is lost on other machines.
func catchLostTraps() error { return nil }

func lostTraps() uint64 { return 0 }
