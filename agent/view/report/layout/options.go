package layout

import "regexp"

// MaxParts bounds the parts of a method that are shown, unless all methods are.
const MaxParts = 5

// Options says how much of a profile a view shows. The zero value shows everything.
type Options struct {
	N        int     // lines of a table: methods, edges, call sites; 0 for all
	MinShare float64 // percent of all samples: contexts below are left out of the tree
	Width    int     // columns that lines should keep to, by shortening names; 0 to keep names whole
	// SumVM has the methods view show the threads of a JVM's collector and compilers, and its other
	// threads for itself, as one line each.
	SumVM bool
	// Idle has views of wall time and off-CPU time show threads that have nothing to do.
	Idle bool
	// PID is the only process that Timeline shows, 0 for all.
	PID   int64
	Parts int // parts of a method in a table of events: 0 for MaxParts, less for none
	// App matches the names of methods that are of the application, for Layers; nil for all that
	// are not the Java class library's.
	App *regexp.Regexp
}

// DefaultOptions is what fits on a terminal. The share is that of Figure 12 of Inoue and
// Nakatani (OOPSLA 2009).
func DefaultOptions() *Options {
	return &Options{N: 20, MinShare: 0.3, Width: 79, SumVM: true}
}

// OrDefault are the options, or DefaultOptions if they are nil.
func (o *Options) OrDefault() *Options {
	if o == nil {
		return DefaultOptions()
	}
	return o
}
