// Package version says which build of the agent this is.
package version

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// release is set when a release is built: -ldflags "-X
// github.com/vmprof-agent/vmprof-agent/version.release=v1.2.3".
var release string

// An Info is one build.
type Info struct {
	Version  string `json:"version"`            // v1.2.3, a pseudo-version, or "devel"
	Revision string `json:"revision,omitempty"` // commit of the source; 12 digits after go install; empty if unknown
	Modified bool   `json:"modified,omitempty"` // the source differed from that revision
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// Get returns the running build. A release's own version goes before what the Go toolchain
// recorded.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return fromBuild(release, build)
}

// fromBuild reads a version out of build, which may be nil.
func fromBuild(release string, build *debug.BuildInfo) Info {
	i := Info{Version: release, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if build != nil {
		if i.Version == "" && build.Main.Version != "(devel)" {
			i.Version = build.Main.Version
		}
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				i.Revision = s.Value
			case "vcs.modified":
				i.Modified = s.Value == "true"
			}
		}
	}
	if i.Version == "" {
		i.Version = "devel"
	}
	// go build marks an edited checkout in the version, too; String has a word for it.
	if plain, dirty := strings.CutSuffix(i.Version, "+dirty"); dirty {
		i.Version, i.Modified = plain, true
	}
	// go install records no revision, but what it makes of a commit without a tag ends in it.
	if m := pseudoVersion.FindStringSubmatch(i.Version); i.Revision == "" && m != nil {
		i.Revision = m[1]
	}
	return i
}

// pseudoVersion matches the version that the Go toolchain gives to a commit without a tag, such as
// v0.0.0-20261123214507-0123456789ab.
var pseudoVersion = regexp.MustCompile(`^v.*[-.]\d{14}-([0-9a-f]{12})$`)

// String describes the running build in one line: see Info.String.
func String() string { return Get().String() }

// String is one line without a newline: "v1.2.3 (0123456789ab, modified) go1.26.1 linux/amd64".
func (i Info) String() string {
	s := i.Version
	if i.Revision != "" {
		s += " (" + i.Revision[:min(len(i.Revision), 12)]
		if i.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return fmt.Sprintf("%s %s %s/%s", s, i.Go, i.OS, i.Arch)
}
