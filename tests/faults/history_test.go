package faults

// historyRows are faults of the history on disk.
var historyRows = []Row{
	{
		Fault: "a bit of the history is flipped, or bytes are missing",
		Holds: "The window that it is in is lost, and no other one: records are found again after a damaged part. " +
			"`report`, `compare` and the page of `serve` say what is " +
			"missing, from when to when. The agent changes nothing in a damaged segment: it is neither cut nor " +
			"merged, and goes when it is too old.",
		Elsewhere: []string{"agent/view/history.TestTornTails", "agent/view/history.TestDamagedNames",
			"agent/view/history.TestDamagedMerge", "agent/view/httpd.TestPageOfPast",
			"cmd/vmprof-agent/recordings.TestDamagedPast"},
	},
	{
		Fault: "the history was written by another version of the agent",
		Holds: "It is read if its format is the one before. Otherwise readers say that it is there, its size " +
			"counts, and it is removed when it is too old. No format changes without another magic number.",
		Elsewhere: []string{"agent/view/history.TestOtherVersion", "agent/view/history.TestFormat"},
	},
	{
		Fault: "`serve` with a history is killed, at each of its writes",
		Holds: "At most the window that is being written is missing. The incomplete record at the end of the " +
			"last segment is cut off; the next window follows.",
		Elsewhere: []string{"agent/view/history.TestKilledAtEachWrite", "agent/view/history.TestKilled",
			"agent/view/history.TestInterruptedMerge"},
	},
	{
		Fault: "the disk of the history is full, at any of its writes",
		Holds: "Windows that do not fit are counted by cause, and nothing else is lost. There are windows again " +
			"once there is room.",
		Elsewhere: []string{"agent/view/history.TestDiskFullAtEachWrite", "agent/view/history.TestDiskFullAtSegment"},
	},
	{
		Fault: "the clock is set forward or back, by hours or by years",
		Holds: "No window is lost, merged or removed because of it. Windows have the times that the clock showed. A " +
			"window is as old as the windows after it are long, whatever " +
			"the clock says.",
		Elsewhere: []string{"agent/view/history.TestClockJumps", "agent/view/history.TestClockAhead"},
	},
	{
		Fault:     "two agents are to write to one history",
		Holds:     "The second one is refused, and says so.",
		Elsewhere: []string{"agent/view/history.TestDirectory"},
	},
}
