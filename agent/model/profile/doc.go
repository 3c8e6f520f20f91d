// Package profile holds what the agent hands out: closed windows of a recording, and the agent's
// own statistics.
//
// A [Profile] lists processes, a [Process] its threads with calling context trees, its call graphs
// and its events. All of it is immutable and may be kept and shared. The agent makes profiles;
// packages that write, serve or count them import this package and never the agent.
package profile
