package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// goldenWindows are the windows of the segments in testdata: each has names that the ones before it
// have not.
func goldenWindows() []*profile.Profile {
	late := varied(rand.New(rand.NewPCG(3, 4)), 2, 3)
	for i, p := range late.Processes {
		p.Service = []string{"late", "later"}[i]
	}
	return []*profile.Profile{varied(rand.New(rand.NewPCG(1, 2)), 2, 2),
		sinktest.OfPaths(sinktest.Path{Methods: "main second", Times: 1, Weight: 5}), late}
}

// golden makes a history of one segment of testdata, changed by damage if that is not nil.
func golden(t *testing.T, name string, damage func([]byte)) (path string, content []byte) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if damage != nil {
		damage(content)
	}
	path = filepath.Join(t.TempDir(), "history")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "00000000.0"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// recordsOf are the records of a segment that is right.
func recordsOf(t *testing.T, content []byte) []entry {
	t.Helper()
	var s scanner
	if err := s.scan(bytes.NewReader(content), int64(len(content))); err != nil || s.damaged(false) > 0 {
		t.Fatalf("%v, %d bytes are damaged", err, s.damaged(false))
	}
	return s.entries
}

// What this version writes has its magic, and what another one wrote with it is read: a change of
// the encoding needs another magic. That of before is read as well.
func TestFormat(t *testing.T) {
	r := newRig(t, Options{})
	var want totals
	for _, p := range goldenWindows() {
		r.add(t, p)
		want.add(p)
	}
	r.Close()
	file := filepath.Join("testdata", magic[:5]+".segment")
	if *sinktest.Update {
		if err := os.WriteFile(file, []byte(r.content(t, "00000000.0")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"vmph2.segment", filepath.Base(file)} {
		path, _ := golden(t, name, nil)
		p, err := Read(path).Query(t.Context(), Selection{From: began, To: began.Add(time.Hour)})
		if err != nil || totalsOf(p) != want {
			t.Errorf("%s: %+v, %v; want %+v", name, totalsOf(p), err, want)
		}
		list, err := Read(path).Timeline(t.Context(), began, began.Add(time.Hour), "")
		if err != nil || len(list) != 3 || len(list[2].Services) != 2 || list[2].Services[1].Service != "later" ||
			list[2].Services[1].CPU == ([profile.CodeKinds]time.Duration{}) {
			t.Errorf("%s: timeline %+v, %v", name, list, err)
		}
	}
	// The bytes of one window, before they are compressed. The order of more edges is not always
	// the same. A further kind of events makes them longer, which readers know from the number of
	// kinds.
	p := varied(rand.New(rand.NewPCG(5, 6)), 3, 1)
	p.Start, p.Duration, p.Comments = began, time.Second, []string{"a comment"}
	names := digest.NewNames(nil)
	e := newEncoder(newTables(names))
	m := digest.NewMerger(names, nil)
	m.AddProfile(p)
	record, err := e.record(&header{span{began, began.Add(time.Second), time.Second}, sumsOf(p)},
		m.Finish(digest.MaxContexts, new(digest.Arena)))
	if err != nil {
		t.Fatal(err)
	}
	encoded := slices.Concat(record[prefixSize:prefixSize+e.added], e.definitions, e.body)
	file = filepath.Join("testdata", magic[:5]+".window")
	if *sinktest.Update {
		if err := os.WriteFile(file, encoded, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(encoded, want) {
		t.Errorf("a window is not encoded as in %s, %v: give the encoding another magic, read the one of before as "+
			"well, and run this test with -update", file, err)
	}
}

// Of a segment with a damaged part, the windows around it are read with all of their names that are
// not in it. Names that cannot be known are not taken for others.
func TestDamagedNames(t *testing.T) {
	windows := goldenWindows()
	for _, name := range []string{"vmph2.segment", "vmph3.segment"} {
		_, content := golden(t, name, nil)
		records := recordsOf(t, content)
		for i, damage := range map[string]func(b []byte, e *entry){
			"header": func(b []byte, e *entry) { b[e.at-1] ^= 1 },
			"body":   func(b []byte, e *entry) { b[e.at] ^= 1 },
			"both":   func(b []byte, e *entry) { b[e.at-1], b[e.at] = 'x', 'x' },
		} {
			for lost := range records {
				what := fmt.Sprintf("%s: %s of record %d", name, i, lost)
				path, before := golden(t, name, func(b []byte) { damage(b, &records[lost]) })
				got := make(map[string]uint64)
				count := func(p *profile.Profile, into map[string]uint64) (n uint64) {
					for _, proc := range p.Processes {
						for _, th := range proc.Threads {
							for id, node := range th.Tree.Nodes() {
								if n += node.Self; id > 0 && node.Self > 0 {
									into[node.Key.Value().Function] += node.Self
								}
							}
						}
					}
					return n
				}
				p, err := Read(path).Query(t.Context(), Selection{From: began, To: began.Add(time.Hour)})
				if err != nil {
					t.Fatal(err)
				}
				sum := count(p, got)
				want, wantSum := make(map[string]uint64), uint64(0)
				for j, w := range windows {
					if j != lost {
						wantSum += count(w, want)
					}
				}
				if sum != wantSum {
					t.Errorf("%s: %d samples, want %d", what, sum, wantSum)
				}
				for function, n := range got {
					if function != lostName && n > want[function] {
						t.Errorf("%s: %s has %d samples, want at most %d", what, function, n, want[function])
					}
				}
				if i == "header" && got[lostName] > 0 || lost == 2 && got[lostName] > 0 {
					t.Errorf("%s: %d samples have no names", what, got[lostName])
				}
				if !strings.Contains(strings.Join(p.Comments, " "), profile.MissingPart+whyDamaged) {
					t.Errorf("%s: %q", what, p.Comments)
				}
				list, err := Read(path).Timeline(t.Context(), began, began.Add(time.Hour), "")
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range list {
					if s.Start.Equal(windows[2].Start) && name == "vmph3.segment" && s.Services[1].Service != "later" {
						t.Errorf("%s: %+v", what, s.Services)
					}
				}
				// The writer leaves it as it is, and goes on next to it.
				r := &rig{path: path, now: began.Add(time.Minute)}
				r.reopen(t, Options{})
				r.add(t, sinktest.Shop())
				if after := r.content(t, "00000000.0"); after != string(before) {
					t.Errorf("%s: %d of %d bytes stay", what, len(after), len(before))
				}
				r.Close()
			}
		}
	}
}

// A segment of another version is not read. Readers say that it is there, it is a part of the size,
// and it goes when it is too old.
func TestOtherVersion(t *testing.T) {
	other := append([]byte("vmph1\x00\r\n"), bytes.Repeat([]byte("what an earlier agent wrote"), 100)...)
	path, _ := golden(t, "vmph3.segment", nil)
	if err := os.WriteFile(filepath.Join(path, "00000000.0"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	want := Selection{From: began, To: began.Add(time.Hour)}
	const said = profile.MissingPart + `written by another version of the agent ("vmph1")`
	if _, err := Read(path).Query(t.Context(), want); err == nil || !strings.Contains(err.Error(), said) {
		t.Errorf("error %v, want %q", err, said)
	}
	r := &rig{path: path, now: began}
	r.reopen(t, Options{Keep: time.Hour})
	if n := r.Stats(); n.Size != int64(len(other)) || n.Unread[UnreadVersion] != uint64(n.Size) ||
		n.Failed[FailedOpen] != 0 {
		t.Errorf("%+v", n)
	}
	r.add(t, sinktest.Shop())
	r.Close()
	r.reopen(t, Options{Keep: time.Hour, Fine: time.Minute})
	gaps, err := Read(path).Gaps(t.Context(), began.Add(-time.Hour), began.Add(time.Hour))
	if err != nil || len(gaps) != 1 || !gaps[0].From.IsZero() || !gaps[0].To.Equal(began) {
		t.Errorf("gaps %v, %v", gaps, err)
	}
	r.addLong(t, sinktest.Shop(), 2*time.Hour)
	r.add(t, sinktest.Shop())
	if _, err := os.Stat(filepath.Join(path, "00000000.0")); err == nil ||
		r.Stats().Removed[RemovedAge] != uint64(len(other)) {
		t.Errorf("%v, %+v", err, r.Stats())
	}
}
