// Package rule computes numbers from the samples of a profile by rules that users write:
//
//	r, err := rule.Parse(`json: sum(cpu) by service where stack.anyMatches("Json")`)
//	sums, err := r.Evaluate(ctx, p)
//
// Conditions are expressions of CEL (the Common Expression Language), which always end. What an
// expression may cost at most is checked when it is parsed, and again while it runs, because names
// in profiles are as long as the profiled programs like.
package rule

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// Bounds of an expression.
const (
	maxText    = 2000      // bytes of the expression
	maxNodes   = 1000      // nodes of its syntax tree, with what macros become
	maxDepth   = 30        // levels of the tree
	maxPattern = 500       // instructions of the program that a regular expression becomes
	maxCost    = 1_000_000 // cost of one sample, in CEL's unit, which is about a step
	// What costs are estimated for at the start. Names have at most stored.MaxName bytes.
	estimatedFrames = 500
	estimatedLabels = 30
	maxDigits       = 20 // digits of a number, with its sign
)

// Fields lists the variables of expressions.
var Fields = []string{"stack", "method", "service", "command", "thread", "runtime", "pid", "cause", "class", "labels",
	"value"}

// anyMatches is true if the name of any method on the stack matches a regular expression.
const anyMatches = "anyMatches"

// environment declares the variables. It is made when the first expression is parsed: an agent
// without rules does not pay for it.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.ParserExpressionSizeLimit(maxText), cel.ParserRecursionLimit(maxDepth), cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxPattern),
		cel.ASTValidators(cel.ValidateRegexLiterals()),
		cel.Function(anyMatches, cel.MemberOverload("list_string_any_matches",
			[]*cel.Type{cel.ListType(cel.StringType), cel.StringType}, cel.BoolType,
			cel.BinaryBinding(func(ref.Val, ref.Val) ref.Val { return types.NewErr("no patterns") }))),
	}
	for _, name := range Fields {
		of := cel.StringType
		switch name {
		case "stack":
			of = cel.ListType(cel.StringType)
		case "labels":
			of = cel.MapType(cel.StringType, cel.StringType)
		case "pid", "value":
			of = cel.IntType
		}
		options = append(options, cel.Variable(name, of))
	}
	return cel.NewEnv(options...)
})

// An Expression is a CEL expression over one sample. It is not safe for concurrent use.
type Expression struct {
	text     string
	program  cel.Program
	patterns *patterns
}

// NewCondition parses an expression that is true or false.
func NewCondition(text string) (*Expression, error) { return newExpression(text, cel.BoolType) }

// NewText parses an expression that is a text.
func NewText(text string) (*Expression, error) { return newExpression(text, cel.StringType) }

// String is the expression as it was written.
func (e *Expression) String() string { return e.text }

func newExpression(text string, of *cel.Type) (*Expression, error) {
	base, err := environment()
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	ast, issues := base.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, explain(text, err)
	}
	if !ast.OutputType().IsExactType(of) {
		return nil, fmt.Errorf("%s is of type %s: write an expression of type %s", text, ast.OutputType(), of)
	}
	estimate, err := base.EstimateCost(ast, sizes{})
	if err != nil {
		return nil, fmt.Errorf("estimate the cost of %s: %w", text, err)
	}
	if estimate.Max > maxCost {
		return nil, fmt.Errorf("%s may take %d steps for one sample, more than %d: search the stack once only, and "+
			"with shorter patterns", text, estimate.Max, maxCost)
	}
	e := &Expression{text: text, patterns: &patterns{compiled: make(map[string]*pattern)}}
	for _, call := range celast.MatchDescendants(celast.NavigateAST(ast.NativeRep()),
		celast.FunctionMatcher(anyMatches)) {
		for _, arg := range call.AsCall().Args() {
			if arg.Kind() != celast.LiteralKind {
				continue
			}
			if literal, ok := arg.AsLiteral().Value().(string); ok {
				if _, err := e.patterns.compile(literal); err != nil {
					return nil, fmt.Errorf("%s: %s", text, stored.Printable(err.Error()))
				}
			}
		}
	}
	e.program, err = base.Program(ast, cel.CostLimit(maxCost), cel.CostTracking(e.patterns),
		cel.InterruptCheckFrequency(100),
		cel.OptimizeRegex(interpreter.MatchesRegexOptimization), cel.CustomDecorator(e.patterns.decorate))
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", text, err)
	}
	return e, nil
}

// explain makes one line of CEL's errors, with what they do not say.
func explain(text string, err error) error {
	first, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "ERROR: <input>:"), "\n")
	switch {
	case strings.Contains(first, "undeclared reference"):
		first += ": fields are " + strings.Join(Fields, ", ")
	case strings.Contains(first, "'matches' applied to 'list(string)"):
		first += ": write stack.anyMatches(PATTERN)"
	}
	return fmt.Errorf("%s: %s", text, stored.Printable(first))
}

// sizes are what costs are estimated with.
type sizes struct{}

// EstimateSize implements checker.CostEstimator.
func (sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	most := uint64(stored.MaxName)
	switch path := node.Path(); {
	case len(path) == 1 && path[0] == "stack":
		most = estimatedFrames
	case len(path) == 1 && path[0] == "labels":
		most = estimatedLabels
	case len(path) == 0:
		return nil
	}
	return &checker.SizeEstimate{Min: 0, Max: most}
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(
	function, overload string, target *checker.AstNode, args []checker.AstNode,
) *checker.CallEstimate {
	switch {
	case overload == overloads.IntToString:
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 1, Max: 1},
			ResultSize: &checker.SizeEstimate{Min: 1, Max: maxDigits}}
	case function != anyMatches:
		return nil
	}
	// As for matches of one string, but for each frame.
	frame := uint64(stored.MaxName/10) * (maxText / 4 / 10)
	return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: 1, Max: estimatedFrames * frame / 10}}
}

