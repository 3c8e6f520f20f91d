//go:build !amd64

package attach

// ReplacesNops: the kernel has one NOP on other machines, and emulates it.
func ReplacesNops() bool { return false }
