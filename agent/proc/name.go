package proc

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxComm bounds the name of a task: TASK_COMM_LEN is 16, workqueue threads show up to 64 bytes.
	maxComm = 256
	// maxName bounds every name that this package makes for people and metrics.
	maxName = 128
)

// Comm reads the name of a process: that of its thread group leader, at most 15 bytes for user tasks. A task chooses
// its name freely; what is returned is printable.
func (r Root) Comm(pid int) (string, error) {
	b, err := r.read(pid, maxComm, "comm")
	if err != nil {
		return "", err
	}
	return parseComm(b), nil
}

// ThreadComm is Comm of a thread.
func (r Root) ThreadComm(pid, tid int) (string, error) {
	b, err := r.read(pid, maxComm, "task", strconv.Itoa(tid), "comm")
	if err != nil {
		return "", err
	}
	return parseComm(b), nil
}

// parseComm takes off the one newline that the kernel adds; the name itself may hold more of them.
func parseComm(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	return printable(b)
}

// printable makes a name fit for terminals, logs and metrics: valid UTF-8, nothing that moves a cursor or reverses
// the writing direction, at most maxName bytes.
func printable(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		b = b[size:]
		if c == utf8.RuneError || !unicode.IsPrint(c) {
			c = '?'
		}
		if s.Len()+utf8.RuneLen(c) > maxName {
			break
		}
		s.WriteRune(c)
	}
	return s.String()
}

const (
	// maxCgroup bounds /proc/PID/cgroup: one line for each hierarchy, each with a path of at most PATH_MAX.
	maxCgroup = 128 << 10
	// containerIDLen is the length of the ids of Docker, containerd, CRI-O and Podman, in hex digits.
	containerIDLen = 64
	// shortIDLen is how much of an id these tools show.
	shortIDLen = 12
)

// Cgroup reads /proc/PID/cgroup: see Service.
func (r Root) Cgroup(pid int) ([]byte, error) { return r.read(pid, maxCgroup, "cgroup") }

// Service returns the bounded name under which a process is counted: the systemd unit (nginx.service), the application of a JVM
// (see Application), or for a container the first 12 digits of its id, whichever of unit and container is nearest to the process;
// else comm. The argument cgroup is the content of /proc/PID/cgroup.
//
// The unified hierarchy is asked first, then systemd's named one, then the rest in order.
func Service(cgroup []byte, application, comm string) string {
	paths := make([]string, 2, 8)
	for line := range bytes.Lines(cgroup) {
		// hierarchy-ID:controller-list:path, and the path may hold colons.
		parts := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			paths[0] = parts[2]
		case parts[1] == "name=systemd":
			paths[1] = parts[2]
		default:
			paths = append(paths, parts[2])
		}
	}
	for _, path := range paths {
		name, unit := serviceOf(path)
		switch {
		case name == "":
			continue
		case application != "" && !unit: // ids are as good as no name, and new ones after each restart
			return application
		}
		return printable([]byte(name))
	}
	return cmp.Or(application, printable([]byte(comm)))
}

// serviceOf looks for a unit or a container from the innermost component outwards.
func serviceOf(path string) (name string, unit bool) {
	for path != "" {
		i := strings.LastIndexByte(path, '/')
		name = path[i+1:]
		path = path[:max(i, 0)]
		switch {
		case strings.HasPrefix(name, "user@") || strings.HasPrefix(name, "libpod-payload-"):
			// user@1000.service is a whole login session. Podman puts the payload of a unit's container below the
			// unit, whose name lasts longer than the container.
		case strings.HasSuffix(name, ".service") && len(name) > len(".service"):
			return name, true
		default:
			if id := containerID(name); id != "" {
				return id[:shortIDLen], false
			}
		}
	}
	return "", false
}

// containerID finds the id in docker-ID.scope, cri-containerd-ID.scope, kubepods-…:cri-containerd:ID or a bare ID.
func containerID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	if i := strings.LastIndexAny(name, "-:"); i >= 0 {
		name = name[i+1:]
	}
	if len(name) != containerIDLen || strings.Trim(name, "0123456789abcdef") != "" {
		return ""
	}
	return name
}
