package history

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Layouts of times without a date and with one, each also with seconds and with a zone.
var (
	timeLayouts = []string{"15:04", "15:04:05"}
	dateLayouts = []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"}
	zoneLayouts = []string{"", "Z07:00"}
)

// errTime is the error for a text that is no time.
var errTime = errors.New("want a time such as 03:10, 03:10:30, 2006-01-02 03:10, 2006-01-02T03:10:00+01:00, or 20m " +
	"for 20 minutes ago")

// ParseRange reads the beginning and the end of a time in the past. Without a zone, from is in the
// zone of now, and to in that of from. A from without a date is the last such time, a to without a
// date the first one after from. An empty to is now. Where clocks are set back, an hour occurs
// twice: a time without a zone is then in the first of them.
func ParseRange(from, to string, now time.Time) (time.Time, time.Time, error) {
	begin, err := parseTime(from, now, func(t time.Time) bool { return !t.After(now) }, -1)
	if err != nil {
		return time.Time{}, time.Time{}, fmt.Errorf("bad time %.40q: %w", from, err)
	}
	if to == "" {
		return begin, now, nil
	}
	end, err := parseTime(to, begin, func(t time.Time) bool { return t.After(begin) }, +1)
	if d, ago := parseAgo(to); ago {
		end, err = now.Add(-d), nil
	}
	if err != nil {
		return time.Time{}, time.Time{}, fmt.Errorf("bad time %.40q: %w", to, err)
	}
	if !end.After(begin) {
		return time.Time{}, time.Time{}, fmt.Errorf("the time ends at %s, before it begins at %s",
			end.Format(time.DateTime), begin.Format(time.DateTime))
	}
	return begin, end, nil
}

// parseTime reads a time. One without a date is on the day of base if it fits, or so many days off.
func parseTime(text string, base time.Time, fits func(time.Time) bool, step int) (time.Time, error) {
	text = strings.TrimSpace(text)
	if d, ago := parseAgo(text); ago {
		return base.Add(-d), nil
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds >= 1e9 && seconds < 1e10 {
		return time.Unix(seconds, 0).In(base.Location()), nil
	}
	for _, zone := range zoneLayouts {
		for _, layout := range dateLayouts {
			if t, err := time.ParseInLocation(layout+zone, text, base.Location()); err == nil {
				return first(t), nil
			}
		}
		for _, layout := range timeLayouts {
			of, err := time.ParseInLocation(layout+zone, text, base.Location())
			if err != nil {
				continue
			}
			location := base.Location()
			if zone != "" {
				location = of.Location()
			}
			y, m, d := base.In(location).Date()
			// A day where clocks are set lacks or repeats an hour, so that one step may not do.
			for days := 0; ; days += step {
				t := time.Date(y, m, d+days, of.Hour(), of.Minute(), of.Second(), 0, location)
				t = first(t)
				if fits(t) || days == 2*step {
					return t, nil
				}
			}
		}
	}
	return time.Time{}, errTime
}

// first returns the first time at which clocks show what they show at t.
func first(t time.Time) time.Time {
	const longer = 3 * time.Hour // than any change of clocks
	_, now := t.Zone()
	_, before := t.Add(-longer).Zone()
	earlier := t.Add(time.Duration(now-before) * time.Second)
	if before > now && earlier.Format(time.DateTime) == t.Format(time.DateTime) {
		return earlier
	}
	return t
}

// parseAgo reads how long ago something was.
func parseAgo(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(strings.TrimSuffix(strings.TrimPrefix(text, "-"), " ago"))
	return d, err == nil && d >= 0 && text != "0"
}
