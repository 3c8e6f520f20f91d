package doctor

import "context"

// checkPIDNamespace: the kernel side reports the host's process ids.
func checkPIDNamespace(_ context.Context, env *Env) Result {
	host, err := env.Proc.HostPIDs()
	switch {
	case err != nil:
		return Result{Status: Info, Detail: "unknown: " + err.Error()}
	case host:
		return ok("the host's")
	}
	return Result{Missing, "not the host's",
		"Samples have the host's process ids, which belong to other processes here: only kernel frames have names, " +
			"and -p and COMMAND select wrong processes.",
		"Run on the host, or in its PID namespace: docker run --pid=host, hostPID: true in Kubernetes."}
}
