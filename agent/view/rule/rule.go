package rule

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// A Rule is a number for each window, or several by group.
type Rule struct {
	Name  string
	Share bool   // value is a share of the sum of all samples, from 0 to 1; otherwise it is a sum
	Of    string // the sample type: cpu
	by    *Expression
	where *Expression
}

// ruleHead is what a rule begins with; the rest are its clauses.
const (
	ruleHead = `^\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*:\s*(sum|share)\s*\(\s*([A-Za-z_]+)\s*\)(.*)$`
	ruleForm = "write a rule as NAME: sum(TYPE) [by TEXT] [where CONDITION], or with share(TYPE)"
)

// Parse reads a rule:
//
//	NAME: sum(TYPE) [by TEXT] [where CONDITION]
//	NAME: share(TYPE) [by TEXT] [where CONDITION]
//
// TEXT and CONDITION are expressions over one sample.
func Parse(text string) (*Rule, error) {
	parts := regexp.MustCompile(ruleHead).FindStringSubmatch(text)
	if parts == nil {
		return nil, fmt.Errorf("%s: %s", stored.Printable(text), ruleForm)
	}
	r := &Rule{Name: parts[1], Share: parts[2] == "share", Of: parts[3]}
	by, where, err := split(parts[4])
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", r.Name, err)
	}
	if by != "" {
		if r.by, err = NewText(by); err != nil {
			return nil, fmt.Errorf("rule %s: by %w", r.Name, err)
		}
	}
	if where != "" {
		if r.where, err = NewCondition(where); err != nil {
			return nil, fmt.Errorf("rule %s: where %w", r.Name, err)
		}
	}
	return r, nil
}

// split returns the expressions behind by and where. These words are found outside quotes only.
func split(text string) (by, where string, err error) {
	clauses := make(map[string]string)
	last, from := "", 0
	end := func(at int) error {
		body := strings.TrimSpace(text[from:at])
		switch {
		case last == "" && body != "":
			return fmt.Errorf("%s: %s", stored.Printable(body), ruleForm)
		case last != "" && body == "":
			return fmt.Errorf("%s needs an expression", last)
		case last != "":
			clauses[last] = body
		}
		return nil
	}
	for at := 0; at < len(text); {
		switch c := text[at]; {
		case c == '"' || c == '\'':
			raw := at > 0 && (text[at-1] == 'r' || text[at-1] == 'R') && (at == 1 || !isWord(text[at-2]))
			n := quoted(text[at:], raw)
			if n == 0 {
				return "", "", errors.New("a quote is not closed")
			}
			at += n
			continue
		case isWord(c):
			n := 1
			for at+n < len(text) && isWord(text[at+n]) {
				n++
			}
			word := text[at : at+n]
			// A word behind a dot is a field or a function.
			if _, known := clauses[word]; (word == "by" || word == "where") && !known && word != last &&
				(at == 0 || text[at-1] != '.') {
				if err := end(at); err != nil {
					return "", "", err
				}
				last, from = word, at+n
			}
			at += n
			continue
		}
		at++
	}
	if err := end(len(text)); err != nil {
		return "", "", err
	}
	return clauses["by"], clauses["where"], nil
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// quoted returns the length of the quoted text that text begins with, 0 if it does not end. A raw
// one has no escapes.
func quoted(text string, raw bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && !raw:
			i++
		case text[i] == text[0]:
			return i + 1
		}
	}
	return 0
}

// Sums are what a rule computed from one window.
type Sums struct {
	Unit   string             // unit of the type: nanoseconds, bytes, count
	Groups map[string]float64 // by the rule's text, "" without one; there may be none
	All    float64            // sum over all samples, whether they meet the condition or not
}

// MaxGroups bounds Sums.Groups. The samples of more are in OtherGroups.
const (
	MaxGroups   = 100
	OtherGroups = "(other)"
)

// ErrAbsent is the error for a profile without values of the rule's type.
var ErrAbsent = errors.New("the profile has no values of the type")

// Evaluate computes the sums of a window. It fails with ErrCost, with that of ctx if it ends
// before, or if an expression has no value, as labels["x"] of samples without x.
func (r *Rule) Evaluate(ctx context.Context, p *pprof.Profile) (*Sums, error) {
	column := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == r.Of })
	if column < 0 {
		return nil, fmt.Errorf("rule %s: %w %s", r.Name, ErrAbsent, r.Of)
	}
	sums := &Sums{Unit: p.SampleType[column].Unit, Groups: make(map[string]float64)}
	reader, apart := NewReader(p, column), stacks.Apart(p)
	for _, sample := range p.Sample {
		value := sample.Value[column]
		if value == 0 || apart(sample) {
			continue
		}
		sums.All += float64(value)
		reader.Set(sample)
		if r.where != nil {
			if yes, err := r.where.True(ctx, reader); err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.Name, err)
			} else if !yes {
				continue
			}
		}
		group := ""
		if r.by != nil {
			text, err := r.by.Text(ctx, reader)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.Name, err)
			}
			group = stored.Printable(text)
			if _, known := sums.Groups[group]; !known && len(sums.Groups) >= MaxGroups {
				group = OtherGroups
			}
		}
		sums.Groups[group] += float64(value)
	}
	return sums, ctx.Err()
}
