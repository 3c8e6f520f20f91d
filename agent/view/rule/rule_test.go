package rule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
)

// row is a sample: its stack, innermost first, its value and its labels.
type row struct {
	stack  string
	value  int64
	labels map[string]string
}

// profileOf makes a profile of CPU time.
func profileOf(rows ...row) *pprof.Profile {
	t := &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"}
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}, t}, PeriodType: t, Period: 1}
	known := make(map[string]*pprof.Location)
	for _, r := range rows {
		s := &pprof.Sample{Value: []int64{1, r.value}, Label: make(map[string][]string),
			NumLabel: map[string][]int64{"pid": {7}}}
		for _, name := range strings.Fields(r.stack) {
			loc := known[name]
			if loc == nil {
				id := uint64(len(known) + 1)
				f := &pprof.Function{ID: id, Name: name, SystemName: name}
				loc = &pprof.Location{ID: id, Line: []pprof.Line{{Function: f}}}
				p.Function, p.Location = append(p.Function, f), append(p.Location, loc)
				known[name] = loc
			}
			s.Location = append(s.Location, loc)
		}
		for key, value := range r.labels {
			s.Label[key] = []string{value}
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

var shop = profileOf(
	row{"Json.write Api.handle Main.run", 100, map[string]string{"service": "shop-api", "thread": "http-1"}},
	row{"Db.query Api.handle Main.run", 300, map[string]string{"service": "shop-api", "thread": "http-2"}},
	row{"String.hash Json.read Batch.run", 500, map[string]string{"service": "shop-batch", "comm": "java"}},
	row{"memcpy", 100, map[string]string{"service": "nginx"}},
)

// Sums by hand.
func TestEvaluate(t *testing.T) {
	for text, want := range map[string]struct {
		groups map[string]float64
		all    float64
	}{
		`a: sum(cpu)`: {map[string]float64{"": 1000}, 1000},
		`a:sum( samples )where stack.anyMatches("^Json")`:                                                {map[string]float64{"": 2}, 4},
		`json: sum(cpu) where stack.anyMatches("^Json\\.")`:                                              {map[string]float64{"": 600}, 1000},
		`json: sum(cpu) where stack.anyMatches(r"^Json\.") && service != "shop-batch"`:                   {map[string]float64{"": 100}, 1000},
		`json: sum(cpu) where stack.exists(f, f.matches("^Json"))`:                                       {map[string]float64{"": 600}, 1000},
		`leaf: sum(cpu) where method.startsWith("Json")`:                                                 {map[string]float64{"": 100}, 1000},
		`team: sum(cpu) by service`:                                                                      {map[string]float64{"shop-api": 400, "shop-batch": 500, "nginx": 100}, 1000},
		`team: sum(cpu) by service.startsWith("shop") ? "shop" : "infra" where stack.anyMatches("[.]")`:  {map[string]float64{"shop": 900}, 1000},
		`team: share(cpu) where value > 100 by thread`:                                                   {map[string]float64{"http-2": 300, "": 500}, 1000},
		`words: sum(cpu) where thread == "a where b by \" c" || command == "java"`:                       {map[string]float64{"": 500}, 1000},
		`words: sum(cpu) where r"\" == "x"`:                                                              {map[string]float64{}, 1000},
		`labels: sum(cpu) where "comm" in labels && labels["comm"] == 'java' && pid == 7 && cause == ""`: {map[string]float64{"": 500}, 1000},
		`numbers: sum(cpu) by service + ":" + labels["pid"]`:                                             {map[string]float64{"shop-api:7": 400, "shop-batch:7": 500, "nginx:7": 100}, 1000},
		`numbers: sum(cpu) by service + ":" + string(pid)`:                                               {map[string]float64{"shop-api:7": 400, "shop-batch:7": 500, "nginx:7": 100}, 1000},
		`none: sum(cpu) where class == "x"`:                                                              {map[string]float64{}, 1000},
	} {
		r, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for range 2 { // what is remembered is the same
			sums, err := r.Evaluate(t.Context(), shop)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if !maps.Equal(sums.Groups, want.groups) || sums.All != want.all {
				t.Errorf("%s: %v of %v, want %v of %v", text, sums.Groups, sums.All, want.groups, want.all)
			}
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		`sum(cpu)`:                                 "write a rule as NAME: sum(TYPE)",
		`9: sum(cpu)`:                              "write a rule as",
		`a: mean(cpu)`:                             "write a rule as",
		`a: sum(cpu) when true`:                    "write a rule as",
		`a: sum(cpu) where`:                        "where needs an expression",
		`a: sum(cpu) by where true`:                "by needs an expression",
		`a: sum(cpu) where thread == "a`:           "a quote is not closed",
		`a: sum(cpu) where thread`:                 "is of type string: write an expression of type bool",
		`a: sum(cpu) by pid`:                       "is of type int: write an expression of type string",
		`a: sum(cpu) where team == "x"`:            "fields are stack, method, service",
		`a: sum(cpu) where stack.matches("a")`:     "write stack.anyMatches(PATTERN)",
		`a: sum(cpu) where thread.matches("(")`:    "(",
		`a: sum(cpu) where !stack.anyMatches("(")`: "missing closing )",
		`a: sum(cpu) where stack.exists(f, f == "x") || stack.anyMatches(r"a{1000}{1000}")`: "invalid nested repetition",
		`a: sum(cpu) where stack.exists(a, stack.exists(b, stack.exists(c, a + b == c)))`:   "steps for one sample",
		`a: sum(cpu) where ` + strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200): "recursion",
		`a: sum(cpu) where thread == "` + strings.Repeat("a", maxText) + `"`:                "size",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%.100s: %v, want a line with %q", text, err, want)
		}
	}
}

// Metrics omit calls whose number is unknown.
func TestUnmeasured(t *testing.T) {
	r, err := Parse("a: sum(cpu) by thread")
	if err != nil {
		t.Fatal(err)
	}
	p := profileOf(row{"f g", 10, map[string]string{"basis": "estimated"}},
		row{"h g", 5, map[string]string{"basis": "unmeasured"}})
	if sums, err := r.Evaluate(t.Context(), p); err != nil || sums.All != 10 {
		t.Errorf("%v: %+v", err, sums)
	}
}

// Expressions without a value, types that are not there, and the end of the time are errors of the window.
func TestEvaluateErrors(t *testing.T) {
	r, err := Parse(`a: sum(cpu) where labels["nothing"] == "x"`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Evaluate(t.Context(), shop); err == nil || !strings.Contains(err.Error(),
		`no such key: nothing in some samples: ask for it first, as in "tid" in labels`) {
		t.Errorf("%v", err)
	}
	if r, err = Parse(`a: sum(alloc_space)`); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Evaluate(t.Context(), shop); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if r, err = Parse(`a: sum(cpu) where stack.exists(a, a == "x")`); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Evaluate(ended, shop); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Names that are longer than an expression was estimated for cost that expression the window, not the agent its time.
func TestCostLimit(t *testing.T) {
	r, err := Parse(`a: sum(cpu) where stack.exists(a, a.matches("q"))`)
	if err != nil {
		t.Fatal(err)
	}
	var deep []string
	for i := range 15_000 {
		deep = append(deep, fmt.Sprintf("f%d%s", i%100, strings.Repeat("x", 900)))
	}
	if _, err := r.Evaluate(t.Context(), profileOf(row{strings.Join(deep, " "), 1, nil})); !errors.Is(err, ErrCost) {
		t.Errorf("%v", err)
	}
}

// The number of groups is bounded, and nothing is lost.
func TestGroups(t *testing.T) {
	var rows []row
	for i := range 2 * MaxGroups {
		rows = append(rows, row{"f", 1, map[string]string{"service": fmt.Sprint(i)}})
	}
	r, err := Parse(`a: sum(cpu) by service`)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := r.Evaluate(t.Context(), profileOf(rows...))
	if err != nil || len(sums.Groups) != MaxGroups+1 || sums.Groups[OtherGroups] != MaxGroups {
		t.Errorf("%v: %d groups, %v in others", err, len(sums.Groups), sums.Groups[OtherGroups])
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`json: sum(cpu) by service where stack.anyMatches("Json")`)
	f.Add(`x: share(wall) where r"\" == 'by' by thread`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := Parse(text); err == nil {
			_, _ = r.Evaluate(t.Context(), shop) // This may fail, but not panic.
		}
	})
}
