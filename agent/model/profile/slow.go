package profile

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// MaxSlowCalls is how many of the slowest invocations of a method are kept.
const MaxSlowCalls = 20

// A SlowCall is one of the slowest invocations of a method.
type SlowCall struct {
	TID    int
	Thread string
	Start  time.Time
	Length time.Duration
	End    CallEnd
	Parts  []SlowPart // parts that add up to Length
}

// A CallEnd is how an invocation ended.
type CallEnd uint8

const (
	CallReturned CallEnd = iota
	CallUnwound          // ended by an exception, or its return was not seen: it took no longer than Length
	CallRunning          // it had not ended when the recording did
)

var callEnds = [...]string{"returned", "unwound", "running"}

// String is the end as labels have it.
func (e CallEnd) String() string { return callEnds[min(int(e), len(callEnds)-1)] }

// A SlowPart is a part of an invocation's time: on the CPU, or off it for a cause.
type SlowPart struct {
	Stack        []symbol.Symbol // innermost first
	State, Cause string          // as those of wall time
	Time         float64         // ns
}
