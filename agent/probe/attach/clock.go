package attach

import (
	"errors"
	"slices"
)

// A Clock decides when CPU time is sampled.
type Clock string

// Clocks, as users write them.
const (
	AutoClock Clock = "auto"      // "" is the same
	TickClock Clock = "tick"      // the kernel's own timer tick: KernelTicks
	CPUClock  Clock = "cpu-clock" // a timer of its own on every CPU: Ticks
)

// Clocks returns all of them.
func Clocks() []Clock { return []Clock{AutoClock, TickClock, CPUClock} }

// UnmarshalText takes one of Clocks.
func (c *Clock) UnmarshalText(text []byte) error {
	if !slices.Contains(Clocks(), Clock(text)) {
		return errors.New("choose auto, tick or cpu-clock")
	}
	*c = Clock(text)
	return nil
}

// MarshalText is what UnmarshalText takes.
func (c Clock) MarshalText() ([]byte, error) { return []byte(c), nil }
