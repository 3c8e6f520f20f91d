package stacks

import (
	"cmp"
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Label returns a string label of a sample, or "".
func Label(sample *pprof.Sample, key string) string {
	if values := sample.Label[key]; len(values) > 0 {
		return stored.Printable(values[0])
	}
	return ""
}

// Number returns a numeric label of a sample, or 0.
func Number(sample *pprof.Sample, key string) int64 {
	if values := sample.NumLabel[key]; len(values) > 0 {
		return values[0]
	}
	return 0
}

func ProcessID(sample *pprof.Sample) int64 { return Number(sample, stored.LabelPID) }

// ProcessName is what people call the process of a sample.
func ProcessName(sample *pprof.Sample) string {
	comm := cmp.Or(Label(sample, stored.LabelComm), stored.Unnamed)
	return fmt.Sprintf("%s (pid %d)", comm, ProcessID(sample))
}

// SeveralProcesses says that the samples carry more than one pid.
func SeveralProcesses(p *pprof.Profile) bool {
	var first int64
	for i, sample := range p.Sample {
		if pid := ProcessID(sample); i == 0 {
			first = pid
		} else if pid != first {
			return true
		}
	}
	return false
}

// CertaintyOf says how the context of a stored sample was found: 0 if it is certain, or nothing is
// said.
func CertaintyOf(sample *pprof.Sample) Flags {
	switch Label(sample, stored.LabelContext) {
	case profile.Ambiguous.String():
		return ambiguous
	case profile.Fitted.String():
		return fitted
	case profile.Unplaced.String():
		return unplaced
	}
	return 0
}

// Counted says of a sample of events that each one was counted.
func Counted(sample *pprof.Sample) bool { return Label(sample, stored.LabelKind) == stored.ExactEngine }

func sampled(sample *pprof.Sample) bool { return !Counted(sample) }

// busy says that the sample's thread has something to do.
func busy(sample *pprof.Sample) bool { return Label(sample, stored.LabelCause) != cause.Idle }

// Contended says that a sample is no wait for work.
func Contended(sample *pprof.Sample) bool {
	return Label(sample, stored.LabelKind) != profile.WaitForWork
}
