package report

import (
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// label returns a string label of a sample, or "".
func label(sample *pprof.Sample, key string) string {
	if values := sample.Label[key]; len(values) > 0 {
		return stored.Printable(values[0])
	}
	return ""
}

// number returns a numeric label of a sample, or 0.
func number(sample *pprof.Sample, key string) int64 {
	if values := sample.NumLabel[key]; len(values) > 0 {
		return values[0]
	}
	return 0
}

func processID(sample *pprof.Sample) int64 { return number(sample, stored.LabelPID) }

// processName is what people call the process of a sample.
func processName(sample *pprof.Sample) string {
	comm := label(sample, stored.LabelComm)
	if comm == "" {
		comm = stored.Unnamed
	}
	return fmt.Sprintf("%s (pid %d)", comm, processID(sample))
}

// severalProcesses says that the samples carry more than one pid.
func severalProcesses(p *pprof.Profile) bool {
	var first int64
	for i, sample := range p.Sample {
		if pid := processID(sample); i == 0 {
			first = pid
		} else if pid != first {
			return true
		}
	}
	return false
}

// certaintyOf says how the context of a stored sample was found: 0 if it is certain, or nothing is said.
func certaintyOf(sample *pprof.Sample) frameFlags {
	switch label(sample, stored.LabelContext) {
	case profile.Ambiguous.String():
		return ambiguous
	case profile.Fitted.String():
		return fitted
	case profile.Unplaced.String():
		return unplaced
	}
	return 0
}

// counted says of a sample of events that each one was counted.
func counted(sample *pprof.Sample) bool { return label(sample, stored.LabelKind) == stored.ExactEngine }

func sampled(sample *pprof.Sample) bool { return !counted(sample) }

// busy says that the sample's thread has something to do.
func busy(sample *pprof.Sample) bool { return label(sample, stored.LabelCause) != cause.Idle }

// contended says that a sample is no wait for work.
func contended(sample *pprof.Sample) bool {
	return label(sample, stored.LabelKind) != profile.WaitForWork
}
