package stored

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// No label of the agent's own can be given by users.
func TestIsLabel(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "labels.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Label") || len(spec.Values) != 1 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		found++
		if name, err := strconv.Unquote(literal.Value); err != nil || !IsLabel(name) {
			t.Errorf("%s, %s, is not in the list", spec.Names[0].Name, literal.Value)
		}
		return true
	})
	if found != len(labels) {
		t.Errorf("%d labels, and %d in the list", found, len(labels))
	}
}
