package sink

import "fmt"

// By is what two profiles are compared by.
type By uint8

const (
	ByMethod  By = iota // innermost methods; of calls, the methods that are called
	ByEdge              // the two innermost methods and the site of the call
	ByContext           // whole stacks
	ByClass             // of objects: of events
)

var byNames = [...]string{"method", "edge", "context", "class"}

// ParseBy reads the name of a By.
func ParseBy(name string) (By, error) {
	for by, n := range byNames {
		if n == name {
			return By(by), nil
		}
	}
	return 0, fmt.Errorf("cannot compare by %q: choose method, edge, context or class", name)
}

// String is the name, for one thing that is compared.
func (b By) String() string { return byNames[b] }
