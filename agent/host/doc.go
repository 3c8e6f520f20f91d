// Package host is the wing of what the agent needs of the machine that it runs on, and of nobody's
// program in particular.
//
//   - proc reads /proc and the memory of processes, with deadlines, and opens for a process only
//     what its own user could open
//   - privilege drops the capabilities that the agent needs only while it starts
//   - outfile creates the files that users name, and socketfile the sockets
//   - retry spaces attempts at what failed
//
// Its rooms import no other wing.
package host
