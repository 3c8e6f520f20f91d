package program

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A Series is one number that the program reported.
type Series struct {
	Name    string // without the prefix that it is exposed with
	Labels  map[string]string
	Counter bool // the sum of all windows; otherwise it is of the last one
	Value   float64
	key     string // name and labels
}

const (
	// MaxSeries bounds the series of all parts together.
	MaxSeries   = 1000
	maxLabels   = 8
	maxLabelLen = 200 // bytes of a value
	maxNameLen  = 100
)

// parse reads metrics in the text format of Prometheus.
func parse(text []byte) (list []Series, err error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the output is not in Prometheus' text format: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		of := families[name]
		counter := of.GetType() == dto.MetricType_COUNTER
		if !counter && of.GetType() != dto.MetricType_GAUGE && of.GetType() != dto.MetricType_UNTYPED {
			return nil, fmt.Errorf("%s is a %s: use gauges, which are of the last window, and counters, which are "+
				"added up", name, strings.ToLower(of.GetType().String()))
		}
		if len(name) > maxNameLen {
			return nil, fmt.Errorf("a name has more than %d bytes", maxNameLen)
		}
		for _, m := range of.Metric {
			s := Series{Name: name, Labels: make(map[string]string), Counter: counter, Value: m.GetGauge().GetValue() +
				m.GetUntyped().GetValue() + m.GetCounter().GetValue()}
			for _, l := range m.Label {
				if len(l.GetValue()) > maxLabelLen || len(l.GetName()) > maxNameLen {
					return nil, fmt.Errorf("%s: label %s has more than %d bytes", name, l.GetName(), maxLabelLen)
				}
				if strings.HasPrefix(l.GetName(), "__") || stored.Printable(l.GetValue()) != l.GetValue() {
					return nil, fmt.Errorf("%s: label %s begins with __ or has characters that do not print", name,
						stored.Printable(l.GetName()))
				}
				s.Labels[l.GetName()] = l.GetValue()
			}
			switch {
			case len(m.Label) > maxLabels:
				return nil, fmt.Errorf("%s has more than %d labels", name, maxLabels)
			case len(s.Labels) < len(m.Label):
				return nil, fmt.Errorf("%s has a label twice", name)
			case math.IsNaN(s.Value) || math.IsInf(s.Value, 0) || counter && s.Value < 0:
				return nil, fmt.Errorf("%s: %v is not a value of a window", name, s.Value)
			}
			s.key = s.keyOf()
			if list = append(list, s); len(list) > MaxSeries {
				return nil, fmt.Errorf("more than %d series", MaxSeries)
			}
		}
	}
	return list, nil
}

func (s *Series) keyOf() string {
	var key strings.Builder
	key.WriteString(s.Name)
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		fmt.Fprintf(&key, "\x00%s\x00%s", name, s.Labels[name])
	}
	return key.String()
}

// series are those of all parts: gauges of the last window of each, and counters.
type series struct {
	gauges   map[string]map[string]Series // by part and key
	counters map[string]Series
}

func newSeries() series {
	return series{gauges: make(map[string]map[string]Series), counters: make(map[string]Series)}
}

// add adds what the program said of a part. All of it is refused if a name was of the other type
// before, if a series is there twice, or if there are too many series.
func (k *series) add(part string, list []Series) error {
	types := k.types(part)
	gauges := make(map[string]Series)
	added := make(map[string]Series)
	for _, s := range list {
		if counter, known := types[s.Name]; known && counter != s.Counter {
			return fmt.Errorf("%s was of another type before", s.Name)
		}
		to := gauges
		if s.Counter {
			to = added
		}
		if _, twice := to[s.key]; twice {
			return fmt.Errorf("%s appears twice with the same labels", s.Name)
		}
		to[s.key] = s
	}
	total := len(gauges) + len(k.counters)
	for key := range added {
		if _, known := k.counters[key]; !known {
			total++
		}
	}
	for other, of := range k.gauges {
		if other == part {
			continue
		}
		total += len(of)
		for key := range gauges {
			if _, twice := of[key]; twice {
				return fmt.Errorf("%s is reported for two kinds of events: add a label, such as the kind (VMPROF_KIND)",
					gauges[key].Name)
			}
		}
	}
	if total > MaxSeries {
		return fmt.Errorf("more than %d series, with counters of earlier windows", MaxSeries)
	}
	k.gauges[part] = gauges
	for key, s := range added {
		s.Value += k.counters[key].Value
		k.counters[key] = s
	}
	return nil
}

// types says of each name whether it is a counter. The gauges of a part are not in it: they are
// about to be replaced.
func (k *series) types(part string) map[string]bool {
	types := make(map[string]bool)
	for _, s := range k.counters {
		types[s.Name] = true
	}
	for other, of := range k.gauges {
		if other == part {
			continue
		}
		for _, s := range of {
			types[s.Name] = false
		}
	}
	return types
}

// all lists the series by name.
func (k *series) all() []Series {
	list := slices.Collect(maps.Values(k.counters))
	for _, of := range k.gauges {
		list = slices.AppendSeq(list, maps.Values(of))
	}
	slices.SortFunc(list, func(a, b Series) int { return strings.Compare(a.key, b.key) })
	return list
}
