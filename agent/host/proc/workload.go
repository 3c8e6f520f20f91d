package proc

import (
	"bytes"
	"cmp"
	"os"
	"regexp"
	"strings"
)

// A Workload is what people call a process, and where it runs. Its fields are printable and
// bounded; empty is what neither the cgroup nor the process says.
type Workload struct {
	// Service is the bounded name under which the process is counted: see WorkloadOf. It stays the
	// same when the process is started again, and from one version to the next, unless there is
	// nothing to go by but the id of a container.
	Service     string
	Application string // for a JVM: see Application.Name
	Main        string // for a JVM: its main class or jar
	Unit        string // systemd unit

	// Of a process in a container:
	Container   string // name
	ContainerID string // first 12 digits of the id
	PodUID      string
	Pod         string
	Namespace   string
}

// NeedsLaunch reports whether the names of a process depend on how it was started, so that reading
// that is worth while.
func NeedsLaunch(executable string, cgroup []byte) bool {
	return IsJava(executable) || placeOf(cgroup).contained()
}

// WorkloadOf names a process. The argument cgroup is the content of /proc/PID/cgroup, comm that of
// /proc/PID/comm, and host the name of the machine.
//
// Service is the first of these that there is: the systemd unit (nginx.service), if it is nearer to
// the process than a container; the application of a JVM, unless its name is generic; the
// container's name; the generic name; the container's id; comm. Units of login sessions and of
// commands, such as cron.service, are the service of their daemon only.
func WorkloadOf(cgroup []byte, l *Launch, comm, host string) Workload {
	place, application := placeOf(cgroup), ApplicationOf(l)
	w := Workload{
		Application: application.Name, Main: application.Main, Unit: printable([]byte(place.unit)),
		ContainerID: place.id, PodUID: place.podUID,
	}
	if w.Unit != "" && (transient.MatchString(w.Unit) || startsOthers[w.Unit] &&
		!strings.HasPrefix(comm, strings.TrimSuffix(strings.TrimSuffix(w.Unit, ".service"), "d"))) {
		w.Unit = ""
	}
	otel := ""
	if place.contained() {
		name := place.container
		attributes := l.variable("OTEL_RESOURCE_ATTRIBUTES")
		otel = cmp.Or(l.variable("OTEL_SERVICE_NAME"), attribute(attributes, "service.name"))
		name = cmp.Or(name, attribute(attributes, "k8s.container.name"), attribute(attributes, "container.name"),
			l.variable("CONTAINER_NAME"), l.variable("NOMAD_TASK_NAME"))
		// A container's host name is its id unless somebody named it, and that of a pod is the
		// pod's. It is the machine's if the container shares that network.
		hostname := l.Hostname
		if hostname == host || hostname == "localhost" || place.id != "" && strings.HasPrefix(hostname, place.id) {
			hostname = ""
		}
		pod := cmp.Or(attribute(attributes, "k8s.pod.name"), l.variable("POD_NAME"), l.variable("K8S_POD_NAME"))
		if pod == "" && place.podUID != "" {
			pod = hostname
		}
		namespace := cmp.Or(attribute(attributes, "k8s.namespace.name"), l.variable("POD_NAMESPACE"),
			l.variable("K8S_NAMESPACE"), l.variable("KUBERNETES_NAMESPACE"))
		if pod != "" {
			name = cmp.Or(name, podOwner(pod))
		}
		w.Container = printable([]byte(cmp.Or(name, hostname)))
		w.Pod, w.Namespace = printable([]byte(pod)), printable([]byte(namespace))
	}
	specific, generic := application.Name, ""
	if application.Generic {
		specific, generic = "", application.Name
	}
	w.Service = cmp.Or(w.Unit, specific, printable([]byte(otel)), w.Container, generic, w.ContainerID,
		printable([]byte(comm)))
	return w
}

// podOwner is what a pod belongs to. The names of pods end in what their controllers add, which
// changes with each rollout: a hash of the template and five characters, five characters, or a
// number.
func podOwner(pod string) string {
	if m := podSuffix.FindStringIndex(pod); m != nil && m[0] > 0 {
		return pod[:m[0]]
	}
	return pod
}

var podSuffix = regexp.MustCompile(`(?:-[0-9bcdf-hj-np-tv-xz]{8,10})?-[bcdf-hj-np-tv-xz24-9]{5}$|-[0-9]{1,10}$`)

