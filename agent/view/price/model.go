// Package price computes what the contexts of a stored profile cost, by a model that gives prices
// to its values: EUR for CPU time and allocated bytes, energy for CPU time, or cycles of another
// processor for executed bytecodes (cross-profiling: Moret, Binder and Villazón, PEPM 2009, section
// 5.2).
//
//	model, err := price.Read("cloud.yaml")
//	cost, err := model.Apply(p) // a profile with one sample type, cost:cloud:1a2b3c4d
//
// A price is linear: twice the value costs twice as much. What depends on more than one sample,
// such as the size of the method that a call returns to, cannot be expressed.
package price

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A Model gives prices to sample types.
type Model struct {
	Name       string  `yaml:"name"`       // letters, digits and _
	Unit       string  `yaml:"unit"`       // unit of the costs: EUR, kWh, cycles
	Resolution string  `yaml:"resolution"` // the smallest cost of one sample: one of resolutions, "" for nano
	About      string  `yaml:"about"`      // where the prices come from
	Prices     []Price `yaml:"prices"`
}

// A Price is what some values cost.
type Price struct {
	Of    string   `yaml:"of"`    // the sample type: cpu, alloc_space, calls
	Price *float64 `yaml:"price"` // in the model's unit; nil with a table
	Per   string   `yaml:"per"`   // h, GB, 1000: what the price is for; "" for one, of counts only
	// With By, prices differ by a label of the samples: Table has them by the label's value, and
	// Other is for all other values; without it these are an error.
	By    string             `yaml:"by"`
	Table map[string]float64 `yaml:"table"`
	Other *float64           `yaml:"other"`
}

// resolutions are the costs that the value 1 stands for.
var resolutions = map[string]float64{"": 1e-9, "one": 1, "milli": 1e-3, "micro": 1e-6, "nano": 1e-9, "pico": 1e-12}

const (
	maxFile   = 64 << 10 // bytes
	maxPrices = 64
	maxTable  = 1024
	maxName   = 32
	maxUnit   = 16
)

// Read reads a model from a YAML file.
func Read(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read cost model: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read cost model: %w", err)
	}
	m, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cost model %s: %w", path, err)
	}
	return m, nil
}

// Parse reads a model. Every key must be known and every number a price.
func Parse(text []byte) (*Model, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("larger than %d kB", maxFile>>10)
	}
	m := new(Model)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.SetStrict(true)
	if err := d.Decode(m); err != nil && err != io.EOF {
		return nil, explain(err)
	}
	if err := d.Decode(new(any)); err != io.EOF {
		return nil, errors.New("one file has one model: remove what follows ---")
	}
	return m, m.check()
}

// keys are those of a model and of a price.
var keys = map[string][]string{
	"Model": {"name", "unit", "resolution", "about", "prices"},
	"Price": {"of", "price", "per", "by", "table", "other"},
}

// unknownKey is what the decoder says of one.
const unknownKey = `^(line \d+): field (\S+) not found in type price\.(\w+)$`

// explain says which keys there are where one is unknown.
func explain(err error) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return err
	}
	unknown := regexp.MustCompile(unknownKey)
	var list []string
	for _, text := range typed.Errors {
		if match := unknown.FindStringSubmatch(text); match != nil {
			known := keys[match[3]]
			text = fmt.Sprintf("%s: unknown key %q: use %s", match[1], stored.Printable(match[2]),
				strings.Join(known, ", "))
			if near := stored.Near(known, match[2], 1); len(near) > 0 {
				text = fmt.Sprintf("%s: unknown key %q: did you mean %s?", match[1], stored.Printable(match[2]),
					near[0])
			}
		}
		list = append(list, strings.ReplaceAll(text, "already set in type price.", "is twice in "))
	}
	return errors.New(strings.Join(list, "; "))
}

// isName says that text is a name of letters, digits and _.
func isName(text string) bool {
	for _, r := range text {
		if r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)) {
			return false
		}
	}
	return text != "" && len(text) <= maxName
}

// isUnit says that text has no spaces, and nothing that does not print.
func isUnit(text string) bool {
	return text != "" && len(text) <= maxUnit && !strings.ContainsFunc(text,
		func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == utf8.RuneError })
}

func (m *Model) check() error {
	_, known := resolutions[m.Resolution]
	switch {
	case !isName(m.Name):
		return errors.New("name: give the model a name of 1 to 32 letters, digits and _, such as cloud")
	case !isUnit(m.Unit):
		return fmt.Errorf("unit: give the unit of the costs in at most %d bytes without spaces, such as EUR", maxUnit)
	case !known:
		return fmt.Errorf("resolution: %s is not one: use one, milli, micro, nano (the default) or pico",
			stored.Printable(m.Resolution))
	case len(m.Prices) == 0:
		return errors.New("prices: there are none: add one, such as {of: cpu, price: 0.04, per: h}")
	case len(m.Prices) > maxPrices:
		return fmt.Errorf("prices: at most %d", maxPrices)
	}
	var of []string
	for i := range m.Prices {
		if err := m.Prices[i].check(); err != nil {
			return fmt.Errorf("price %d: %w", i+1, err)
		}
		if slices.Contains(of, m.Prices[i].Of) {
			return fmt.Errorf("price %d: %s has a price already: add up its prices", i+1, m.Prices[i].Of)
		}
		of = append(of, m.Prices[i].Of)
	}
	return nil
}

