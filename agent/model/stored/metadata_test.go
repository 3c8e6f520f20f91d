package stored

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// everything is metadata without a zero, as far as its fields go together.
func everything() *Metadata {
	counts := profile.Counts{
		Attempted: 9, Delivered: 8, Dropped: map[string]uint64{"ring_full": 1}, Folded: 5,
		Discarded: map[string]uint64{"malformed": 3},
		Idle:      4, Filtered: 2, Truncated: map[string]uint64{"frame pointer": 1}, Stale: 6, Unknown: 7,
	}
	events := &EventAccount{Kind: profile.Faults, Observed: 7, Mixed: true, Counts: profile.EventCounts{
		Attempted: 9, Delivered: 8, Dropped: map[string]uint64{"ring_full": 1}, Folded: 5,
		Discarded: map[string]uint64{"malformed": 3},
		Hits:      10, Unattached: 11, Cost: 12 * time.Microsecond,
	}}
	return &Metadata{
		Account: Account{counts, events},
		Totals: []Total{
			{"java", 1, 12.5, 0.5, 10 * time.Second, 2 * time.Second, 4, time.Second, 0.25},
			{Comm: "ruby", PID: 2, Sum: -1, Within: Bound(math.Inf(1))},
		},
		Extents: []Extent{{"java", 1, profile.Extent{Subject: "page-faults", What: "faults", Unit: "count",
			Source: "the kernel", There: 9, Observed: 7,
			Missed: []profile.Missed{{Amount: 2, Why: "the ring was full"}}}}},
		Basis:    []Note{{"java", []int64{1, 2, 3, 4, 5}, 7, "one event for each buffer"}},
		Sampling: []Sampling{{"cpu-clock", 10 * time.Millisecond}},
		Remarks:  []string{"vmprof-agent 0.1.0", `quotes " and <angles> & more`},
		Windows:  []Window{{2, time.Unix(1_700_000_000, 123_000_000).UTC(), 10 * time.Second, Account{counts, events}}},
		Calls: []CallTotal{{"page", profile.Inferred, profile.Rate{Hz: 100,
			Burst: profile.Burst{Stride: 7, Samples: 32}}, 1234.5, 2}},
		Contexts: []ProcessContexts{{"java", 1, 2, profile.Contexts{
			Mode: profile.ContextChain, Walked: math.MaxUint64, Linked: 2, Ambiguous: 3, Fitted: 4, Unplaced: 5,
			Nodes: math.MaxInt, Shared: 7, Methods: 8,
			ByDepth: [3]uint64{9, 10, 11}, BySite: [3]uint64{12, 13, 14},
			Check: &profile.ContextCheck{Samples: 15, Right: [3]uint64{16, 17, 18}},
		}}},
		Rounding: []Rounding{{"java", 1, "page", profile.Sampled, 3}, {Comm: "java", PID: 1}},
		Notes:    []Note{{"java", []int64{1}, 0, "has no debug information"}},
		Versions: []Version{
			{1, 812, 3, nil, 960, 0, 2 * time.Second, false, int(profile.VersionFreed), new(3 * time.Second),
				new(4 * time.Second), nil, nil, nil},
			{1, 1450, 4, new(17), 4096, 0, -time.Second, true, int(profile.VersionGivenUp), nil, new(41 * time.Second),
				[]int{1},
				[]profile.Trap{{Method: "app.Main.put", Reason: "class_check", Count: 2}}, new(1)},
		},
		Inlining: []Inlining{{PID: 7, Limits: profile.InlineLimits{FreqInlineSize: 325, InlineSmallCode: 2500,
			TypeProfileMajorReceiverPercent: 90},
			Callees: []Callee{{Method: 0, Bytecode: 412, Entering: time.Second}}}},
		Methods: []string{"app.Main.get()V", "app.Main.put"},
		Lanes: []Lanes{{"java", 1, "shop", 2, time.Unix(1_700_000_000, 123_000_000).UTC(), 20 * time.Millisecond, 500,
			[]string{"running", "socket"},
			[]Lane{{8, "exec-1", 3, "40a2(b70a30)()"}}, 5, 2}},
		Followed: "app.Main.put",
		LeftOut:  19,
	}
}

// What is stored is read back, by any tool's reader of pprof.
func TestMetadataRoundTrip(t *testing.T) {
	for name, m := range map[string]*Metadata{"everything": everything(), "nothing": {}} {
		p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}}}
		if err := m.Store(p); err != nil {
			t.Fatal(err)
		}
		var file strings.Builder
		if err := p.Write(&file); err != nil {
			t.Fatal(err)
		}
		p, err := pprof.Parse(strings.NewReader(file.String()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := MetadataOf(p)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %v: got\n%s\nwant\n%s", name, err, inJSON(got), inJSON(m))
		}
		if want := append(m.Sentences(), p.Comments[len(p.Comments)-1]); !slices.Equal(p.Comments, want) {
			t.Errorf("%s: comments %q", name, p.Comments)
		}
	}
}

// everything has no field that a round trip could lose unnoticed.
func TestEverything(t *testing.T) {
	v := reflect.ValueOf(everything()).Elem()
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is zero", v.Type().Field(i).Name)
		}
	}
}

func inJSON(v any) string {
	data, err := json.MarshalIndent(v, "", " ")
	return fmt.Sprintf("%s %v", data, err)
}

