package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

const (
	connections = 16
	requestTime = time.Millisecond // CPU time that a request is to take
)

// A load sends requests at a fixed rate, whether earlier ones were answered or not: what a request
// waits because others take long counts.
type load struct {
	guest *jvm.Guest
	conns []net.Conn
	work  uint32  // work of a request
	rate  float64 // requests a second
}

// startLoad starts a server, and finds out how much a request is and how many use that share of all
// CPUs.
func (b bench) startLoad(ctx context.Context, share float64) (l *load, err error) {
	guest, port, err := startServed(ctx, b.jdk)
	if err != nil {
		return nil, err
	}
	l = &load{guest: guest, work: 1000, rate: 200}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for range connections {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, conn)
	}
	for range 4 { // until the server is compiled, and its requests have their size
		before, err := guest.CPUTime()
		if err != nil {
			return nil, err
		}
		answers, err := l.run(2 * b.how.latency.turn / 5)
		if err != nil {
			return nil, err
		}
		after, err := guest.CPUTime()
		if err != nil {
			return nil, err
		}
		each := (after - before) / time.Duration(len(answers))
		l.work = uint32(float64(l.work) * float64(requestTime) / float64(each))
		l.rate = share * float64(runtime.NumCPU()) / requestTime.Seconds()
	}
	return l, nil
}

func (l *load) close() error {
	for _, conn := range l.conns {
		conn.Close()
	}
	return l.guest.Close()
}

// latencies are those of requests: from when each was to be sent to its answer.
type latencies []time.Duration

// percentile returns that of sorted or unsorted latencies: the least that a part p of them do not
// exceed.
func (l latencies) percentile(p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// run sends requests for so long, and returns the latencies of all of them.
func (l *load) run(length time.Duration) (all latencies, err error) {
	due := make(chan time.Time, int(l.rate*length.Seconds())+1)
	results, failures := make([]latencies, len(l.conns)), make([]error, len(l.conns))
	var clients sync.WaitGroup
	for i, conn := range l.conns {
		clients.Go(func() { results[i], failures[i] = l.ask(conn, due) })
	}
	interval := time.Duration(float64(time.Second) / l.rate)
	// The runtime's timers are a millisecond late.
	runtime.LockOSThread()
	began := time.Now()
	for at := time.Duration(0); at < length; at += interval {
		if wait := at - time.Since(began); wait > 0 {
			rest := unix.NsecToTimespec(wait.Nanoseconds())
			unix.Nanosleep(&rest, nil)
		}
		due <- began.Add(at)
	}
	runtime.UnlockOSThread()
	close(due)
	clients.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	return slices.Concat(results...), nil
}

// ask sends requests that are due, one after the other.
func (l *load) ask(conn net.Conn, due <-chan time.Time) (took latencies, err error) {
	request, answer := binary.BigEndian.AppendUint32(nil, l.work), make([]byte, 4)
	for at := range due {
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	return took, nil
}