// patterns are the regular expressions of anyMatches.
type patterns struct {
	compiled map[string]*pattern
}

// A pattern remembers which names match: there are far fewer of them than frames.
type pattern struct {
	*regexp.Regexp
	known map[string]bool
}

const (
	maxPatterns = 32      // in expressions that compute patterns, the first ones are remembered
	maxKnown    = 1 << 14 // names
)

// decorate replaces the call of anyMatches by one that remembers.
func (p *patterns) decorate(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || call.Function() != anyMatches {
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(),
		func(args ...ref.Val) ref.Val {
			names, ok := args[0].Value().([]string)
			text, isText := args[1].Value().(string)
			if !ok || !isText {
				return types.NewErr("anyMatches is for stack and a pattern")
			}
			match, err := p.compile(text)
			if err != nil {
				return types.WrapErr(err)
			}
			for _, name := range names {
				if match.matches(name) {
					return types.True
				}
			}
			return types.False
		}), nil
}

func (p *patterns) compile(text string) (*pattern, error) {
	match := p.compiled[text]
	if match == nil {
		if len(text) > maxText {
			return nil, errors.New("the pattern is too long")
		}
		compiled, err := regexp.Compile(text)
		if err != nil {
			return nil, err
		}
		match = &pattern{compiled, make(map[string]bool)}
		if len(p.compiled) < maxPatterns {
			p.compiled[text] = match
		}
	}
	return match, nil
}

func (p *pattern) matches(name string) bool {
	matches, known := p.known[name]
	if !known {
		if len(p.known) == maxKnown {
			clear(p.known)
		}
		matches = p.MatchString(name)
		p.known[name] = matches
	}
	return matches
}

// CallCost implements interpreter.ActualCostEstimator: a look-up for each frame.
func (*patterns) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if function != anyMatches {
		return nil
	}
	cost := uint64(1)
	if names, ok := args[0].Value().([]string); ok {
		cost += uint64(len(names))
	}
	return &cost
}

// A Reader evaluates expressions over the samples of one profile. It is not safe for concurrent
// use.
type Reader struct {
	names  *stacks.Names
	column int // index of the variable value in Sample.Value
	sample *pprof.Sample
	stack  []string
	list   ref.Val
	labels map[string]string
}

// NewReader returns a reader with the values in a column of the samples.
func NewReader(p *pprof.Profile, column int) *Reader {
	return &Reader{names: stacks.NewNames(p), column: column}
}

// Set chooses the sample.
func (r *Reader) Set(sample *pprof.Sample) { r.sample, r.list, r.labels = sample, nil, nil }

// ResolveName implements interpreter.Activation. What an expression does not use is not computed.
func (r *Reader) ResolveName(name string) (any, bool) {
	switch name {
	case "stack":
		if r.list == nil {
			r.stack = r.names.Append(r.stack[:0], r.sample)
			r.list = types.NewStringList(types.DefaultTypeAdapter, r.stack)
		}
		return r.list, true
	case "method":
		if r.list == nil {
			r.ResolveName("stack")
		}
		if len(r.stack) == 0 {
			return stored.Unnamed, true
		}
		return r.stack[0], true
	case "labels":
		if r.labels == nil {
			r.labels = make(map[string]string, len(r.sample.Label)+len(r.sample.NumLabel))
			for key := range r.sample.NumLabel {
				r.labels[key], _ = stored.LabelText(r.sample, key)
			}
			for key := range r.sample.Label {
				r.labels[key], _ = stored.LabelText(r.sample, key)
			}
		}
		return r.labels, true
	case "pid":
		if pids := r.sample.NumLabel[stored.LabelPID]; len(pids) > 0 {
			return pids[0], true
		}
		return int64(0), true
	case "value":
		return r.sample.Value[r.column], true
	case "service":
		return r.label(stored.LabelService), true
	case "command":
		return r.label(stored.LabelComm), true
	case "thread":
		return r.label(stored.LabelThread), true
	case "runtime":
		return r.label(stored.LabelRuntime), true
	case "cause":
		return r.label(stored.LabelCause), true
	case "class":
		return r.label(stored.LabelClass), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (*Reader) Parent() interpreter.Activation { return nil }

// label is "" if the sample has none.
func (r *Reader) label(key string) string {
	if values := r.sample.Label[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// ErrCost is the error of an expression that took too many steps.
var ErrCost = errors.New("too many steps for one sample")

// eval evaluates the expression for the reader's sample.
func (e *Expression) eval(ctx context.Context, r *Reader) (ref.Val, error) {
	value, _, err := e.program.ContextEval(ctx, r)
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case strings.Contains(err.Error(), "actual cost limit exceeded"):
			return nil, fmt.Errorf("%s: %w", e.text, ErrCost)
		case strings.Contains(err.Error(), "no such key"):
			return nil, fmt.Errorf(`%s: %w in some samples: ask for it first, as in "tid" in labels && labels["tid"] == "7"`,
				e.text, err)
		}
		return nil, fmt.Errorf("%s: %w", e.text, err)
	}
	return value, nil
}

// True evaluates a condition.
func (e *Expression) True(ctx context.Context, r *Reader) (bool, error) {
	value, err := e.eval(ctx, r)
	if err != nil {
		return false, err
	}
	return value == types.True, nil
}

// Text evaluates a text.
func (e *Expression) Text(ctx context.Context, r *Reader) (string, error) {
	value, err := e.eval(ctx, r)
	if err != nil {
		return "", err
	}
	text, _ := value.Value().(string)
	return text, nil
}
