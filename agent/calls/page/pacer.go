package page

import "time"

// A pacer says how long to wait between messages, so that there are no more than rate a second, in every 100 ms.
type pacer struct {
	rate  int
	since time.Time
	n     int
}

// next counts a message and returns how long to wait before the next one is read.
func (p *pacer) next(now time.Time) time.Duration {
	const interval = 100 * time.Millisecond
	if now.Sub(p.since) >= interval {
		p.since, p.n = now, 0
	}
	if p.n++; p.n < p.rate/int(time.Second/interval) {
		return 0
	}
	return p.since.Add(interval).Sub(now)
}