func TestMetadataOfOthers(t *testing.T) {
	object := mark + `{"format":1}`
	for _, test := range []struct {
		name     string
		comments []string
		want     string // part of the error
	}{
		{"no comments", nil, "none: another profiler"},
		{"sentences", everything().Sentences(), "none: another profiler"},
		{"merged", []string{object, "samples: 3", object}, "a tool merged several"},
		{"no JSON", []string{mark + "x"}, "malformed: invalid character"},
		{"cut", []string{object[:len(object)-1]}, "malformed: unexpected end"},
		{"no format", []string{mark + "{}"}, "unknown format 0"},
		{"a later format", []string{mark + `{"format":2}`}, "unknown format 2"},
		{"a list", []string{mark + "[]"}, "malformed"},
		{"a number out of range", []string{mark + `{"format":1,"totals":[{"sum":1e999}]}`}, "malformed"},
		{"an unknown kind", []string{mark + `{"format":1,"events":{"kind":"naps"}}`}, "unknown kind of events"},
		{"an unknown mode", []string{mark + `{"format":1,"contexts":[{"Mode":"guess"}]}`}, "unknown context mode"},
		{"an unknown basis", []string{mark + `{"format":1,"calls":[{"basis":"guessed"}]}`}, "unknown basis of calls"},
		{"many objects", []string{mark + `{"format":1,"totals":[` + strings.Repeat("{},", maxObjects) + `{}]}`},
			"too large"},
		{"many numbers", []string{mark + `{"format":1,"notes":[{"pids":[` + strings.Repeat("1,", maxFields) + `1]}]}`},
			"too large"},
		{"deep", []string{mark + strings.Repeat("[", 1<<20)}, "malformed"},
	} {
		m, err := MetadataOf(&pprof.Profile{Comments: test.comments})
		if m != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v, want an error with %q", test.name, m, err, test.want)
		}
		if errors.Is(err, ErrNone) != strings.HasPrefix(err.Error(), "none") {
			t.Errorf("%s: ErrNone is %v", test.name, err)
		}
	}
	if _, err := MetadataOf(&pprof.Profile{Comments: []string{"samples: 3", object}}); err != nil {
		t.Error(err)
	}
}

// Whatever a file says, strings are printable, numbers in their ranges and lists short.
func TestMetadataIsTidy(t *testing.T) {
	text := `{"format":1,"unknown":[{}],"left_out":-1,
		"samples":{"Dropped":{"a\u001b":1,"a\\x1b":2}},
		"totals":[{"comm":"a\u0000","within":null,"lost":7,"time":-1,"slices":-2}],
		"remarks":["a\nb"],
		"windows":[{"number":0},{"number":3,"duration":-4,"start":"2026-11-22T10:15:30+02:00"}],
		"contexts":[{"Mode":"partial","Nodes":-5,"window":-6}],
		"notes":[{"pids":[1,2,3,4,5,6,7],"more":1}]}`
	m, err := MetadataOf(&pprof.Profile{Comments: []string{mark + text}})
	if err != nil {
		t.Fatal(err)
	}
	want := &Metadata{
		Account:  Account{Samples: profile.Counts{Dropped: map[string]uint64{`a\x1b`: 3}}},
		Totals:   []Total{{Comm: `a\x00`, Within: Bound(math.Inf(1)), Lost: 1}},
		Remarks:  []string{`a\nb`},
		Windows:  []Window{{Number: 3, Start: time.Date(2026, 11, 22, 8, 15, 30, 0, time.UTC)}},
		Contexts: []ProcessContexts{{Contexts: profile.Contexts{Mode: profile.ContextPartial}}},
		Notes:    []Note{{PIDs: []int64{1, 2, 3, 4, 5}, More: 3}},
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got\n%s\nwant\n%s", inJSON(m), inJSON(want))
	}
	// What is too long is cut, and counted, before it is written.
	long := &Metadata{Contexts: make([]ProcessContexts, maxContexts+2), Remarks: make([]string, maxList+1)}
	p := new(pprof.Profile)
	if err := long.Store(p); err != nil {
		t.Fatal(err)
	}
	if m, err = MetadataOf(p); err != nil || len(m.Contexts) != maxContexts || len(m.Remarks) != maxList ||
		m.LeftOut != 3 {
		t.Errorf("%d contexts, %d remarks, %d left out, %v", len(m.Contexts), len(m.Remarks), m.LeftOut, err)
	}
}

// FuzzMetadata: what is read can be shown, and stored again as it is.
func FuzzMetadata(f *testing.F) {
	p := new(pprof.Profile)
	if err := everything().Store(p); err != nil {
		f.Fatal(err)
	}
	f.Add(strings.TrimPrefix(p.Comments[len(p.Comments)-1], mark))
	f.Add(`{"format":1,"totals":[{"within":null,"sum":-1e308}],"windows":[{"number":1,"start":"0001-01-01T00:00:00Z"}],"contexts":[{"Mode":"walk"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := MetadataOf(&pprof.Profile{Comments: []string{mark + text}})
		if (m == nil) == (err == nil) {
			t.Fatalf("%+v, %v", m, err)
		}
		if err != nil {
			return
		}
		for _, sentence := range slices.Concat(m.Sentences(), m.Remaining(), m.Observed()) {
			if strings.ContainsAny(sentence, "\x00\n\x1b\u202e") {
				t.Fatalf("%q would steer a terminal", sentence)
			}
		}
		p := new(pprof.Profile)
		if err := m.Store(p); err != nil {
			t.Fatal(err)
		}
		again, err := MetadataOf(p)
		if err != nil || inJSON(again) != inJSON(m) {
			t.Fatalf("%v: read as\n%s\nand that as\n%s", err, inJSON(m), inJSON(again))
		}
	})
}
