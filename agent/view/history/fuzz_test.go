package history

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// bodies are those of a segment with windows of all kinds, before they are compressed.
func bodies(tb testing.TB) (raw [][]byte) {
	for _, p := range []*profile.Profile{sinktest.Shop(), sinktest.ShopBoth(), sinktest.ShopEvents(),
		sinktest.ShopPartial(), varied(rand.New(rand.NewPCG(1, 2)), 2, 4)} {
		m := digest.NewMerger(digest.NewNames(nil), nil)
		e := newEncoder(newTables(m.Names)) // so that a body has all of its names
		m.AddProfile(p)
		h := header{span{began, began.Add(time.Second), time.Second}, sumsOf(p)}
		record, err := e.record(&h, m.Finish(digest.MaxContexts, new(digest.Arena)))
		if err != nil {
			tb.Fatal(err)
		}
		var s scanner
		segment := append([]byte(magic), record...)
		if err := s.scan(bytes.NewReader(segment), int64(len(segment))); err != nil {
			tb.Fatal(err)
		}
		d := newDecoder(bytes.NewReader(segment), digest.NewNames(nil))
		body, err := d.body(&s.entries[0])
		if err != nil {
			tb.Fatal(err)
		}
		raw = append(raw, body)
	}
	return raw
}

// Whatever a body holds, there is an error or a window that can be written as pprof and stored
// again.
func FuzzDecode(f *testing.F) {
	for _, body := range bodies(f) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := digest.NewMerger(digest.NewNames(nil), nil)
		d := newDecoder(nil, m.Names)
		w, err := d.decode(current, body, &Selection{})
		if (w == nil) == (err == nil) {
			t.Fatalf("window %v and error %v", w, err)
		}
		if err != nil {
			return
		}
		w.Start = began
		m.Add(w, began)
		stored := m.Finish(100, new(digest.Arena))
		p := m.Profile(100)
		for _, content := range []sink.Content{sink.Time, sink.CallCounts, sink.OfEvents(profile.Allocations)} {
			_, _ = sink.Pprof(p, content) // numbers may be too large for the format
		}
		h := header{span{began, began, 0}, sumsOf(p)}
		if _, err := newEncoder(newTables(m.Names)).record(&h, stored); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever a directory holds, a reader answers, and a writer can go on.
func FuzzSegment(f *testing.F) {
	r := rig{path: filepath.Join(f.TempDir(), "history"), now: began}
	s, err := Open(r.path, &Options{Now: func() time.Time { return began }})
	if err != nil {
		f.Fatal(err)
	}
	for i, p := range []*profile.Profile{sinktest.Shop(), sinktest.ShopEvents()} {
		p.Start, p.Duration = began.Add(time.Duration(i)*time.Second), time.Second
		if err := s.Add(p); err != nil {
			f.Fatal(err)
		}
	}
	s.Close()
	segment, err := os.ReadFile(filepath.Join(r.path, "00000000.0"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(segment)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, segment []byte) {
		r := &rig{path: t.TempDir(), now: began}
		if err := os.Chmod(r.path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.path, "00000000.0"), segment, 0o600); err != nil {
			t.Fatal(err)
		}
		everything := Selection{From: began.AddDate(-10, 0, 0), To: began.AddDate(10, 0, 0)}
		_, _ = Read(r.path).Query(t.Context(), everything)
		r.reopen(t, Options{})
		r.add(t, sinktest.Shop())
		if _, err := Read(r.path).Query(t.Context(), everything); err != nil {
			t.Fatal(err)
		}
	})
}
