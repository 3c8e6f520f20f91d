package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/paced"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	table "github.com/vmprof-agent/vmprof-agent/tests/report"
)

// slower are by how many percent units of the second recording of a pair are longer.
var slower = []int{0, 5, 20, 50}

// comparePairs compares pairs of recordings, and counts the intervals that do not contain the
// truth: of the CPU time of units per unit.
func comparePairs(
	ctx context.Context, agent profiler.Agent, dir string, length time.Duration, pairs int,
) (t table.Table, outside, all int, err error) {
	t.Header = []string{"units longer by", "pairs", "mean of truths", "mean of changes", "widest interval",
		"intervals that contain the truth"}
	for _, percent := range slower {
		var truths, changes, widest float64
		inside := 0
		for range pairs {
			c, err := comparePair(ctx, agent, dir, length, percent)
			if err != nil {
				return t, 0, 0, fmt.Errorf("compare units with others longer by %d %%: %w", percent, err)
			}
			truths, changes, widest = truths+c.truth, changes+c.change, max(widest, c.within)
			if c.holds() {
				inside++
			}
		}
		all, outside = all+pairs, outside+pairs-inside
		if n := float64(pairs); pairs > 0 {
			t.Add(fmt.Sprintf("%d %%", percent), fmt.Sprint(pairs), fmt.Sprintf("%+.1f %%", truths/n),
				fmt.Sprintf("%+.1f %%", changes/n),
				fmt.Sprintf("±%.1f %%", widest), fmt.Sprintf("%d of %d", inside, pairs))
		}
	}
	return t, outside, all, nil
}

// A change is by how much units cost more, in percent, by the guests' clocks and as compare has it
// with 99 %.
type change struct{ truth, change, within float64 }

// starting is for how long the guest works before and after the recording, together.
const starting = 3 * time.Second

// rounding is what the output rounds off.
const rounding = 0.1

func (c *change) holds() bool { return math.Abs(c.change-c.truth) <= c.within+rounding }

// comparePair records two guests one after the other, in the middle of their work, and compares
// them.
func comparePair(
	ctx context.Context, agent profiler.Agent, dir string, length time.Duration, longer int,
) (c change, err error) {
	const each, rate = 110 * time.Microsecond, 1000
	var paths [2]string
	var truths [2]paced.Truth
	per := int(length.Seconds() * rate)
	for i := range paths {
		paths[i] = filepath.Join(dir, strconv.Itoa(i)+".pb.gz")
		guest, err := paced.Start(ctx)
		if err != nil {
			return c, err
		}
		if _, err := guest.Do(paced.Order{Rate: 1}); err != nil {
			return c, errors.Join(err, guest.Close())
		}
		done := make(chan error, 1)
		go func() {
			order := paced.Order{Units: per + int(starting.Seconds()*rate),
				Length: each * time.Duration(100+longer*i) / 100, Rate: rate}
			var err error
			truths[i], err = guest.Do(order)
			done <- err
		}()
		recording, err := agent.Record(ctx, profiler.Options{PID: guest.PID(), Frequency: 3999, Duration: length,
			Extra: []string{"--window=0.1"}})
		if err := errors.Join(err, <-done, guest.Close()); err != nil {
			return c, err
		}
		file, err := os.Create(paths[i])
		if err != nil {
			return c, fmt.Errorf("write a recording: %w", err)
		}
		if err := errors.Join(recording.Profile.Write(file), file.Close()); err != nil {
			return c, fmt.Errorf("write a recording: %w", err)
		}
	}
	c.truth = 100 * paced.Off(truths[0].Units, truths[1].Units)
	text, err := exec.CommandContext(ctx, agent.Path, "compare", "-n", "0", "--width=0", fmt.Sprintf("--per=%d", per),
		paths[0], paths[1]).Output()
	if _, differ := errors.AsType[*exec.ExitError](err); err != nil && !differ {
		return c, fmt.Errorf("compare: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 6 || words[5] != paced.Unit {
			continue
		}
		var errs [2]error
		c.change, errs[0] = strconv.ParseFloat(strings.TrimSuffix(words[2], "%"), 64)
		c.within, errs[1] = strconv.ParseFloat(strings.TrimSuffix(words[3], "%"), 64)
		return c, errors.Join(errs[:]...)
	}
	return c, fmt.Errorf("compare has no row of %s:\n%s", paced.Unit, text)
}
