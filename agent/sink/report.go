package sink

import (
	"fmt"
	"io"

	"github.com/google/pprof/profile"
)

// Report writes both views of a profile and the footer. Nil options are DefaultViewOptions.
func Report(w io.Writer, p *profile.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	if err := Methods(w, p, opts); err != nil {
		return err
	}
	fmt.Fprintln(w) // an error shows at the next write
	if err := Tree(w, p, opts); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return Footer(w, p, opts.Width)
}

// Text writes the report of a profile as it is kept in a file, where names need not be shortened.
func Text(w io.Writer, p *profile.Profile) error {
	opts := DefaultViewOptions()
	opts.N, opts.Width = 100, 0
	return Report(w, p, opts)
}
