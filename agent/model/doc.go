// Package model is the wing of what a closed window is. Whoever fills one and whoever shows one
// both know it, and not each other.
//
//   - profile is the window: immutable, with names
//   - stored is the file format of profiles, which pprof can read: labels, sample types, metadata
//   - digest makes one smaller window of several, for pages and the history
//   - cause says what a thread waited for, by its stack
package model
