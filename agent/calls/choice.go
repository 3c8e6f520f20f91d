package calls

import "fmt"

// Auto lets the agent choose engines.
const Auto = "auto"

// A Choice says whether an engine samples calls, and why or why not.
type Choice struct {
	Engine string // "page", "hotspot", …
	Chosen bool
	Reason string // a clause: "this machine has no branch records: …"
}

// String is one line for people.
func (c Choice) String() string {
	if c.Chosen {
		return fmt.Sprintf("engine %s: used: %s", c.Engine, c.Reason)
	}
	return fmt.Sprintf("engine %s: not used: %s", c.Engine, c.Reason)
}
