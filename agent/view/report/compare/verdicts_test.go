package compare_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit/audittest"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// A recorded is a recording that a test makes: so many windows of a second in which each path has a
// number of samples of a millisecond that is Poisson distributed.
type recorded struct {
	pid     int
	start   int // seconds
	windows int
	paths   map[string]float64 // samples in a window, by methods from outermost to innermost
	bursts  map[string]float64 // the same of each fifth window only
	seed    uint64
}

func (r recorded) profile(t *testing.T) *pprof.Profile {
	t.Helper()
	random := rand.New(rand.NewPCG(r.seed, 1))
	windows := sink.NewWindows(sink.Time)
	names := slices.Sorted(maps.Keys(r.paths))
	bursts := slices.Sorted(maps.Keys(r.bursts))
	for i := range r.windows {
		var paths []sinktest.Path
		add := func(names []string, mean map[string]float64) {
			for _, name := range names {
				if n := audittest.Poisson(random, mean[name]); n > 0 {
					paths = append(paths, sinktest.Path{Methods: name, Times: n, Weight: 1})
				}
			}
		}
		add(names, r.paths)
		if i%5 == 4 {
			add(bursts, r.bursts)
		}
		p := sinktest.OfPaths(paths...)
		p.Period, p.Processes[0].PID = time.Millisecond, r.pid
		p.Start, p.Duration = time.Unix(1_700_000_000+int64(r.start+i), 0), time.Second
		if err := windows.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return sinktest.MustStored(t, windows)
}

func (r recorded) named(t *testing.T, name string) compare.Named {
	return compare.Named{Name: name, Profile: r.profile(t)}
}

func audited(t *testing.T, a, b []compare.Named, opts *compare.AuditOptions) (string, audit.Verdict) {
	t.Helper()
	var out bytes.Buffer
	verdict, err := compare.Audit(&out, a, b, opts)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 79 && opts.Width > 0 {
			t.Errorf("line of %d columns: %s", n, line)
		}
	}
	return out.String(), verdict
}

// shop is what the program does before the change.
func shop() map[string]float64 {
	return map[string]float64{"main search match": 300, "main search": 100, "main render": 200,
		"main render escape": 80, "idle": 3}
}