// startsOthers are units whose processes are mostly started by somebody else: what runs in them is
// not the unit's service.
var startsOthers = map[string]bool{
	"cron.service": true, "crond.service": true, "cronie.service": true, "anacron.service": true, "atd.service": true,
	"ssh.service": true, "sshd.service": true,
	"gdm.service": true, "sddm.service": true, "lightdm.service": true, "display-manager.service": true,
	"rescue.service": true, "emergency.service": true, "screen.service": true, "tmux.service": true,
}

// transient matches units that systemd-run numbers, sessions, and units of a connection or a
// terminal.
var transient = regexp.MustCompile(`^(?:run-[a-z]?[0-9a-f]+(?:-i[0-9]+)?|(?:user|sshd?|getty|serial-getty|container-getty|autovt|user-runtime-dir)@.*|(?:console-getty|debug-shell))\.service$`)

const (
	// maxCgroup bounds /proc/PID/cgroup: one line for each hierarchy, each with a path of at most
	// PATH_MAX.
	maxCgroup = 128 << 10
	// containerIDLen is the length of the ids of Docker, containerd, CRI-O and Podman, in hex
	// digits.
	containerIDLen = 64
	// shortIDLen is how much of an id these tools show.
	shortIDLen = 12
)

// Cgroup reads /proc/PID/cgroup: see WorkloadOf.
func (r Root) Cgroup(pid int) ([]byte, error) { return r.read(pid, maxCgroup, "cgroup") }

// HostName is the name of the machine that the agent runs on, as far as the agent sees.
func HostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// A place is where a process is in the hierarchy of control groups.
type place struct {
	unit      string // nearer than a container, or of a container that it starts
	id        string // first digits of the container's id
	container string // name, where the path has it
	podUID    string
}

func (p place) contained() bool { return p.id != "" || p.container != "" || p.podUID != "" }

// placeOf finds the place in the content of /proc/PID/cgroup. The unified hierarchy is asked first,
// then systemd's named one, then the rest in order.
func placeOf(cgroup []byte) place {
	paths := make([]string, 2, 8)
	for line := range bytes.Lines(cgroup) {
		// A line is hierarchy-ID:controller-list:path, and the path may hold colons.
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
		if p := placeIn(path); p != (place{}) {
			return p
		}
	}
	return place{}
}

// placeIn looks through the components of a path, from the innermost outwards.
func placeIn(path string) (p place) {
	payload := false // in a container that the unit starts: Podman puts it below the unit, whose name lasts longer
	for path != "" {
		i := strings.LastIndexByte(path, '/')
		name := path[i+1:]
		path = path[:max(i, 0)]
		switch {
		case strings.HasSuffix(name, ".service") && len(name) > len(".service"):
			if p.unit == "" && (!p.contained() || payload) && !strings.HasPrefix(name, "user@") {
				p.unit = name
			}
			continue
		case strings.HasPrefix(name, "libpod-payload-"):
			payload = true
		}
		if p.podUID == "" {
			p.podUID = podUID(name)
		}
		if p.id == "" && p.container == "" {
			if id := containerID(name); id != "" {
				p.id = id[:shortIDLen]
			} else {
				p.container = printable([]byte(containerName(name)))
			}
		}
	}
	return p
}

// containerID finds the id in docker-ID.scope, cri-containerd-ID.scope,
// kubepods-…:cri-containerd:ID or a bare ID.
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

// containerName finds the name in lxc.payload.NAME (LXC) and machine-NAME.scope (systemd-nspawn).
func containerName(component string) string {
	if name, ok := strings.CutPrefix(component, "lxc.payload."); ok {
		return name
	}
	name, ok := strings.CutPrefix(component, "machine-")
	// QEMU's are whole machines.
	if name, scope := strings.CutSuffix(name, ".scope"); ok && scope && !strings.HasPrefix(name, "qemu") {
		return strings.ReplaceAll(name, `\x2d`, "-") // as systemd writes a dash in a name
	}
	return ""
}

var podComponent = regexp.MustCompile(`^(?:kubepods.*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?::|$)`)

// podUID finds the uid in kubepods-burstable-podUID.slice or podUID. Where systemd makes the
// groups, its dashes are underscores.
func podUID(component string) string {
	if m := podComponent.FindStringSubmatch(component); m != nil {
		return strings.ReplaceAll(m[1], "_", "-")
	}
	return ""
}
