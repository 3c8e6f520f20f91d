package faults

// hostileRows: what a process keeps in its memory must not end the agent.
var hostileRows = []Row{
	{
		Fault: "a JVM whose object headers are zero",
		Holds: "The agent attaches to the JVM. The class is reported as malformed, and a note says what cannot be recorded.",
		Elsewhere: []string{
			"vmruntime/hotspot.TestClassAtZero", "vmruntime/hotspot.FuzzObjects",
		},
	},
}
