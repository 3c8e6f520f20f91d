package cli

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A seconds is a flag for a duration. A number without a unit is seconds.
type seconds struct{ d *time.Duration }

// Seconds is a flag for d.
func Seconds(d *time.Duration) pflag.Value { return seconds{d} }

func (s seconds) String() string {
	if s.d == nil {
		return ""
	}
	return s.d.String()
}

func (seconds) Type() string { return "duration" }

func (s seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if !(math.Abs(n) <= math.MaxInt64/float64(time.Second)/2) { // nor NaN
			return errors.New("too long")
		}
		*s.d = time.Duration(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a duration such as 30s, 5m or 10 (seconds)")
	}
	*s.d = d
	return nil
}

// A Size is a flag for a number of bytes.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}

func (s *Size) String() string {
	for _, u := range slices.Backward(sizeUnits[:3]) {
		if n := float64(*s) / u.bytes; n >= 1 && n == math.Trunc(n) {
			return strconv.FormatFloat(n, 'f', -1, 64) + u.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

func (*Size) Type() string { return "size" }

// Set reads 200MB, 200M or a number of bytes.
func (s *Size) Set(text string) error {
	number, bytes := text, 1.0
	for _, u := range sizeUnits {
		for _, name := range []string{u.name, strings.TrimSuffix(u.name, "B")} {
			if before, ok := strings.CutSuffix(strings.ToLower(text), strings.ToLower(name)); ok && name != "" &&
				len(before) < len(number) {
				number, bytes = before, u.bytes
			}
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(n*bytes >= 0 && n*bytes < 1<<53) {
		return errors.New("want a size such as 200MB")
	}
	*s = Size(n * bytes)
	return nil
}

// HistoryDir is where contrib/systemd/vmprof-agent.service keeps the history.
const HistoryDir = "/var/lib/vmprof-agent/history"
