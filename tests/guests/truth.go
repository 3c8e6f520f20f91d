package guests

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Measure is which samples count for a claim.
type Measure string

// The measures of java/guest/Claim.java.
const (
	Self   Measure = "self"   // the innermost Java frame is the method
	Total  Measure = "total"  // the method is anywhere on the stack
	Thread Measure = "thread" // the sample was taken on the thread
)

// A Truth is a guest's measurements of itself.
type Truth struct {
	CPU    time.Duration // CPU time of all workers
	Claims []Claim
	Depths []Depth
	Unders []Under
	Leaves []Leaf
}

// A Claim is the CPU time of a method or a thread.
type Claim struct {
	Measure Measure
	Name    string
	CPU     time.Duration
}

// Share is the claim's part of the CPU time of all workers, 0 to 1.
func (t Truth) Share(c Claim) float64 { return float64(c.CPU) / float64(t.CPU) }

// A Depth says that stacks from the method Entry to the method Bottom contain Method that many
// times.
type Depth struct {
	Entry, Method, Bottom string
	Times                 int
}

// An Under says that every stack with the method Inner has one further out whose name begins with
// Outer.
type Under struct {
	Inner, Outer string
}

// A Leaf says that below the method Outer all work is done in Inner.
type Leaf struct {
	Outer, Inner string
}

// errIdle: no piece of work was done in the requested time.
var errIdle = errors.New("the workers used no CPU time")

// whole reports whether every kind of work took some time.
func (t Truth) whole() bool {
	return len(t.Claims) > 0 && !slices.ContainsFunc(t.Claims, func(c Claim) bool { return c.CPU == 0 })
}

// parseTruth reads the lines that java/guest/Ledger.java prints.
func parseTruth(lines []string) (Truth, error) {
	var truth Truth
	for _, line := range lines {
		if err := truth.parse(strings.Fields(line)); err != nil {
			return Truth{}, fmt.Errorf("parse truth %q: %w", line, err)
		}
	}
	if truth.CPU <= 0 {
		return Truth{}, fmt.Errorf("parse truth: %w", errIdle)
	}
	return truth, nil
}

func (t *Truth) parse(words []string) error {
	kind := ""
	if len(words) > 0 {
		kind = words[0]
	}
	switch {
	case kind == "truth" && len(words) == 4:
		nanos, err := strconv.ParseInt(words[3], 10, 64)
		t.Claims = append(t.Claims, Claim{Measure: Measure(words[1]), Name: words[2], CPU: time.Duration(nanos)})
		return err
	case kind == "depth" && len(words) == 5:
		times, err := strconv.Atoi(words[4])
		t.Depths = append(t.Depths, Depth{Entry: words[1], Method: words[2], Bottom: words[3], Times: times})
		return err
	case kind == "under" && len(words) == 3:
		t.Unders = append(t.Unders, Under{Inner: words[1], Outer: words[2]})
		return nil
	case kind == "leaf" && len(words) == 3:
		t.Leaves = append(t.Leaves, Leaf{Outer: words[1], Inner: words[2]})
		return nil
	case kind == "cpu" && len(words) == 2:
		nanos, err := strconv.ParseInt(words[1], 10, 64)
		t.CPU = time.Duration(nanos)
		return err
	}
	return errors.New("no such fact")
}