// A regression appears as a new subtree: it is named by its root, and its leaves are not.
func TestAuditNewSubtree(t *testing.T) {
	slower := shop()
	slower["main search compile parse"] = 40
	slower["main search compile link hash"] = 30
	a := recorded{pid: 1, windows: 60, paths: shop(), seed: 1}.named(t, "a.pb.gz")
	b := recorded{pid: 2, start: 100, windows: 60, paths: slower, seed: 2}.named(t, "b.pb.gz")
	opts := &compare.AuditOptions{Options: compare.Options{N: 20, Width: 79}}
	got, verdict := audited(t, []compare.Named{a}, []compare.Named{b}, opts)
	if verdict != audit.More {
		t.Errorf("the verdict is %v", verdict)
	}
	sinktest.Golden(t, "newsubtree.audit.golden", got)
	for _, want := range []string{"B uses ", "more CPU than A", "new: compile under search, 0 → ", "60 + 60 windows",
		"one process per side"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, not := range []string{"parse", "hash", "link"} {
		if strings.Contains(got, not) {
			t.Errorf("%q is shown apart from its root in\n%s", not, got)
		}
	}
	// The other way round it is gone.
	got, verdict = audited(t, []compare.Named{b}, []compare.Named{a}, opts)
	if verdict != audit.Less || !strings.Contains(got, "gone: compile under search, ") {
		t.Errorf("%v\n%s", verdict, got)
	}
}

// A new subtree is also named where a stub of the VM leads to it, and where its root is a leaf
// [inlined in M].
func TestAuditNewSubtreeBehindStub(t *testing.T) {
	slower := shop()
	slower["main search stub compile parse"] = 40
	slower["main render [inlined"] = 30
	slower["main render escape [stub"] = 30
	a := recorded{pid: 1, windows: 60, paths: shop(), seed: 1}.named(t, "a.pb.gz")
	b := recorded{pid: 2, start: 100, windows: 60, paths: slower, seed: 2}.named(t, "b.pb.gz")
	for _, f := range b.Profile.Function {
		switch f.Name { // a path has no blanks
		case "[inlined":
			f.Name = "[inlined in render]"
		case "[stub":
			f.Name = "[stub: libmCos]"
		}
	}
	for _, l := range b.Profile.Location {
		if name := l.Line[0].Function.Name; name == "stub" || name == "[stub: libmCos]" {
			l.Mapping = &pprof.Mapping{ID: uint64(len(b.Profile.Mapping) + 1), File: stored.MappingStub}
			b.Profile.Mapping = append(b.Profile.Mapping, l.Mapping)
		}
	}
	got, _ := audited(t, []compare.Named{a}, []compare.Named{b}, &compare.AuditOptions{Options: compare.Options{N: 20}})
	for _, want := range []string{"new: compile under search, 0 → ", "new: [inlined in render] under render, 0 → ",
		"new: [stub: libmCos] under escape, 0 → "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestAuditMethods(t *testing.T) {
	slower := shop()
	slower["main search match"] *= 1.2
	a := recorded{pid: 1, windows: 60, paths: shop(), seed: 3}.named(t, "a.pb.gz")
	b := recorded{pid: 2, windows: 60, paths: slower, seed: 4}.named(t, "b.pb.gz")
	for _, test := range []struct {
		opts compare.AuditOptions
		want []string
		not  []string
	}{
		{compare.AuditOptions{}, []string{"B uses ", " slower", "render", "undecided"}, []string{"smaller"}},
		{compare.AuditOptions{Options: compare.Options{N: 5, Width: 79}, Per: per(t, "6000")},
			[]string{"% slower than A: ", "ms of CPU per unit", "99 % confidence", "slower  match"},
			[]string{"slower  escape", "per second"}},
		// Callers through which the change passes are not listed.
		{compare.AuditOptions{Options: compare.Options{N: 5, Width: 79, By: compare.ByTotal}}, []string{"  match"},
			[]string{"  main", "  search"}},
		{compare.AuditOptions{Options: compare.Options{N: 5, Width: 79, By: compare.ByEdge}},
			[]string{"search -> match"}, []string{"main -> search"}},
		{compare.AuditOptions{Options: compare.Options{N: 5, Width: 79, By: compare.ByContext}},
			[]string{"main > search > match"}, []string{"main > search\n"}},
		{compare.AuditOptions{Alpha: 0.2, Least: 50}, []string{"80 % confidence", "within 50 %"}, []string{"  more"}},
		{compare.AuditOptions{Options: compare.Options{SampleType: "samples"}}, []string{"B uses "}, nil},
	} {
		if test.opts.N == 0 && test.opts.Alpha == 0 && test.opts.SampleType == "" {
			test.want[1] = " more"
		}
		got, _ := audited(t, []compare.Named{a}, []compare.Named{b}, &test.opts)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: no %q in\n%s", test.opts, want, got)
			}
		}
		for _, not := range test.not {
			if strings.Contains(got, not) {
				t.Errorf("%+v: %q in\n%s", test.opts, not, got)
			}
		}
	}
}

func per(t *testing.T, text string) compare.Per {
	t.Helper()
	p, err := compare.ParsePer(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Of all services on a machine, the slower one is named, and the others are not.
func TestAuditServices(t *testing.T) {
	machine := func(name string, seed uint64, search float64) compare.Named {
		n := recorded{windows: 60, paths: map[string]float64{"search": search, "render": 300, "sshd": 50},
			seed: seed}.named(t, name)
		for _, s := range n.Profile.Sample {
			if method := s.Location[0].Line[0].Function.Name; method == "sshd" {
				s.Label[stored.LabelComm] = []string{method}
			} else {
				s.Label[stored.LabelService] = []string{method + ".service"}
			}
		}
		return n
	}
	a, b := machine("a.pb.gz", 5, 300), machine("b.pb.gz", 6, 360)
	got, _ := audited(t, []compare.Named{a}, []compare.Named{b},
		&compare.AuditOptions{Options: compare.Options{N: 5, Width: 79, By: compare.ByService}})
	for _, want := range []string{"more  search.service", "service (ms of CPU per second)", "2 services undecided"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// A program against itself has no differences, whatever its methods are.
func TestAuditSame(t *testing.T) {
	for seed := range uint64(5) {
		a := recorded{pid: 1, windows: 60, paths: shop(), seed: 10 + seed}.named(t, "a.pb.gz")
		b := recorded{pid: 2, windows: 60, paths: shop(), seed: 20 + seed}.named(t, "b.pb.gz")
		got, verdict := audited(t, []compare.Named{a}, []compare.Named{b},
			&compare.AuditOptions{Options: compare.Options{N: 20, Width: 79}})
		if verdict == audit.More || verdict == audit.Less || !strings.Contains(got, "methods undecided") {
			t.Errorf("%v\n%s", verdict, got)
		}
	}
}

// Files of one process are its windows; files of several are processes.
func TestAuditRuns(t *testing.T) {
	var one, several [2][]compare.Named
	for side := range one {
		for i := range 30 {
			r := recorded{pid: 7, start: 10 * i, windows: 1, paths: shop(), seed: uint64(100*side + i)}
			one[side] = append(one[side], r.named(t, fmt.Sprint(i)))
		}
		for i := range 4 {
			r := recorded{pid: 100*side + i + 1, windows: 5, paths: shop(), seed: uint64(1000*side + i)}
			several[side] = append(several[side], r.named(t, fmt.Sprint(i)))
		}
	}
	opts := &compare.AuditOptions{Options: compare.Options{N: 20, Width: 79}}
	if got, _ := audited(t, one[0], one[1], opts); !strings.Contains(got, "30 + 30 windows") ||
		!strings.Contains(got, "one process per side") {
		t.Errorf("of one process:\n%s", got)
	}
	if got, _ := audited(t, several[0], several[1], opts); !strings.Contains(got, "4 + 4 processes") ||
		strings.Contains(got, "one process per side") {
		t.Errorf("of several processes:\n%s", got)
	}
	if got, _ := audited(t, several[0], one[1], opts); !strings.Contains(got, "one side has only one process") {
		t.Errorf("of several and one:\n%s", got)
	}
	if got, verdict := audited(t, one[0][:1], one[1][:1], opts); verdict != audit.Undecided ||
		!strings.Contains(got, "too few windows for an interval: record at least 20 a side, with --window=1") {
		t.Errorf("of a window:\n%s", got)
	}
}

// Allocations, locks and calls are compared like CPU time.
func TestAuditKinds(t *testing.T) {
	for _, test := range []struct {
		p    *profile.Profile
		opts compare.AuditOptions
		want string
	}{
		{sinktest.Only(profile.Allocations), compare.AuditOptions{}, "B allocates as much memory as A"},
		{sinktest.Only(profile.Allocations), compare.AuditOptions{Options: compare.Options{By: compare.ByClass}},
			"B allocates as much memory as A"},
		{sinktest.Only(profile.Locks), compare.AuditOptions{}, "B waits as long for locks as A"},
		{figure1(96, 3, 1), compare.AuditOptions{Options: compare.Options{By: compare.ByEdge}},
			"B makes as many calls as A"},
	} {
		var side []compare.Named
		for i := range 25 {
			p := sinktest.MustPprof(t, test.p)
			p.TimeNanos, p.DurationNanos = int64(i)*2e9, 1e9
			side = append(side, compare.Named{Name: fmt.Sprint(i), Profile: p})
		}
		got, verdict := audited(t, side, side, &test.opts)
		if verdict != audit.Same || !strings.Contains(got, test.want) {
			t.Errorf("%v, no %q in\n%s", verdict, test.want, got)
		}
	}
}

// The calls of a method are the unit if their number is known, with its interval; and not if it is
// not.
func TestAuditPerCalls(t *testing.T) {
	both := func(basis profile.Basis, calls float64) *pprof.Profile {
		p := sinktest.OfPaths(sinktest.Path{Methods: "main search", Times: 400, Weight: 1})
		p.Period, p.Duration = time.Millisecond, time.Second
		g := sinktest.CallGraph(sinktest.Called{Caller: sinktest.JavaMethod("Main.main()V"),
			Callee: sinktest.JavaMethod("Shop.search()V"), Weight: calls})
		c := &profile.Calls{Engine: "hotspot", Basis: basis, Graph: g}
		if basis == profile.Estimated {
			c.Intervals = sinktest.Within(g, 1.5)
		}
		p.Processes[0].Calls = []*profile.Calls{c}
		return sinktest.MustPprof(t, p)
	}
	side := func(basis profile.Basis, calls float64) (side []compare.Named) {
		for i := range 25 {
			p := both(basis, calls)
			p.TimeNanos, p.DurationNanos = int64(i)*2e9, 1e9
			side = append(side, compare.Named{Name: fmt.Sprint(i), Profile: p})
		}
		return side
	}
	opts := &compare.AuditOptions{Per: per(t, "calls:Shop.search")}
	got, verdict := audited(t, side(profile.Counted, 1000), side(profile.Counted, 800), opts)
	if verdict != audit.More || !strings.Contains(got, "B is 25 % slower than A: ") ||
		!strings.Contains(got, "per call of Shop.search") {
		t.Errorf("%v\n%s", verdict, got)
	}
	if got, verdict := audited(t, side(profile.Estimated, 1000), side(profile.Estimated, 800),
		opts); verdict != audit.Undecided {
		t.Errorf("of estimated calls: %v\n%s", verdict, got)
	}
	for _, test := range []struct {
		a    []compare.Named
		per  string
		want string
	}{
		{side(profile.Sampled, 1000), "calls:Shop.search",
			"are sampled, which is not their number: give that with --per=N"},
		{side(profile.Counted, 1000), "calls:Shop.find", "has no calls of Shop.find"},
		{[]compare.Named{recorded{windows: 2, paths: shop()}.named(t, "a")}, "calls:Shop.find",
			"has no calls, so --per=calls does not apply"},
	} {
		if _, err := compare.Audit(new(bytes.Buffer), test.a, side(profile.Counted, 1000),
			&compare.AuditOptions{Per: per(t, test.per)}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Audit = %v, want an error with %q", err, test.want)
		}
	}
}

func TestAuditErrors(t *testing.T) {
	a := recorded{windows: 25, paths: shop()}.named(t, "a")
	unknown := recorded{windows: 25, paths: shop()}.named(t, "b")
	unknown.Profile.Comments, unknown.Profile.DurationNanos = nil, 0
	for _, test := range []struct {
		a, b []compare.Named
		opts compare.AuditOptions
		want string
	}{
		{[]compare.Named{a}, nil, compare.AuditOptions{}, "both sides need a recording"},
		{[]compare.Named{a}, []compare.Named{unknown}, compare.AuditOptions{},
			"b does not say how long it took: give the number of units with --per=N"},
		{[]compare.Named{a}, []compare.Named{{Name: "c", Profile: sinktest.MustPprof(t, figure1(1, 1, 1))}},
			compare.AuditOptions{}, "record both in the same way"},
		{[]compare.Named{a}, []compare.Named{a}, compare.AuditOptions{Options: compare.Options{By: compare.ByClass}},
			"a has no events of objects, only values of type cpu: --by=class needs allocations (record -e alloc)"},
		{[]compare.Named{a}, []compare.Named{a}, compare.AuditOptions{Options: compare.Options{SampleType: "calls"}},
			"a has no values of type calls"},
	} {
		var out bytes.Buffer
		if _, err := compare.Audit(&out, test.a, test.b, &test.opts); err == nil ||
			!strings.Contains(err.Error(), test.want) || out.Len() > 0 {
			t.Errorf("Audit = %v with %d bytes written, want an error with %q", err, out.Len(), test.want)
		}
	}
	for _, text := range []string{"", "x", "0", "-1", "1:", "1:2:3", "NaN", "inf", "calls:"} {
		if p, err := compare.ParsePer(text); err == nil {
			t.Errorf("ParsePer(%q) = %v", text, p)
		}
	}
}

// FuzzAudit: what was read is compared or refused, and no profile differs from itself.
func FuzzAudit(f *testing.F) {
	f.Add([]byte{}, "seconds", uint8(0))
	for _, p := range []*profile.Profile{sinktest.ShopBoth(), sinktest.Only(profile.Locks), figure1(96, 3, 1)} {
		stored, err := sink.Pprof(p, sink.ContentOf(p))
		if err != nil {
			f.Fatal(err)
		}
		for by := range uint8(compare.ByService + 1) {
			var data bytes.Buffer
			if err := stored.WriteUncompressed(&data); err != nil {
				f.Fatal(err)
			}
			f.Add(data.Bytes(), "calls:Main.M", by)
			f.Add(data.Bytes(), "10:20", by)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, unit string, by uint8) {
		per, err := compare.ParsePer(unit)
		if err != nil || by > uint8(compare.ByService) || len(data) > 1<<16 {
			return
		}
		p, err := input.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var side []compare.Named
		for range 3 {
			side = append(side, compare.Named{Name: "a", Profile: p})
		}
		var out bytes.Buffer
		opts := &compare.AuditOptions{Options: compare.Options{By: compare.By(by)}, Per: per}
		verdict, err := compare.Audit(&out, side, side, opts)
		if (err == nil) == (out.Len() == 0) {
			t.Fatalf("%d bytes and the error %v", out.Len(), err)
		}
		if (verdict == audit.More || verdict == audit.Less) && !strings.Contains(unit, ":") {
			t.Fatalf("a profile differs from itself:\n%s", &out)
		}
	})
}

// A recording that is compared with itself, or with a copy, is named as what it is, whatever the
// statistics say.
func TestAuditSameRecording(t *testing.T) {
	a := recorded{pid: 1, windows: 60, paths: shop(), seed: 1}
	one, copied := a.named(t, "a.pb.gz"), a.named(t, "copy.pb.gz")
	other := recorded{pid: 1, windows: 60, paths: shop(), seed: 2}.named(t, "b.pb.gz")
	opts := &compare.AuditOptions{Options: compare.Options{N: 20, Width: 79}}
	const same = "A and B are the same recording"
	got, _ := audited(t, []compare.Named{one}, []compare.Named{copied}, opts)
	if !strings.Contains(got, same) || strings.Contains(got, "too near") {
		t.Errorf("a recording and its copy:\n%s", got)
	}
	if got, _ := audited(t, []compare.Named{one, other}, []compare.Named{other, copied}, opts); !strings.Contains(got,
		same) {
		t.Errorf("two recordings in another order:\n%s", got)
	}
	for _, b := range [][]compare.Named{{other}, {one, other}} {
		if got, _ := audited(t, []compare.Named{one}, b, opts); strings.Contains(got, same) {
			t.Errorf("different recordings:\n%s", got)
		}
	}
}

// A method that costs three times as much, but in bursts, is an estimate with an interval, and it
// is said how long to record.
func TestAuditEstimates(t *testing.T) {
	a := recorded{pid: 1, windows: 25, paths: shop(), bursts: map[string]float64{"main search rank": 80},
		seed: 1}.named(t, "a.pb.gz")
	b := recorded{pid: 2, windows: 25, paths: shop(), bursts: map[string]float64{"main search rank": 250},
		seed: 2}.named(t, "b.pb.gz")
	opts := &compare.AuditOptions{Options: compare.Options{N: 20, Width: 79}}
	got, _ := audited(t, []compare.Named{a}, []compare.Named{b}, opts)
	flat := strings.Join(strings.Fields(got), " ")
	estimate := regexp.MustCompile(`No difference of a method is certain yet\. .* rank: 1[0-9.]+ → [45][0-9.]+ ms of CPU per second ` +
		`\(×[23][0-9.]*, 99 % interval ×0?[0-9.]* to ×[0-9.]+\), undecided: recording about [0-9]+ (s|minutes) a side would decide`)
	if !estimate.MatchString(flat) || !strings.Contains(flat, "methods undecided") {
		t.Errorf("no estimate in\n%s", got)
	}
	if got, _ = audited(t, []compare.Named{a}, []compare.Named{a}, opts); strings.Contains(got, "certain yet") {
		t.Errorf("estimates of a recording against itself:\n%s", got)
	}
}

// The page has the verdicts of the text: a difference that the text calls undecided is not sure
// there.
func TestMethodVerdicts(t *testing.T) {
	slower := shop()
	slower["main search match"] *= 1.5
	a := recorded{pid: 1, windows: 30, paths: shop(), bursts: map[string]float64{"main render rank": 80},
		seed: 1}.named(t, "a.pb.gz")
	b := recorded{pid: 2, windows: 30, paths: slower, bursts: map[string]float64{"main render rank": 250},
		seed: 2}.named(t, "b.pb.gz")
	for by, want := range map[compare.By]map[string]string{
		compare.ByMethod: {"match": "more", "rank": "undecided", "main": ""},
		compare.ByTotal:  {"match": "more", "rank": "undecided", "search": "more"},
	} {
		got, err := compare.MethodVerdicts([]compare.Named{a}, []compare.Named{b}, compare.AuditOptions{}, by)
		if err != nil {
			t.Fatal(err)
		}
		for method, verdict := range want {
			if got[method] != verdict {
				t.Errorf("by %v, %s is %q, want %q", by, method, got[method], verdict)
			}
		}
	}
}

// Where sites were observed in step with something, how they differ is not known, whatever windows
// say.
func TestAuditInStep(t *testing.T) {
	slower := shop()
	slower["main search match"] *= 1.5
	a, b := recorded{pid: 1, windows: 30, paths: shop(), seed: 1}.named(t, "a.pb.gz"),
		recorded{pid: 2, windows: 30, paths: slower, seed: 2}.named(t, "b.pb.gz")
	m, err := stored.MetadataOf(b.Profile)
	if err != nil {
		t.Fatal(err)
	}
	m.Basis = append(m.Basis, stored.Note{Text: profile.OneSite})
	if err := m.Store(b.Profile); err != nil {
		t.Fatal(err)
	}
	text, verdict := audited(t, []compare.Named{a}, []compare.Named{b},
		&compare.AuditOptions{Options: compare.Options{N: 10, Width: 79}})
	if verdict != audit.More || !strings.Contains(text, "only the total can differ") ||
		!strings.Contains(text, "undecided") || strings.Contains(text, "slower") && strings.Contains(text, "match") {
		t.Errorf("%v:\n%s", verdict, text)
	}
	got, err := compare.MethodVerdicts([]compare.Named{a}, []compare.Named{b}, compare.AuditOptions{}, compare.ByMethod)
	if err != nil || got["match"] != "undecided" {
		t.Errorf("the page has %v, %v", got, err)
	}
}
