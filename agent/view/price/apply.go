package price

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// maxNamed bounds the label values that an error names.
const maxNamed = 5

// Apply returns the costs of a stored profile: its samples with the cost as their only value.
// Samples that cost nothing are left out. Costs are rounded so that their sum stays.
//
// It fails if the profile has none of the types that the model gives prices to, if a price is for
// another unit, or if a label has a value that is not in its table.
func (m *Model) Apply(p *pprof.Profile) (*pprof.Profile, error) {
	var factors []*factor
	var applied []string
	for i := range m.Prices {
		f, err := m.Prices[i].factor(p)
		if err != nil {
			return nil, fmt.Errorf("cost model %s: %w", m.Name, err)
		}
		if f != nil {
			factors = append(factors, f)
			applied = append(applied, f.describe(m.Unit))
		}
	}
	if len(factors) == 0 {
		return nil, fmt.Errorf("cost model %s has prices of %s, and the profile has %s: record what has a price, or "+
			"add a price to the model", m.Name, m.list(), typeList(p))
	}

	cost := m.Cost()
	result := p.Copy()
	result.SampleType = []*pprof.ValueType{cost.ValueType()}
	result.DefaultSampleType = result.SampleType[0].Type
	result.PeriodType, result.Period = cost.ValueType(), 1
	result.Sample = nil
	apart := stacks.Apart(p)
	sum, rounded := 0.0, int64(0) // in units of the resolution
	for _, sample := range p.Sample {
		if apart(sample) {
			continue
		}
		at := 0.0
		for _, f := range factors {
			of, err := f.cost(sample)
			if err != nil {
				return nil, fmt.Errorf("cost model %s: %w", m.Name, err)
			}
			at += of
		}
		sum += at / cost.Scale
		if sum >= math.MaxInt64 {
			return nil, fmt.Errorf("cost model %s: the costs exceed 63 bits: choose a coarser resolution, such as "+
				"micro", m.Name)
		}
		whole := int64(math.Round(sum)) - rounded // carries what rounding leaves
		rounded += whole
		if whole == 0 {
			continue
		}
		s := *sample
		s.Value = []int64{whole}
		result.Sample = append(result.Sample, &s)
	}
	for _, f := range factors {
		if err := f.unlisted(); err != nil {
			return nil, fmt.Errorf("cost model %s: %w", m.Name, err)
		}
	}
	result = result.Compact()
	result.Comments = append(slices.Clone(p.Comments), fmt.Sprintf("cost model %s %s: %s", m.Name, cost.Hash,
		strings.Join(applied, ", ")))
	if sum > 0 && rounded == 0 {
		result.Comments = append(result.Comments,
			fmt.Sprintf("all costs together are less than half of the smallest one, %v %s: choose a finer resolution",
				cost.Scale, m.Unit))
	}
	return result, nil
}

// Missing are the types that the model gives prices to and no profile has.
func (m *Model) Missing(profiles []*pprof.Profile) (types []string) {
	for _, price := range m.Prices {
		if !slices.ContainsFunc(profiles, func(p *pprof.Profile) bool { return column(p, price.Of) >= 0 }) {
			types = append(types, stored.Printable(price.Of))
		}
	}
	return types
}

// list names the types with a price.
func (m *Model) list() string {
	var names []string
	for _, p := range m.Prices {
		names = append(names, stored.Printable(p.Of))
	}
	return strings.Join(names, ", ")
}

func typeList(p *pprof.Profile) string {
	var names []string
	for _, t := range p.SampleType {
		names = append(names, stored.Printable(t.Type))
	}
	return strings.Join(names, ", ")
}

func column(p *pprof.Profile, sampleType string) int {
	return slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == sampleType })
}

// A factor is a price with the column of a profile that it is for.
type factor struct {
	*Price
	column int
	per    float64
	absent map[string]bool // values of the label that have no price, at most maxNamed
	more   bool            // there are others
}

// factor is nil if the profile has no values of the type.
func (p *Price) factor(of *pprof.Profile) (*factor, error) {
	at := column(of, p.Of)
	if at < 0 {
		return nil, nil
	}
	per, err := p.divisor(of.SampleType[at].Unit)
	if err != nil {
		return nil, err
	}
	return &factor{Price: p, column: at, per: per, absent: make(map[string]bool)}, nil
}

// cost is that of a sample, in the model's unit.
func (f *factor) cost(s *pprof.Sample) (float64, error) {
	value := s.Value[f.column]
	if value < 0 {
		return 0, errors.New("the profile has negative values, such as a difference of profiles: they have no cost")
	}
	if value == 0 {
		return 0, nil
	}
	if f.By == "" {
		return float64(value) * *f.Price.Price / f.per, nil
	}
	text, _ := stored.LabelText(s, f.By)
	price, listed := f.Table[text]
	if !listed && f.Other != nil {
		price, listed = *f.Other, true
	}
	if !listed {
		if len(f.absent) < maxNamed {
			f.absent[text] = true
		} else if !f.absent[text] {
			f.more = true
		}
	}
	return float64(value) * price / f.per, nil
}

// unlisted is an error if values of the label had no price.
func (f *factor) unlisted() error {
	if len(f.absent) == 0 {
		return nil
	}
	var names []string
	for _, text := range slices.Sorted(maps.Keys(f.absent)) {
		if text == "" {
			text = "samples without the label"
		}
		names = append(names, stored.Printable(text))
	}
	if f.more {
		names = append(names, "and others")
	}
	return fmt.Errorf("no price of %s by %s for %s: add them to the table, or add a price for all others (other)",
		stored.Printable(f.Of), stored.Printable(f.By), strings.Join(names, ", "))
}
