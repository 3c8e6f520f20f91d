package proc

import (
	"os"
	"strings"
	"testing"
)

const (
	hexID   = "3f4a9c0d7be1aa55f0c2d4e6f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b"
	shortID = "3f4a9c0d7be1"
)

func TestService(t *testing.T) {
	for _, tt := range []struct{ name, cgroup, want string }{
		{"unit", "0::/system.slice/nginx.service\n", "nginx.service"},
		{"part of a unit", "0::/system.slice/web.service/workers\n", "web.service"},
		{"unit of a user", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-ide.service\n",
			"app-ide.service"},
		{"session of a user", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n", "java"},
		{"login", "0::/user.slice/user-1000.slice/session-3.scope\n", "java"},
		{"Docker with systemd", "0::/system.slice/docker-" + hexID + ".scope\n", shortID},
		{"Docker with cgroupfs", "0::/docker/" + hexID + "\n", shortID},
		{"Kubernetes with containerd",
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-" + hexID +
				".scope\n", shortID},
		{"Kubernetes with cgroupfs", "0::/kubepods/besteffort/pod0a1b2c/" + hexID + "\n", shortID},
		{"containers below their runtime's unit",
			"0::/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + hexID + "\n", shortID},
		{"Podman", "0::/machine.slice/libpod-" + hexID + ".scope/container\n", shortID},
		{"Podman started by a unit", "0::/system.slice/db.service/libpod-payload-" + hexID + "\n", "db.service"},
		{"unit inside a container", "0::/system.slice/docker-" + hexID + ".scope/system.slice/app.service\n",
			"app.service"},
		{"outside the agent's namespace", "0::/../../system.slice/nginx.service\n", "nginx.service"},
		{"version 1", "12:cpu,cpuacct:/system.slice\n4:memory:/system.slice/a.service\n1:name=systemd:/system.slice/b.service\n", "b.service"},
		{"version 1 without systemd", "4:memory:/docker/" + hexID + "\n3:cpuset:/\n", shortID},
		{"hybrid", "1:name=systemd:/system.slice/old.service\n0::/system.slice/new.service\n", "new.service"},
		{"colon in a name", "0::/system.slice/a:b.service\n", "a:b.service"},
		{"id of another length", "0::/jobs/" + hexID[:32] + "\n", "java"},
		{"id in capitals", "0::/docker/" + strings.ToUpper(hexID) + "\n", "java"},
		{"no more than the ending", "0::/system.slice/.service\n", "java"},
		{"hostile name", "0::/x/\x1b[2J.service\n", "?[2J.service"},
		{"command of a session", "0::/user.slice/user-0.slice/session-3.scope\n", "java"},
		{"command of cron", "0::/system.slice/cron.service\n", "java"},
		{"command over SSH", "0::/system.slice/ssh.service\n", "java"},
		{"SSH connection", "0::/system.slice/system-sshd.slice/sshd@3-10.0.0.1:22-10.0.0.2:50022.service\n", "java"},
		{"systemd-run", "0::/system.slice/run-u123.service\n", "java"},
		{"systemd-run of late", "0::/system.slice/run-p1234-i567.service\n", "java"},
		{"unit that begins with run", "0::/system.slice/run-shop.service\n", "run-shop.service"},
		{"LXC", "0::/lxc.payload.web/system.slice\n", "web"},
		{"systemd-nspawn", "0::/machine.slice/machine-my\\x2dweb.scope/payload\n", "my-web"},
		{"virtual machine", "0::/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt\n", "java"},
		{"root", "0::/\n", "java"},
		{"empty", "", "java"},
		{"garbage", "x\n::\n:::::\n0\n", "java"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := WorkloadOf([]byte(tt.cgroup), &Launch{}, "java", "host").Service; got != tt.want {
				t.Errorf("Service = %q, want %q", got, tt.want)
			}
			if strings.HasSuffix(tt.want, ".service") {
				return
			}
			if got := WorkloadOf([]byte(tt.cgroup), &Launch{Arguments: []string{"java", "com.acme.Shop"}}, "java",
				"host").Service; got != "com.acme.Shop" {
				t.Errorf("Service of a JVM = %q", got)
			}
		})
	}
}

func TestCgroupOfThisProcess(t *testing.T) {
	b, err := Root("").Cgroup(os.Getpid())
	if err != nil || !strings.Contains(string(b), ":/") {
		t.Errorf("Cgroup = %q, %v", b, err)
	}
}

func FuzzService(f *testing.F) {
	f.Add([]byte("1:name=systemd:/system.slice/a.service\n0::/docker/"+hexID+"\n"), "java")
	f.Add([]byte("0::////.scope"), "")
	f.Fuzz(func(t *testing.T, cgroup []byte, comm string) {
		name := WorkloadOf(cgroup, &Launch{}, comm, "host").Service
		if len(name) > maxName {
			t.Errorf("name of %d bytes", len(name))
		}
		if name == "" && comm != "" {
			t.Errorf("no name, although comm is %q", comm)
		}
	})
}

// Containers are called what their environment, host name or pod says; their ids are no more than
// the last resort.
func TestWorkload(t *testing.T) {
	const (
		uid    = "0a1b2c3d-1111-2222-3333-444455556666"
		docker = "0::/docker/" + hexID + "\n"
		pod    = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-containerd-" + hexID + ".scope\n"
	)
	for _, tt := range []struct {
		name, cgroup string
		launch       Launch
		comm         string
		want         Workload
	}{
		{"daemon of cron", "0::/system.slice/cron.service\n", Launch{}, "cron",
			Workload{Service: "cron.service", Unit: "cron.service"}},
		{"daemon of ssh", "0::/system.slice/ssh.service\n", Launch{}, "sshd",
			Workload{Service: "ssh.service", Unit: "ssh.service"}},
		{"container without a name", docker, Launch{Hostname: shortID}, "nginx",
			Workload{Service: shortID, ContainerID: shortID}},
		{"container with a host name", docker, Launch{Hostname: "web"}, "nginx",
			Workload{Service: "web", Container: "web", ContainerID: shortID}},
		{"container in the machine's network", docker, Launch{Hostname: "host"}, "nginx",
			Workload{Service: shortID, ContainerID: shortID}},
		{"generic jar in a container", docker, Launch{Arguments: []string{"java", "-jar", "app.jar"}, Hostname: "web",
			Directory: "/app"}, "java",
			Workload{Service: "web", Container: "web", ContainerID: shortID, Application: "app", Main: "app"}},
		{"generic jar in a container without a name", docker, Launch{Arguments: []string{"java", "-jar", "app.jar"},
			Directory: "/opt/shop"}, "java",
			Workload{Service: "shop", ContainerID: shortID, Application: "shop", Main: "app"}},
		{"telemetry of a program that is no JVM", docker, Launch{Arguments: []string{"nginx"},
			Environment: []string{"OTEL_SERVICE_NAME=front"}, Hostname: shortID}, "nginx",
			Workload{Service: "front", ContainerID: shortID}},
		{"pod of a deployment", pod, Launch{Arguments: []string{"nginx"}, Environment: []string{"POD_NAMESPACE=prod"},
			Hostname: "shop-7d9f8b6c5-x2x4z"}, "nginx",
			Workload{Service: "shop", Container: "shop", ContainerID: shortID, PodUID: uid, Pod: "shop-7d9f8b6c5-x2x4z",
				Namespace: "prod"}},
		{"pod of a stateful set", pod, Launch{Hostname: "db-0"}, "postgres",
			Workload{Service: "db", Container: "db", ContainerID: shortID, PodUID: uid, Pod: "db-0"}},
		{"pod as telemetry has it", pod, Launch{Environment: []string{"OTEL_RESOURCE_ATTRIBUTES=k8s.pod.name=a-b, " +
			"k8s.namespace.name=n,k8s.container.name=envoy"}, Hostname: "a-b"}, "envoy",
			Workload{Service: "envoy", Container: "envoy", ContainerID: shortID, PodUID: uid, Pod: "a-b",
				Namespace: "n"}},
		{"hostile", pod, Launch{Hostname: "\x1b[2J", Environment: []string{"POD_NAME=\x1b[2J", "POD_NAMESPACE=\u202e"}},
			"x",
			Workload{Service: "?[2J", Container: "?[2J", ContainerID: shortID, PodUID: uid, Pod: "?[2J",
				Namespace: "?"}},
	} {
		if got := WorkloadOf([]byte(tt.cgroup), &tt.launch, tt.comm, "host"); got != tt.want {
			t.Errorf("%s:\n%+v, want\n%+v", tt.name, got, tt.want)
		}
	}
}

func TestPodOwner(t *testing.T) {
	for pod, want := range map[string]string{
		"shop-7d9f8b6c5-x2x4z": "shop", "shop-cart-6b7f-x2x4z": "shop-cart-6b7f", "agent-x2x4z": "agent", "db-12": "db",
		"shop": "shop", "my-store": "my-store",
		"-x2x4z": "-x2x4z", "shop-hello": "shop-hello", "job-28912345-x2x4z": "job",
	} {
		if got := podOwner(pod); got != want {
			t.Errorf("%s: %s, want %s", pod, got, want)
		}
	}
}
