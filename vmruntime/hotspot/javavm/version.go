package javavm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// versionSchema leads to the VM's version: static variables of Abstract_VM_Version, and JDK_Version
// where it is exported (up to about JDK 22).
type versionSchema struct {
	major, release, info uint64          // statics: int, const char*, const char*
	jdk                  uint64          // static JDK_Version
	jdkMajor             vmstructs.Field // field of JDK_Version
}

func newVersionSchema(r *vmstructs.Resolver) versionSchema {
	return versionSchema{
		major:    r.Static("Abstract_VM_Version._vm_major_version"),
		release:  r.OptionalStatic("Abstract_VM_Version._s_vm_release"),
		info:     r.OptionalStatic("Abstract_VM_Version._s_internal_vm_info_string"),
		jdk:      r.OptionalStatic("JDK_Version._current"),
		jdkMajor: r.Optional("JDK_Version._major"),
	}
}

// A Version is the version of a VM.
type Version struct {
	JDK     int    // feature release: 8, 17, 25
	release string // 17.0.15+6-Debian-1deb12u1
	name    string // OpenJDK 64-Bit Server VM
}

// readVersion reads the VM's version. It is an error if the release is not supported, and
// ErrStarting if the VM has not set it yet.
func readVersion(t vmstructs.Reader, s *versionSchema) (Version, error) {
	major, err := t.Word(s.major)
	if err != nil {
		return Version{}, err
	}
	v := Version{JDK: int(int32(major))}
	// JDK 8 has HotSpot 25. Only JDK_Version has the release there: see the table.
	if s.jdk != 0 && s.jdkMajor.Known {
		object, err := t.Bytes(s.jdk, s.jdkMajor.End())
		if err != nil {
			return Version{}, err
		}
		v.JDK = int(s.jdkMajor.Read(object))
	}
	if v.JDK == 0 {
		return Version{}, vmruntime.ErrStarting
	}
	if v.JDK < oldestJDK || v.JDK > maxJDK {
		return Version{}, fmt.Errorf("JDK %d is not supported", v.JDK)
	}
	v.release = t.StaticText(s.release)
	// "OpenJDK 64-Bit Server VM (17.0.15+6-Debian-1deb12u1) for linux-amd64 JRE (…), built on …"
	v.name, _, _ = strings.Cut(t.StaticText(s.info), " (")
	return v, nil
}

// oldestJDK is the first release with the structures that this package knows. There is no newest
// one: nearly everything is read from the VM, and Attach fails if something is missing there.
const (
	oldestJDK = 8
	maxJDK    = 1000 // what is above is no version
)

// testedJDKs are the releases that the tables of docs/reference/jdks.md have.
var testedJDKs = []int{8, 11, 17, 21, 25, 26, 27, 28}

// tested reports whether the tests run on that release.
func (v Version) tested() bool { return slices.Contains(testedJDKs, v.JDK) }

// String names the VM for people: "OpenJDK 64-Bit Server VM 17.0.15+6".
func (v Version) String() string {
	name := v.name
	if name == "" {
		name = "HotSpot"
	}
	release := regexp.MustCompile(`^[0-9.]+(\+[0-9]+)?`).FindString(v.release) // without the packager's suffix
	switch major := fmt.Sprint(v.JDK); {
	case release == "":
		release = major
	case !strings.HasPrefix(release, major): // JDK 8 states the version of HotSpot
		release += " (JDK " + major + ")"
	}
	return name + " " + release
}

// What no table of the VM has goes by version: see the table in hotspot/jdks.go.

// Unsigned5Bias is what UNSIGNED5 adds to every byte.
func (v Version) Unsigned5Bias() uint32 {
	if v.JDK >= 20 {
		return 1
	}
	return 0
}

// Live reports whether what an nmethod of that state points to may still name it. That holds for
// code that is not entered any more.
func (v Version) Live(state int8) bool {
	switch {
	case v.JDK >= 20:
		return true // what is dead is freed
	case v.JDK >= 9:
		return state < 3 // zombie, unloaded
	default:
		return state < 2
	}
}

// MonitorHandles reports whether an ObjectMonitor has a pointer to a word with the object, not the
// object itself.
func (v Version) MonitorHandles() bool { return v.JDK >= 16 }

// bytecodeWord is the word of an interpreter frame with the bytecode pointer, counted from the
// frame pointer (amd64).
func (v Version) bytecodeWord() int {
	if v.JDK >= 9 {
		return -8
	}
	return -7
}
