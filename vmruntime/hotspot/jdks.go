package hotspot

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// versionSchema leads to the VM's version: static variables of Abstract_VM_Version, and JDK_Version where it is
// exported (up to about JDK 22).
type versionSchema struct {
	major, release, info uint64          // statics: int, const char*, const char*
	jdk                  uint64          // static JDK_Version
	jdkMajor             vmstructs.Field // of JDK_Version
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

// A version is that of a VM.
type version struct {
	jdk     int    // feature release: 8, 17, 25
	release string // 17.0.15+6-Debian-1deb12u1
	name    string // OpenJDK 64-Bit Server VM
}

// readVersion reads the VM's version. It is an error if it is not one that this package can know anything about; ErrStarting
// if the VM does not know it yet.
func readVersion(t vmstructs.Reader, s *versionSchema) (version, error) {
	major, err := t.Word(s.major)
	if err != nil {
		return version{}, err
	}
	v := version{jdk: int(int32(major))}
	// JDK 8 has HotSpot 25: there, only JDK_Version tells.
	if s.jdk != 0 && s.jdkMajor.Known {
		object, err := t.Bytes(s.jdk, s.jdkMajor.End())
		if err != nil {
			return version{}, err
		}
		v.jdk = int(s.jdkMajor.Of(object))
	}
	if v.jdk == 0 {
		return version{}, vmruntime.ErrStarting
	}
	if v.jdk < oldestJDK || v.jdk > maxJDK {
		return version{}, fmt.Errorf("JDK %d is not supported", v.jdk)
	}
	v.release = t.StaticText(s.release)
	// "OpenJDK 64-Bit Server VM (17.0.15+6-Debian-1deb12u1) for linux-amd64 JRE (…), built on …"
	v.name, _, _ = strings.Cut(t.StaticText(s.info), " (")
	return v, nil
}

// oldestJDK is the first one with the structures that this package knows. There is no newest: nearly everything is read
// from the VM, and what is missing there makes Attach fail.
const (
	oldestJDK = 8
	maxJDK    = 1000 // what is above is no version
)

// tested reports whether the tests run on that release.
func (v version) tested() bool { return v.jdk == 17 || v.jdk == 25 }

// String names the VM for people: "OpenJDK 64-Bit Server VM 17.0.15+6".
func (v version) String() string {
	name := v.name
	if name == "" {
		name = "HotSpot"
	}
	release := regexp.MustCompile(`^[0-9.]+(\+[0-9]+)?`).FindString(v.release) // without the packager's suffix
	switch major := fmt.Sprint(v.jdk); {
	case release == "":
		release = major
	case !strings.HasPrefix(release, major): // JDK 8 states the version of HotSpot
		release += " (JDK " + major + ")"
	}
	return name + " " + release
}

// What goes by version, as no table has it.

// unsigned5Bias is what UNSIGNED5 adds to every byte.
func (v version) unsigned5Bias() uint32 {
	if v.jdk >= 20 {
		return 1
	}
	return 0
}

// live tells whether an nmethod of that state may still be named by what it points to. Those that are only not
// entered any more are.
func (v version) live(state int8) bool {
	switch {
	case v.jdk >= 20:
		return true // what is dead is freed
	case v.jdk >= 9:
		return state < 3 // zombie, unloaded
	default:
		return state < 2
	}
}

// monitorHandles reports whether an ObjectMonitor has a pointer to a word with the object, not the object itself.
func (v version) monitorHandles() bool { return v.jdk >= 16 }

// bytecodeWord is where an interpreter frame has its bytecode pointer: words from the frame pointer, on amd64.
func (v version) bytecodeWord() int {
	if v.jdk >= 9 {
		return -8
	}
	return -7
}
