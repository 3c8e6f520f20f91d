package stored

import (
	"strings"

	pprof "github.com/google/pprof/profile"
)

// A Cost is what a sample type counts whose values were computed with a cost model: see package
// price.
type Cost struct {
	Name  string  // name of the model
	Hash  string  // hash of what the model says, so that costs by different models of one name are different types
	Unit  string  // EUR
	Scale float64 // part of the unit that the value 1 stands for: 1, 1e-3, 1e-6, 1e-9 or 1e-12
}

// costScales are the prefixes of units: values are whole numbers, and a sample costs a small part
// of most units.
var costScales = []struct {
	prefix string
	scale  float64
}{{"m", 1e-3}, {"u", 1e-6}, {"n", 1e-9}, {"p", 1e-12}}

const costMark = "cost:"

// ValueType is how a profile has it: {cost:cloud:1a2b3c4d, "n EUR"}.
func (c Cost) ValueType() *pprof.ValueType {
	unit := c.Unit
	for _, s := range costScales {
		if s.scale == c.Scale {
			unit = s.prefix + " " + c.Unit
		}
	}
	return &pprof.ValueType{Type: costMark + c.Name + ":" + c.Hash, Unit: unit}
}

// CostOf reads a sample type back; ok is false if it is no cost.
func CostOf(t *pprof.ValueType) (c Cost, ok bool) {
	text, is := strings.CutPrefix(t.Type, costMark)
	name, hash, cut := strings.Cut(text, ":")
	if !is || !cut || name == "" || hash == "" {
		return Cost{}, false
	}
	c = Cost{Name: Printable(name), Hash: Printable(hash), Unit: Printable(t.Unit), Scale: 1}
	if prefix, unit, prefixed := strings.Cut(c.Unit, " "); prefixed {
		for _, s := range costScales {
			if s.prefix == prefix {
				c.Unit, c.Scale = unit, s.scale
			}
		}
	}
	return c, true
}

// String writes a value of the type for people, with three digits: 12.3 mEUR.
func (c Cost) String(value float64) string {
	value *= c.Scale
	prefix := ""
	for _, s := range costScales {
		if value == 0 || value >= 0.9995 {
			break
		}
		value *= 1000
		prefix = s.prefix
	}
	return ThreeDigits(value) + " " + prefix + c.Unit
}
