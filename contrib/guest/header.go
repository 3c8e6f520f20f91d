// Package guest is what a VM takes from this project: one C header. docs/guests.md is the guide for
// VM authors.
package guest

import _ "embed"

// Header is the text of vmprof.h.
//
//go:embed vmprof.h
var Header string