func (p *Price) check() error {
	if p.Of == "" {
		return errors.New("of is missing: name a sample type, such as cpu or alloc_space")
	}
	if _, err := p.divisor(""); err != nil {
		return err
	}
	if p.By == "" {
		switch {
		case p.Price == nil:
			return fmt.Errorf("price is missing: what does 1 %s cost?", p.Per)
		case p.Table != nil || p.Other != nil:
			return errors.New("table and other need by: the label whose values the table lists, such as opcode")
		}
		return isPrice("price", *p.Price)
	}
	switch {
	case p.Price != nil:
		return errors.New("price and by exclude each other: put the price into other")
	case len(p.Table) == 0:
		return errors.New("by needs a table with a price for each value of the label")
	case len(p.Table) > maxTable:
		return fmt.Errorf("table has more than %d entries", maxTable)
	}
	for _, value := range slices.Sorted(maps.Keys(p.Table)) {
		if p.By == LabelOpcode && !opcodes()[value] {
			text := fmt.Sprintf("table: %s is not a bytecode", stored.Printable(value))
			if near := stored.Near(slices.Sorted(maps.Keys(opcodes())), value, 1); len(near) > 0 {
				text += ": did you mean " + near[0] + "?"
			}
			return errors.New(text)
		}
		if err := isPrice("table: "+stored.Printable(value), p.Table[value]); err != nil {
			return err
		}
	}
	if p.Other != nil {
		return isPrice("other", *p.Other)
	}
	return nil
}

func isPrice(key string, v float64) error {
	if !(v >= 0) || math.IsInf(v, 0) {
		return fmt.Errorf("%s: %v is not a price: use a number of at least 0", key, v)
	}
	return nil
}

// pers are what a price can be for, by the unit of the values.
var pers = map[string]map[string]float64{
	stored.UnitTime: {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "day": 24 * 3600e9},
	stored.UnitBytes: {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20,
		"GiB": 1 << 30, "TiB": 1 << 40},
	stored.UnitCount: {"": 1, "1": 1, "1000": 1e3, "1000000": 1e6, "1000000000": 1e9},
}

// divisor is how many values the price is for. Without a unit, it only says whether any has that
// per.
func (p *Price) divisor(unit string) (float64, error) {
	for u, of := range pers {
		if n, ok := of[p.Per]; ok && (unit == "" || u == unit) {
			return n, nil
		}
	}
	words := func(unit string) string {
		of := pers[unit]
		list := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return int(math.Copysign(1, of[a]-of[b])) })
		return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), ", ")
	}
	if _, known := pers[unit]; unit != "" && !known {
		return 0, fmt.Errorf("%s is in %s: prices are for times, bytes and counts", stored.Printable(p.Of),
			stored.Printable(unit))
	} else if known {
		return 0, fmt.Errorf("per: %s is in %s: use one of %s", stored.Printable(p.Of), unit, words(unit))
	}
	return 0, fmt.Errorf("per: %s is unknown: use %s for times, %s for bytes, or %s for counts",
		stored.Printable(p.Per),
		words(stored.UnitTime), words(stored.UnitBytes), words(stored.UnitCount))
}

// Cost is the sample type of the model's costs.
func (m *Model) Cost() stored.Cost {
	unabout := *m // what prices were for may be written better at any time
	unabout.About = ""
	text, err := json.Marshal(unabout) // maps are sorted
	if err != nil {
		panic(err) // finite numbers and text
	}
	return stored.Cost{Name: m.Name, Hash: fmt.Sprintf("%x", sha256.Sum256(text))[:8], Unit: m.Unit,
		Scale: resolutions[m.Resolution]}
}

// String writes the prices of a type: cpu 0.04 EUR/h.
func (p *Price) describe(unit string) string {
	per := p.Per
	if per != "" && per != "1" {
		per = "/" + per
	} else {
		per = ""
	}
	if p.By == "" {
		return fmt.Sprintf("%s %v %s%s", stored.Printable(p.Of), *p.Price, unit, per)
	}
	text := fmt.Sprintf("%s by %s (%s)%s", stored.Printable(p.Of), stored.Printable(p.By),
		stored.Plural(len(p.Table), "price"), per)
	if p.Other != nil {
		text += fmt.Sprintf(", other %v %s", *p.Other, unit)
	}
	return text
}
